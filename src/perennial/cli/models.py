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
# Top-1 accuracy on ImageNet's validation images, in %, of the weights that were published.
KERAS_TOP_1 = {  # https://keras.io/api/applications/; MobileNet V3: Keras' documentation of mobilenet_v3
    "vgg_16": 71.3, "vgg_19": 71.3, "inception_v3": 77.9, "inception_resnet_v2": 80.3,
    "keras_resnet_v1_50": 74.9, "keras_resnet_v1_101": 76.4, "keras_resnet_v1_152": 76.6,
    "keras_resnet_v2_50": 76.0, "keras_resnet_v2_101": 77.2, "keras_resnet_v2_152": 78.0,
    "mobilenet_v1": 70.4, "mobilenet_v2": 71.3, "mobilenet_v3_large": 75.6, "mobilenet_v3_large_075": 73.3,
    "mobilenet_v3_small": 68.1, "mobilenet_v3_small_075": 65.4, "nasnet_mobile": 74.4, "nasnet_large": 82.5,
    "efficientnet_v2_b0": 78.7, "efficientnet_v2_b1": 79.8, "efficientnet_v2_b2": 80.5,
    "efficientnet_v2_b3": 82.0, "efficientnet_v2_s": 83.9, "efficientnet_v2_m": 85.3,
    "efficientnet_v2_l": 85.7, "convnext_tiny": 81.3, "convnext_small": 82.3, "convnext_base": 85.3,
    "convnext_large": 86.3, "convnext_xlarge": 86.7,
}  # fmt: skip
SLIM_TOP_1 = {  # README.md and nets/mobilenet*.md of research/slim in github.com/tensorflow/models
    "inception_v1": 69.8, "inception_v2": 73.9, "inception_v4": 80.2, "resnet_v1_50": 75.2,
    "resnet_v1_101": 76.4, "resnet_v1_152": 76.8, "resnet_v2_50": 75.6, "resnet_v2_101": 77.0,
    "resnet_v2_152": 77.8, "pnasnet_mobile": 74.2, "pnasnet_large": 82.9, "mobilenet_v1_075": 68.4,
    "mobilenet_v1_050": 63.3, "mobilenet_v1_025": 49.8, "mobilenet_v2_140": 75.0, "mobilenet_v2_130": 74.4,
    "mobilenet_v2_075": 69.8, "mobilenet_v2_050": 65.4, "mobilenet_v2_035": 60.3,
}  # fmt: skip
TOP_1 = KERAS_TOP_1 | SLIM_TOP_1
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
    with tempfile.TemporaryDirectory() as work:
        models = import_with_tensorflow("perennial.models", Path(work))
    for name in names or ():
        if name not in models.MODELS:
            near = difflib.get_close_matches(name, models.MODELS, n=1)
            advice = f"did you mean {near[0]}?" if near else "`perennial models` lists all"
            raise ConfigError(f"there is no network {name!r}; {advice}")
    chosen = {name: models.MODELS[name] for name in names or models.MODELS}
    listed = [_facts(name, model) | (_speed(name, model) if measure else {}) for name, model in chosen.items()]
    print_json(listed) if as_json else typer.echo(_table(listed))


def _facts(name: str, model: "Architecture") -> dict[str, Any]:
    return {
        "name": name,
        "parameters": model.parameters,
        "image_size": model.image_size,
        "channels": model.channels,
        "preprocessing": model.preprocessing,
        "imagenet_top_1": TOP_1.get(name),
        "weights": pretrained.BY_NAME if name in pretrained.PRETRAINED else None,
        "laptop": name.startswith(LIGHT),
    }


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
