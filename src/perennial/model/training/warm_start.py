"""Start weights of a training: random, pretrained on ImageNet, or from another training; layers by pattern."""

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from perennial.base import files
from perennial.base.config import Config
from perennial.base.config.training import WarmStartConfig
from perennial.base.errors import ConfigError, DataError, listed
from perennial.data.sources.weights import (
    IMAGENET,
    KINDS,
    SLIM_CHECKPOINT,
    WARM_START,
    by_name,
    linked_weights,
    located,
)
from perennial.model import export_layout
from perennial.model.models import imagenet_weights, model_folder, original_checkpoint
from perennial.model.models.architecture import AUX_LOGITS
from perennial.model.models.model_folder import Description, Pretrained
from perennial.model.training import checkpoints
from perennial.model.training.snapshot import Snapshot

log = logging.getLogger(__name__)
Weights = Mapping[str, NDArray[np.generic]]
GROUPS = ("weights", "averages")  # that are read from our checkpoints
_shown = partial(listed, most=5)  # names in a message


class Source(NamedTuple):
    """Another training: its weights and their moving averages by path, and its model if it describes it."""

    weights: Weights
    averages: Weights
    model: Description | None


@dataclass(frozen=True, kw_only=True)
class StartWeights:
    """Start weights that are not random; weights from another training override those from ImageNet."""

    imagenet: Path | None  # file
    weights: Weights | None  # from another training, by path such as conv1/kernel
    sha256: str | None  # of all weights that are used; None if there are none
    averages: Set[str] = frozenset()  # of which weights the other training has moving averages
    original: bool = False  # whether the weights have the names of a replaced program
    pretrained: Pretrained | None = None  # origin of the ImageNet weights
    source: Description | None = None  # of the other training's model; None: its files do not describe it


def read(config: Config, *, pinned: bool = True) -> StartWeights:
    """Read the weights that `model.weights` and `train.warm_start.path` name.

    `train.warm_start.path` is a model folder, an export, a checkpoint, or a run folder, whose newest valid
    checkpoint is read. From a checkpoint come the weights of its last step, or their moving averages, as
    `train.warm_start.averages` has it; never the best ones.

    `pinned`: read the copies that pins/weights.json pins, instead of the paths.
    """
    digest, weights, pretrained, original, source = hashlib.sha256(), None, None, False, None
    averages: Weights = {}
    with nullcontext(located(config)) if pinned else linked_weights(config) as found:
        if file := found.get(IMAGENET):
            digest.update(files.sha256(file).encode())
            pretrained = _origin(config, file)
        if folder := found.get(WARM_START):
            original = any(each.name.startswith(SLIM_CHECKPOINT) for each in folder.iterdir())
            if original:
                weights, averages = original_checkpoint.read(folder / SLIM_CHECKPOINT)
            else:
                weights, averages, source = _weights(folder, config)
            if config.train.warm_start.averages != "weights":
                weights = {**weights, **averages}
            for path, values in sorted(weights.items()):
                digest.update(path.encode() + np.ascontiguousarray(values).tobytes())
    given = file is not None or weights is not None
    sha256 = digest.hexdigest() if given else None
    return StartWeights(
        imagenet=file, weights=weights, sha256=sha256, pretrained=pretrained, original=original,
        averages=averages.keys(), source=source,
    )  # fmt: skip


def _origin(config: Config, file: Path) -> Pretrained:
    """The origin of ImageNet weights: an address only if the file has the digest that is published for it."""
    found, sha256 = by_name(config), files.sha256(file)
    if found is None:
        return Pretrained(source="a file", sha256=sha256, licence=None)
    verified = found.digest is not None
    source = found.url if verified else found.name
    return Pretrained(source=source, sha256=sha256, licence=found.licence, verified=verified)


def refuse_other_classes(start: StartWeights, model: Description) -> None:
    """Raise if start weights that nothing trains are of other classes; log a preprocessing that differs."""
    if (source := start.source) is None:
        return
    for number, (theirs, ours) in enumerate(zip_longest(source.classes, model.classes)):
        if theirs != ours:
            raise ConfigError(
                f"train.max_steps is 0, but the start weights are of other classes: output {number} is "
                f"{theirs or 'none'} there and {ours or 'none'} in the data; take data with the classes "
                f"{_shown(source.classes)}, or train at least one step"
            )
    if source.task != model.task:
        raise ConfigError(
            f"train.max_steps is 0, but the start weights are {source.task}, the data {model.task}; train at "
            "least one step"
        )
    theirs, ours = _pixels(source), _pixels(model)
    if theirs != ours:
        log.warning("the start weights are of a model with %s; here it is %s", theirs, ours)


