"""Small networks of the replaced programs in graphs of TensorFlow 1, with the checkpoints that these write."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

v1 = tf.compat.v1
DECAY = 0.9  # of the moving averages
STEPS = 3


def variable(name: str, *shape: int, value: float = 0.1) -> tf.Variable:
    initial = (
        v1.constant_initializer(value) if len(shape) == 1 else v1.truncated_normal_initializer(stddev=value)
    )
    return v1.get_variable(name, shape, initializer=initial, use_resource=True)


class Layers:
    """Convolutions and dense layers with ReLU, by the program's names of their variables."""

    def __init__(self, kernel: str = "weights", bias: str = "biases") -> None:
        self.kernel, self.bias = kernel, bias

    def conv(self, images: tf.Tensor, filters: int, name: str) -> tf.Tensor:
        with v1.variable_scope(name):
            kernel = variable(self.kernel, 5, 5, images.shape[-1], filters)
            return tf.nn.relu(tf.nn.conv2d(images, kernel, 1, "SAME") + variable(self.bias, filters))

    def dense(self, x: tf.Tensor, units: int, name: str, *, relu: bool = True) -> tf.Tensor:
        x = tf.reshape(x, (-1, int(np.prod(x.shape[1:]))))
        with v1.variable_scope(name):
            x = x @ variable(self.kernel, x.shape[-1], units, value=0.05) + variable(self.bias, units)
        return tf.nn.relu(x) if relu else x


def pool(images: tf.Tensor, size: int, padding: str) -> tf.Tensor:
    return tf.nn.max_pool2d(images, size, 2, padding)


def local(images: tf.Tensor) -> tf.Tensor:
    return tf.nn.lrn(images, 4, bias=1.0, alpha=0.001 / 9, beta=0.75)


def lenet(images: tf.Tensor, classes: int) -> tf.Tensor:
    own = Layers()
    with v1.variable_scope("LeNet"):
        x = pool(own.conv(images, 32, "conv1"), 2, "VALID")
        x = pool(own.conv(x, 64, "conv2"), 2, "VALID")
        return own.dense(own.dense(x, 1024, "fc3"), classes, "fc4", relu=False)


def cifarnet(images: tf.Tensor, classes: int) -> tf.Tensor:
    own = Layers()
    with v1.variable_scope("CifarNet"):
        x = local(pool(own.conv(images, 64, "conv1"), 2, "VALID"))
        x = pool(local(own.conv(x, 64, "conv2")), 2, "VALID")
        return own.dense(own.dense(own.dense(x, 384, "fc3"), 192, "fc4"), classes, "logits", relu=False)


def mnist_cnn(images: tf.Tensor, classes: int) -> tf.Tensor:
    own = Layers("kernel", "bias")
    x = pool(own.conv(images, 32, "conv2d"), 2, "SAME")
    x = pool(own.conv(x, 64, "conv2d_1"), 2, "SAME")
    return own.dense(own.dense(x, 1024, "dense"), classes, "dense_1", relu=False)


def cifar10_tutorial(images: tf.Tensor, classes: int) -> tf.Tensor:
    own = Layers()
    x = local(pool(own.conv(images, 64, "conv1"), 3, "SAME"))
    x = pool(local(own.conv(x, 64, "conv2")), 3, "SAME")
    x = own.dense(own.dense(x, 384, "local3"), 192, "local4")
    return own.dense(x, classes, "softmax_linear", relu=False)


NETWORKS: dict[str, Callable[[tf.Tensor, int], tf.Tensor]] = {
    "lenet": lenet,
    "cifarnet": cifarnet,
    "mnist_cnn": mnist_cnn,
    "cifar10_tutorial": cifar10_tutorial,
}


def train(name: str, folder: Path, images: NDArray[np.float32], classes: int) -> Path:
    """Train some steps with momentum and moving averages; returns the prefix of the checkpoint."""
    labels = np.arange(len(images)) % classes
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)
        shown = v1.placeholder(tf.float32, (None, *images.shape[1:]))
        loss = v1.losses.sparse_softmax_cross_entropy(labels, NETWORKS[name](shown, classes))
        step = v1.train.get_or_create_global_step()
        update = v1.train.MomentumOptimizer(0.02, 0.9).minimize(loss, step)
        with tf.control_dependencies([update]):
            averaged = tf.train.ExponentialMovingAverage(DECAY, step).apply(v1.trainable_variables())
        session.run(v1.global_variables_initializer())
        for _ in range(STEPS):
            session.run(averaged, {shown: images})
        return Path(v1.train.Saver().save(session, str(folder / "model.ckpt"), step))


def trained_further(
    name: str,
    prefix: Path,
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    classes: int,
    *,
    rate: float,
) -> dict[str, NDArray[np.float32]]:
    """The variables after one step of gradient descent from the weights of a checkpoint."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)
        shown = v1.placeholder(tf.float32, (None, *images.shape[1:]))
        loss = v1.losses.sparse_softmax_cross_entropy(labels, NETWORKS[name](shown, classes))
        update = v1.train.GradientDescentOptimizer(rate).minimize(loss)
        v1.train.Saver().restore(session, str(prefix))
        session.run(update, {shown: images})
        return {each.op.name: session.run(each) for each in v1.trainable_variables()}


def probabilities(
    name: str, prefix: Path, images: NDArray[np.float32], classes: int, *, averages: bool
) -> NDArray[np.float32]:
    """The probabilities [N, classes] that the program's own evaluation computes from a checkpoint."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)  # deterministic operations demand it, although nothing is drawn
        shown = v1.placeholder(tf.float32, (None, *images.shape[1:]))
        outputs = tf.nn.softmax(NETWORKS[name](shown, classes))
        restored = tf.train.ExponentialMovingAverage(DECAY).variables_to_restore() if averages else None
        v1.train.Saver(restored).restore(session, str(prefix))
        return session.run(outputs, {shown: images})
