"""Layers of a model by the patterns that people name them with."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import keras

from perennial.errors import ConfigError


def set_trainable(model: keras.Model, patterns: Sequence[str]) -> None:
    """Lets only the layers that a pattern names be trained; all where there is none.

    The others are frozen whole: batch normalization among them uses its statistics and leaves them as they are.

    Raises:
        ConfigError: a pattern names no layer that has weights.
    """
    refuse_unknown("train.trainable", patterns, model)
    for layer in model.layers:
        layer.trainable = not patterns or _is_named(layer.name, patterns)


def refuse_unknown(
    option: str, patterns: Iterable[str], model: keras.Model, *, or_weights: bool = False
) -> None:
    """Refuses patterns that name no layer that has weights, or no such weight either where these count.

    Raises:
        ConfigError: one does; the message lists the layers.
    """
    with_weights = [layer for layer in model.layers if layer.weights]
    known = [layer.name for layer in with_weights]
    paths = [weight.path for weight in model.weights] if or_weights else []
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in (*known, *paths)):
            raise ConfigError(
                f"{option}: no layer of {model.name} with weights is named {pattern}; "
                f"there are {', '.join(known)}"
            )


def names_weight(patterns: Sequence[str], path: str) -> bool:
    """Whether a pattern names a weight (`logits/kernel`) or its layer (`logits`)."""
    return _is_named(path, patterns) or _is_named(path.partition("/")[0], patterns)


def synchronize(model: keras.Model, *, synced: bool) -> None:
    """Says whether batch normalization looks at the whole batch or at each device's part of it."""
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.synchronized = synced


def weights_matching(model: keras.Model, patterns: Sequence[str]) -> list[keras.Variable]:
    """The weights whose path (`conv1/kernel`) a pattern names, trained or not, in model order."""
    return [weight for weight in model.weights if _is_named(weight.path, patterns)]


def _is_named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
