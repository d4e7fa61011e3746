"""`perennial models`: the networks, their size, published accuracy, and their speed on this machine."""

import difflib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from perennial.base.config import pretrained
from perennial.base.config.data import ModelConfig
from perennial.base.config.networks import NETWORKS, network_name
from perennial.base.errors import ConfigError
from perennial.base.runtime.tensorflow import import_with_tensorflow
from perennial.cli.runner import JsonOption, command, output

app = typer.Typer()
BATCH, ROUNDS = 8, 3
LIGHT = (*pretrained.SMALL, "mobilenet_", "efficientnet_v2_b0")  # up to 0.7 billion multiply-adds an image


@command(app, "models", "List the networks: size, published accuracy, speed here.")
def _models(
    names: Annotated[list[str] | None, typer.Argument(metavar="NETWORK", help="Networks to list.")] = None,
    *,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure the speed of the networks named, on this machine.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    if measure and not names:
        raise ConfigError("--measure takes seconds to minutes a network: name those to measure")
    names = [network_name(name) for name in names or ()]
    for name in names:
        if name not in NETWORKS:
            near = difflib.get_close_matches(name, NETWORKS, n=1)
            advice = f"did you mean {near[0]}?" if near else "`perennial models` lists all"
            raise ConfigError(f"there is no network {name!r}; {advice}")
    listed = [_facts(name) for name in names or NETWORKS]
    if measure:
        listed = _measured(listed)
    output(listed, _table(listed), as_json=as_json)


def _facts(name: str) -> dict[str, Any]:
    network = NETWORKS[name]
    return {
        "name": name,
        "parameters": network.parameters,
        "image_size": network.image_size,
        "channels": network.channels,
        "preprocessing": network.preprocessing,
        "imagenet_top_1": network.top_1,
        "weights": pretrained.BY_NAME if name in pretrained.PRETRAINED else None,
        "laptop": name.startswith(LIGHT),
    }


def _measured(listed: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as work:
        models = import_with_tensorflow("perennial.model.models", Path(work))
    return [{**each, **_speed(each["name"], models)} for each in listed]


def _speed(name: str, models: Any) -> dict[str, float]:
    """Measure images per second in prediction and training at the published size: median of a few batches."""
    import tensorflow as tf  # noqa: PLC0415 - takes seconds

    side, channels = NETWORKS[name].image_size, NETWORKS[name].channels
    image = (side, side, channels)
    network = models.MODELS[name].build(image, 10, ModelConfig.model_validate({"name": name}))
    images, labels = tf.random.normal((BATCH, *image)), tf.range(BATCH) % 10

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def predict() -> Any:
        return models.logits(network(images, training=False))

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def train() -> Any:
        with tf.GradientTape() as tape:
            logits = models.logits(network(images, training=True))
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