def _pixels(model: Description) -> str:
    sides = "x".join(map(str, model.pixels.model_shape))
    return f"preprocessing {model.pixels.preprocessing} to {sides} (resize {model.pixels.resize})"


def begin(model: keras.Model, start: StartWeights, config: WarmStartConfig, *, complete: bool = False) -> None:
    """Assign start weights to a model with random weights; log which weights were set and which stay random.

    `complete`: no layer may stay random, except for auxiliary classifiers, which exports leave out.
    """
    if start.imagenet is not None:
        imagenet_weights.load(model, start.imagenet)
    if start.weights is None:
        return
    given, averaged = start.weights, start.averages
    if start.original:
        given = original_checkpoint.by_path(model, start.weights)
        averaged = {path for path, name in original_checkpoint.variables(model).items() if name in averaged}
    refuse_unknown("train.warm_start.exclude", config.exclude, model, or_weights=True)
    of = layers_of_weights(model)
    expected = [weight for weight in model.weights if not names_weight(config.exclude, weight.path, of)]
    if complete:
        expected = [each for each in expected if each.path in given or not each.path.startswith(AUX_LOGITS)]
    found = [weight for weight in expected if weight.path in given]
    _refuse_misfits(expected, found, given, config, _layers(sorted(start.weights), of), of, complete=complete)
    taken = {weight.path for weight in found}
    random = _layers((weight.path for weight in model.weights if weight.path not in taken), of)
    if complete and (left := [name for name in random if not name.startswith(AUX_LOGITS)]):
        raise ConfigError(
            f"train.max_steps is 0, but {_shown(left)} would stay random: train.warm_start leaves them out; "
            "set exclude: [] and ignore_missing: false, or train at least one step"
        )
    averages = _averages([weight.path for weight in found if weight.trainable], averaged & taken, config)
    for weight in found:
        weight.assign(given[weight.path])
    log.info(
        "warm start: took %d weights from %s%s; other layers: %s",
        len(found), config.path, averages, _shown(random) or "none",
    )  # fmt: skip


def _averages(trained: Sequence[str], averaged: Set[str], config: WarmStartConfig) -> str:
    """Say which weights are moving averages; ConfigError: some that `averages` demands are missing."""
    lacking = [path for path in trained if path not in averaged]
    if config.averages == "averages" and lacking:
        raise ConfigError(
            f"train.warm_start.averages is averages, but {config.path} has none of {_shown(lacking)}; auto "
            "takes these weights themselves"
        )
    if not averaged or config.averages == "weights":
        return ""
    without = f"; without an average: {_shown(lacking)}" if lacking else ""
    return f" ({len(averaged)} of them moving averages{without})"


def _weights(folder: Path, config: Config) -> Source:
    """Read all weights in a folder of any kind but a checkpoint of TensorFlow 1."""
    names = {path.name for path in folder.iterdir()}
    try:
        # Any file of a kind identifies it, so that a folder with a missing file is not taken for another kind.
        if names & {export_layout.GRAPH, export_layout.DESCRIPTION.parts[0], "variables"}:
            return _of_model(folder, folder / export_layout.DESCRIPTION, model_folder.load_export)
        if any(name == model_folder.FILE or name.startswith(f"{model_folder.WEIGHTS}.") for name in names):
            return _of_model(folder, folder / model_folder.FILE, model_folder.load)
        if checkpoints.FILE in names:
            return _of_checkpoint(checkpoints.read(folder, *GROUPS))
        newest = checkpoints.newest(folder, *GROUPS)
    except DataError as error:
        raise DataError(f"train.warm_start.path: {error}") from error
    if newest is None:
        raise ConfigError(f"train.warm_start.path: {config.train.warm_start.path} holds no weights; {KINDS}")
    return _of_checkpoint(newest)


def _of_checkpoint(checkpoint: Snapshot) -> Source:
    weights, averages = map(checkpoint.group, GROUPS)
    known = {path: values for path, values in averages.items() if path in weights}
    try:
        return Source(weights, known, Description.model_validate(checkpoint.facts.get("model")))
    except ValidationError:  # of another version of the program
        return Source(weights, known, None)


