"""`perennial models`: the networks, their size, published accuracy, and their speed on this machine."""

import difflib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perennial.cli.runner import JsonOption, command, print_json
from perennial.config import pretrained
from perennial.config.data import ModelConfig
from perennial.errors import ConfigError
from perennial.runtime.tensorflow import import_with_tensorflow

if TYPE_CHECKING:
    from perennial.models import Architecture

app = typer.Typer()
BATCH, ROUNDS = 8, 3
# Parameters (at the published image size, 10 classes), published preprocessing, and top-1 accuracy in % of the
# published weights on ImageNet's validation images. Accuracies: https://keras.io/api/applications/, and Keras'
# documentation of mobilenet_v3; for slim's networks and the narrower and wider MobileNets V1 and V2, README.md
# and nets/mobilenet*.md of research/slim in github.com/tensorflow/models. A table, because importing TensorFlow
# takes seconds; a test compares it with the networks.
NETWORKS: dict[str, tuple[int, str, float | None]] = {
    "mnist_cnn": (3_274_634, "rescale", None), "lenet": (3_274_634, "lenet", None),
    "cifarnet": (1_756_426, "cifarnet", None), "cifar10_tutorial": (1_068_298, "cifar10_tutorial", None),
    "fast_cnn": (570_296, "shifted", None),
    "alexnet_v2": (46_247_882, "vgg", None), "overfeat": (141_648_394, "vgg", None),
    "vgg_a": (128_807_306, "vgg", None), "inception_v1": (5_617_434, "inception", 69.8),
    "inception_v2": (10_183_362, "inception", 73.9), "inception_v4": (43_788_820, "inception", 80.2),
    "resnet_v1_50": (23_581_642, "vgg", 75.2), "resnet_v1_101": (42_625_994, "vgg", 76.4),
    "resnet_v1_152": (58_315_722, "vgg", 76.8), "resnet_v1_200": (62_821_322, "vgg", None),
    "resnet_v2_50": (23_585_290, "inception", 75.6), "resnet_v2_101": (42_647_050, "inception", 77.0),
    "resnet_v2_152": (58_352_138, "inception", 77.8), "resnet_v2_200": (62_865_930, "inception", None),
    "nasnet_cifar": (5_017_076, "cifarnet", None), "pnasnet_mobile": (5_681_905, "inception", 74.2),
    "pnasnet_large": (85_783_564, "inception", 82.9), "vgg_16": (134_301_514, "vgg", 71.3),
    "vgg_19": (139_611_210, "vgg", 71.3), "inception_v3": (24_389_556, "inception", 77.9),
    "inception_resnet_v2": (56_959_348, "inception", 80.3), "keras_resnet_v1_50": (23_608_202, "vgg", 74.9),
    "keras_resnet_v1_101": (42_678_666, "vgg", 76.4), "keras_resnet_v1_152": (58_391_434, "vgg", 76.6),
    "keras_resnet_v2_50": (23_585_290, "inception", 76.0),
    "keras_resnet_v2_101": (42_647_050, "inception", 77.2),
    "keras_resnet_v2_152": (58_352_138, "inception", 78.0), "mobilenet_v1": (3_239_114, "inception", 70.4),
    "mobilenet_v1_075": (1_840_666, "inception", 68.4), "mobilenet_v1_050": (834_666, "inception", 63.3),
    "mobilenet_v1_025": (221_114, "inception", 49.8), "mobilenet_v2": (2_270_794, "inception", 71.3),
    "mobilenet_v2_140": (4_381_642, "inception", 75.0), "mobilenet_v2_130": (3_782_698, "inception", 74.4),
    "mobilenet_v2_075": (1_394_874, "inception", 69.8), "mobilenet_v2_050": (719_034, "inception", 65.4),
    "mobilenet_v2_035": (423_018, "inception", 60.3), "mobilenet_v3_large": (4_239_242, "inception", 75.6),
    "mobilenet_v3_large_075": (2_744_426, "inception", 73.3),
    "mobilenet_v3_small": (1_540_218, "inception", 68.1),
    "mobilenet_v3_small_075": (1_036_802, "inception", 65.4), "nasnet_mobile": (5_932_008, "inception", 74.4),
    "nasnet_large": (88_765_414, "inception", 82.5), "efficientnet_v2_b0": (5_932_122, "inception", 78.7),
    "efficientnet_v2_b1": (6_943_934, "inception", 79.8),
    "efficientnet_v2_b2": (8_783_464, "inception", 80.5),
    "efficientnet_v2_b3": (12_945_992, "inception", 82.0),
    "efficientnet_v2_s": (20_344_170, "inception", 83.9),
    "efficientnet_v2_m": (53_163_198, "inception", 85.3),
    "efficientnet_v2_l": (117_759_658, "inception", 85.7), "convnext_tiny": (27_827_818, "inception", 81.3),
    "convnext_small": (49_462_378, "inception", 82.3), "convnext_base": (87_576_714, "inception", 85.3),
    "convnext_large": (196_245_706, "inception", 86.3), "convnext_xlarge": (348_168_458, "inception", 86.7),
}  # fmt: skip
GREY = ("mnist_cnn", "lenet")  # one channel
LIGHT = (*pretrained.SMALL, "mobilenet_", "efficientnet_v2_b0")  # up to 0.7 billion multiply-adds an image


