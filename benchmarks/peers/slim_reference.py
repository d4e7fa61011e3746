"""What slim's own networks are and compute, as JSON: `python benchmarks/peers/slim_reference.py > slim.json`.

The file belongs into tests/model/models/data. This runs in an environment of its own with tensorflow, tf-slim
and tf-keras, and without perennial: requirements/reference.txt. Weights and images come from slim_values.py, so
that no weights need to be stored. Names of networks as arguments restrict it to these.
"""

import hashlib
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import tensorflow as tf

sys.path.insert(0, str(Path(__file__).parent))
# tf-slim asks TensorFlow for layers that tf-keras has moved.
for module in ("", ".base", ".convolutional", ".core", ".normalization", ".pooling"):
    moved = importlib.import_module(f"tf_keras.src.legacy_tf_layers{module}")
    sys.modules[f"tf_keras.legacy_tf_layers{module}"] = moved

import slim_values  # noqa: E402
import tf_slim as slim  # noqa: E402
from tf_slim.nets import alexnet, inception, overfeat, resnet_v1, resnet_v2, vgg  # noqa: E402

v1 = tf.compat.v1
DEPTHS = (50, 101, 152, 200)
NETWORKS = {
    "alexnet_v2": (alexnet.alexnet_v2, alexnet.alexnet_v2_arg_scope, 224),
    "overfeat": (overfeat.overfeat, overfeat.overfeat_arg_scope, 231),
    **{name: (getattr(vgg, name), vgg.vgg_arg_scope, 224) for name in ("vgg_a", "vgg_16", "vgg_19")},
    "inception_v1": (inception.inception_v1, inception.inception_v1_arg_scope, 224),
    "inception_v2": (inception.inception_v2, inception.inception_v2_arg_scope, 224),
    "inception_v3": (inception.inception_v3, inception.inception_v3_arg_scope, 299),
    **{
        f"resnet_{version}_{depth}": (
            getattr(module, f"resnet_{version}_{depth}"),
            module.resnet_arg_scope,
            224,
        )
        for version, module in (("v1", resnet_v1), ("v2", resnet_v2))
        for depth in DEPTHS
    },
}
# Other sizes that slim's network takes without its arguments for them: odd and even grids.
MORE_SIZES = {"inception_v2": (96,), "resnet_v1_50": (64, 75), "resnet_v2_50": (64, 75)}


def digest(names: list[str]) -> str:
    """SHA-256 of names in alphabetical order, one a line."""
    return hashlib.sha256("".join(f"{name}\n" for name in sorted(names)).encode()).hexdigest()


def build(name: str, size: int, classes: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Images and logits of a network in evaluation, in the current graph."""
    network, scope, _ = NETWORKS[name]
    images = v1.placeholder(tf.float32, (2, size, size, 3))
    with slim.arg_scope(scope()):
        logits, _ = network(images, classes, is_training=False)
    return images, logits


def count(name: str, classes: int) -> int:
    """The weights of a network, batch statistics included."""
    with tf.Graph().as_default():
        build(name, NETWORKS[name][2], classes)
        return sum(each.shape.num_elements() for each in v1.global_variables())


def regularized(graph: tf.Graph) -> list[str]:
    """The names of the variables that have L2: each loss is named after its variable's scope."""
    variables = {each.op.name for each in v1.global_variables()}
    found = []
    for loss in v1.get_collection(v1.GraphKeys.REGULARIZATION_LOSSES):
        reached, left = set(), [loss.op]
        while left:
            operation = left.pop()
            if operation.name in variables:
                reached.add(operation.name)
            else:
                left += [each.op for each in operation.inputs]
        found += sorted(reached)
    return found


def computed(name: str, size: int) -> dict[str, Any]:
    """Logits [2, 10] at a size."""
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        images, logits = build(name, size, 10)
        values = {
            variable.initializer.inputs[1]: slim_values.weight(
                variable.op.name, tuple(variable.shape.as_list())
            )
            for variable in v1.global_variables()
        }
        session.run(v1.global_variables_initializer(), values)
        values = session.run(logits, {images: slim_values.images(size)}).reshape(2, 10)
        logits = [[float(f"{each:.7g}") for each in row] for row in values]
        return {"size": size, "logits": logits}


def described(name: str) -> dict[str, Any]:
    """All that is compared of a network."""
    size = NETWORKS[name][2]
    with tf.Graph().as_default() as graph:
        build(name, size, 10)
        names = [each.op.name for each in v1.global_variables()]
        found = {
            "weights": {str(classes): count(name, classes) for classes in (10, 1001)},
            "variables": digest(names),
            "trainable": digest([each.op.name for each in v1.trainable_variables()]),
            "regularized": digest(regularized(graph)),
        }
    return found | {"computed": [computed(name, each) for each in (size, *MORE_SIZES.get(name, ()))]}


if __name__ == "__main__":
    v1.disable_eager_execution()
    for number, each in enumerate(names := sys.argv[1:] or list(NETWORKS)):  # a line for each network
        start, end = "{" * (number == 0), "}" if each == names[-1] else ","
        print(f"{start}{json.dumps(each)}: {json.dumps(described(each))}{end}", flush=True)
