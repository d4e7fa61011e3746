"""The gradients of one step of a network with batch normalization, in float64, on so many parts of the CPU.

`python -m support.float64_gradients 2 synced` writes them to 2-synced.npz, by the path of the weight.
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from perennial.base.config.training import TrainConfig
from perennial.model.training import optimizers

EXAMPLES, SIDE, CLASSES = 6, 8, 3


def network() -> keras.Model:
    """Two normalized convolutions, as in a MobileNet."""
    keras.utils.set_random_seed(0)
    images = keras.Input((SIDE, SIDE, 3), name="image")
    x = layers.Conv2D(4, 3, strides=2, use_bias=False, name="conv")(images)
    x = layers.ReLU(6.0, name="relu1")(layers.BatchNormalization(name="norm1")(x))
    x = layers.DepthwiseConv2D(3, padding="same", use_bias=False, name="depthwise")(x)
    x = layers.ReLU(6.0, name="relu2")(layers.BatchNormalization(name="norm2")(x))
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(images, layers.Dense(CLASSES, name="logits")(x))


def write(count: int, batch_norm: str) -> None:
    """Take one step of gradient descent with a learning rate of 1, and write what it took from the weights."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    strategy = tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(count)])
    keras.config.set_dtype_policy("float64")
    random = np.random.default_rng(0)
    images, labels = random.normal(size=(EXAMPLES, SIDE, SIDE, 3)), random.integers(0, CLASSES, EXAMPLES)
    with strategy.scope():
        model = network()
        for name in ("norm1", "norm2"):
            model.get_layer(name).synchronized = batch_norm == "synced"
        optimizer = optimizers.build(TrainConfig(optimizer="sgd"), 1.0)
        optimizer.build(model.trainable_variables)

    def step(images: tf.Tensor, labels: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)) / EXAMPLES
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizers.apply(optimizer, gradients, model.trainable_variables, clip_norm=None)

    def part(array: np.ndarray) -> object:
        parts = [tf.constant(each) for each in np.split(array, count)]
        return strategy.experimental_distribute_values_from_function(
            lambda context: parts[context.replica_id_in_sync_group]
        )

    before = {weight.path: weight.numpy() for weight in model.trainable_variables}
    tf.function(lambda: strategy.run(step, args=(part(images), part(labels))), autograph=False)()
    after = {weight.path: weight.numpy() for weight in model.trainable_variables}
    np.savez(f"{count}-{batch_norm}.npz", **{path: values - after[path] for path, values in before.items()})


if __name__ == "__main__":
    write(int(sys.argv[1]), sys.argv[2])