def _of_model(folder: Path, file: Path, load: Callable[[Path], tuple[keras.Model, Description]]) -> Source:
    if not file.is_file():
        raise DataError(f"{folder} is damaged, or not of this program: it has no {file.relative_to(folder)}")
    model, description = load(folder)
    return Source({weight.path: weight.numpy() for weight in model.weights}, {}, description)


def _refuse_misfits(
    expected: Sequence[keras.Variable],
    found: Sequence[keras.Variable],
    weights: Weights,
    config: WarmStartConfig,
    layers: Sequence[str],
    of: Mapping[str, str],
    *,
    complete: bool,
) -> None:
    untrained = "train.max_steps 0 needs all: check the classes, preprocessing.image_size and grayscale"
    if not expected:
        raise ConfigError(f"train.warm_start.exclude {config.exclude} leaves no weight of {config.path}")
    if not found:
        raise ConfigError(
            f"train.warm_start: {config.path} has none of this model's weights; it has the layers "
            f"{_shown(layers) or 'none'}, expected {_shown(_layers((each.path for each in expected), of))}"
        )
    if (missing := [each.path for each in expected if each.path not in weights]) and not config.ignore_missing:
        new = (
            "to start them new set train.warm_start.ignore_missing: true, or add "
            f"{_layers(missing, of)} to train.warm_start.exclude"
        )
        raise ConfigError(
            f"train.warm_start: {config.path} lacks {_shown(missing)}; {untrained if complete else new}"
        )
    if other := [each for each in found if tuple(each.shape) != weights[each.path].shape]:
        shapes = [f"{each.path} {list(weights[each.path].shape)} for {list(each.shape)}" for each in other]
        new = f"to start them new add {_layers((each.path for each in other), of)} to train.warm_start.exclude"
        raise ConfigError(
            f"train.warm_start: {config.path} has weights of another shape: {_shown(shapes)}; "
            f"{untrained if complete else new}"
        )
    if bad := [
        each.path for each in found if not np.isfinite(np.asarray(weights[each.path], np.float32)).all()
    ]:
        raise DataError(f"train.warm_start: {config.path} holds NaN or infinity in {_shown(bad)}")


def _layers(paths: Iterable[str], of: Mapping[str, str]) -> list[str]:
    """The layers of the weights, in order and without repetition."""
    return list(dict.fromkeys(of.get(path, path.partition("/")[0]) for path in paths))


def set_trainable(model: keras.Model, patterns: Sequence[str]) -> None:
    """Make only the layers that match a pattern trainable; all layers if there is no pattern.

    The other layers are frozen; batch normalization among them uses its statistics and does not update them.
    """
    refuse_unknown("train.trainable", patterns, model)
    for layer in model.layers:
        layer.trainable = not patterns or _is_named(layer.name, patterns)


def refuse_unknown(
    option: str, patterns: Iterable[str], model: keras.Model, *, or_weights: bool = False
) -> None:
    """Raise if a pattern matches no layer with weights nor, with `or_weights`, the path of a weight."""
    with_weights = [layer for layer in model.layers if layer.weights]
    known = [layer.name for layer in with_weights]
    paths = [weight.path for weight in model.weights] if or_weights else []
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in (*known, *paths)):
            raise ConfigError(
                f"{option}: no layer of {model.name} with weights is named {pattern}; "
                f"there are {', '.join(known)}"
            )


def layers_of_weights(model: keras.Model) -> dict[str, str]:
    """The layer of each weight by its path, which in a sequential model begins with the name of the model."""
    return {weight.path: layer.name for layer in model.layers for weight in layer.weights}


def names_weight(patterns: Sequence[str], path: str, of: Mapping[str, str]) -> bool:
    """Whether a pattern matches a weight (`logits/kernel`) or its layer (`logits`); `of`: layers by paths."""
    return _is_named(path, patterns) or _is_named(of[path], patterns)


def weights_matching(model: keras.Model, patterns: Sequence[str]) -> list[keras.Variable]:
    """The weights whose path (`conv1/kernel`) matches a pattern, trained or not, in model order."""
    return [weight for weight in model.weights if _is_named(weight.path, patterns)]


def _is_named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