@command(app, "models", "List the networks: size, published accuracy, speed here.")
def _models(
    names: Annotated[list[str] | None, typer.Argument(metavar="NETWORK", help="Those to list.")] = None,
    *,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure the speed of the networks named, on this machine.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    if measure and not names:
        raise ConfigError("--measure takes seconds to minutes a network: name those to measure")
    for name in names or ():
        if name not in NETWORKS:
            near = difflib.get_close_matches(name, NETWORKS, n=1)
            advice = f"did you mean {near[0]}?" if near else "`perennial models` lists all"
            raise ConfigError(f"there is no network {name!r}; {advice}")
    listed = [_facts(name) for name in names or NETWORKS]
    if measure:
        listed = _measured(listed)
    print_json(listed) if as_json else typer.echo(_table(listed))


def _facts(name: str) -> dict[str, Any]:
    parameters, preprocessing, top_1 = NETWORKS[name]
    return {
        "name": name,
        "parameters": parameters,
        "image_size": pretrained.published_size(name),
        "channels": 1 if name in GREY else 3,
        "preprocessing": preprocessing,
        "imagenet_top_1": top_1,
        "weights": pretrained.BY_NAME if name in pretrained.PRETRAINED else None,
        "laptop": name.startswith(LIGHT),
    }


def _measured(listed: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as work:
        models = import_with_tensorflow("perennial.models", Path(work)).MODELS
    return [{**each, **_speed(each["name"], models[each["name"]])} for each in listed]


def _speed(name: str, model: "Architecture") -> dict[str, float]:
    """Images a second in prediction and in training, at the published size: median of a few batches."""
    import tensorflow as tf  # noqa: PLC0415 - takes seconds

    image = (model.image_size, model.image_size, model.channels)
    network = model.build(image, 10, ModelConfig.model_validate({"name": name}))
    images, labels = tf.random.normal((BATCH, *image)), tf.range(BATCH) % 10

    def first(outputs: Any) -> Any:
        return next(iter(outputs.values())) if isinstance(outputs, dict) else outputs

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def predict() -> Any:
        return first(network(images, training=False))

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def train() -> Any:
        with tf.GradientTape() as tape:
            logits = first(network(images, training=True))
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        for weight, gradient in zip(
            network.trainable_variables, tape.gradient(loss, network.trainable_variables), strict=True
        ):
            if gradient is not None:
                weight.assign_sub(1e-6 * gradient)
        return loss

    return {"predicted_per_s": _rate(predict), "trained_per_s": _rate(train)}


def _rate(step: Callable[[], Any]) -> float:
    step()  # traced
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        step().numpy()
        seconds.append(time.perf_counter() - start)
    return round(BATCH / statistics.median(seconds), 1)


def _table(rows: Sequence[dict[str, Any]]) -> str:
    measured = "predicted_per_s" in rows[0]
    heads = f"{'network':<24}{'parameters':>12} {'image':>11} {'ImageNet':>9}  {'preprocessing':<17}weights"
    lines = [heads + ("   predict/s   train/s" if measured else "")]
    for row in rows:
        size = "{image_size}x{image_size}x{channels}".format(**row)
        top = "" if row["imagenet_top_1"] is None else f"{row['imagenet_top_1']:.1f} %"
        line = f"{row['name']:<24}{row['parameters']:>12,} {size:>11} {top:>9}  {row['preprocessing']:<17}"
        line += f"{row['weights'] or '':<9}" + ("suits a laptop" if row["laptop"] and not measured else "")
        speed = f"{row['predicted_per_s']:>10,} {row['trained_per_s']:>9,}" if measured else ""
        lines.append((line + speed).rstrip())
    return "\n".join(lines)
