"""Initial weights of a training: pinned by digest, copied into an output, and read from there.

`model.weights` and `train.warm_start.path` can name files that git and DVC do not track. pins/weights.json
records their content when a run started; the initialize stage copies exactly that, and DVC stores the copy.
"""

import hashlib
import json
import logging
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from glob import escape
from pathlib import Path

from perennial.base import files
from perennial.base.config import Config
from perennial.base.config.networks import BY_NAME, PublishedWeights, published
from perennial.base.errors import ConfigError, DataError, PerennialError, listed
from perennial.base.project.pins import PinnedTeacher, PinnedWeights, WeightsPin
from perennial.data.downloads.spec import recorded_digests

log = logging.getLogger(__name__)
IMAGENET, WARM_START = "model.weights", "train.warm_start.path"
SUBFOLDERS = {IMAGENET: "imagenet", WARM_START: "warm_start"}  # in data/initial_weights
TEACHER = "teacher"  # beside them, an export
INITIALIZE = (
    "`perennial pin weights` and then `perennial initialize` take over the new ones; `perennial run` does "
    "both, and `perennial train --set OPTION=PATH` needs neither"
)
CHECKPOINT = re.compile(r"step-(\d{9,})(?:-(\d+))?")
SLIM_CHECKPOINT = "slim.ckpt"  # name of the copy of a checkpoint of TensorFlow 1
PART = re.compile(r"\.(index|meta|data-\d+-of-\d+)$")  # end of the names of its files
ORIGINAL = re.compile(r"\.ckpt|-\d+\.index$")  # in their names: model.ckpt-7.index, model-7.index, vgg_16.ckpt
STATE = "checkpoint"  # file that names the newest one in a folder
NOT_READ = {
    r"\.(tar|tgz|zip)(\.|$)|\.tar\.": "an archive; unpack it, and set the checkpoint in it (....ckpt)",
    r"\.(h5|hdf5|keras)$": "a file of Keras; set it as model.weights, for a network of Keras Applications",
    r"\.(pb|pbtxt|tflite|onnx)$": "a graph for inference; set the checkpoint that it was made from (....ckpt)",
}
CHECKPOINTS = 2  # copied from the folder of a training: the newest, and one as a fallback
DOWNLOADS = Path("downloads", "weights")  # of published weights, in paths.work
PIN_AGAIN = "`perennial pin weights` accepts the current content"


def options(config: Config) -> dict[str, str | None]:
    """Return the paths by option name."""
    return {IMAGENET: config.model.weights, WARM_START: config.train.warm_start.path}


def pin(config: Config, teacher: PinnedTeacher | None = None) -> WeightsPin:
    """Write the digests of weights and the teacher to pins/weights.json; a path that is gone keeps its pin."""
    old = WeightsPin.read()
    found: dict[str, PinnedWeights | None] = {}
    for option, path in options(config).items():
        subfolder = SUBFOLDERS[option]
        kept: PinnedWeights | None = getattr(old, subfolder)
        if path is None:
            found[subfolder] = None
        elif option == IMAGENET and (file := by_name(config)):
            found[subfolder] = PinnedWeights(path=path, file=str(file.file))
        elif not _exists(Path(path)) and kept is not None and kept.path == path:
            found[subfolder] = kept
        else:
            contents = _contents(option, Path(path))
            size = sum(file.stat().st_size for file in contents.values())
            found[subfolder] = PinnedWeights(path=path, bytes=size, sha256=_digest(contents))
    made = WeightsPin(**found, teacher=teacher)
    made.write()
    return made


def by_name(config: Config) -> PublishedWeights | None:
    """Return the published weights that `model.weights` names; None if it is null or names a file."""
    if config.model.weights != BY_NAME:
        return None
    return published(config.model.name, config.preprocessing.image_size)


def copy(config: Config, folder: Path, fetched: Path | None) -> None:
    """Copy the weights that pins/weights.json pins into a folder; `fetched`: the file of published ones."""
    for option, pinned in _pinned(config).items():
        path, target = Path(pinned.path), folder / SUBFOLDERS[option]
        if pinned.file and fetched:
            files.copy(fetched, target / _name(fetched))
            log.info("%s: copied %d bytes from %s", option, fetched.stat().st_size, fetched)
            continue
        if not _exists(path):
            raise DataError(
                f"{option}: {path} does not exist; put the weights that {WeightsPin.FILE} pins there (sha256 "
                f"{pinned.sha256}), or restore their copy with `dvc pull {config.paths.initial_weights}`"
            )
        for name, file in _contents(option, path).items():
            files.copy(file, target / name)
        if (found := _digest(_copied(target))) != pinned.sha256:
            raise PerennialError(
                f"{option}: {path} has sha256 {found}, expected {pinned.sha256} of {WeightsPin.FILE}: "
                f"it was replaced; {PIN_AGAIN}"
            )
        log.info("%s: copied %d bytes from %s", option, pinned.bytes, path)


def located(config: Config) -> Mapping[str, Path]:
    """Return the verified copies of the options that are set: a file of ImageNet weights, or a folder."""
    found = {}
    for option, pinned in _pinned(config).items():
        target = config.paths.initial_weights / SUBFOLDERS[option]
        contents = _copied(target)
        if not contents or (pinned.file is None and _digest(contents) != pinned.sha256):
            raise DataError(
                f"{option}: {target} is not the copy of {pinned.path} that {WeightsPin.FILE} pins; "
                "`perennial initialize` creates it; `perennial run` and `dvc repro` do so by themselves"
            )
        found[option] = file = next(iter(contents.values())) if option == IMAGENET else target
        spec = by_name(config) if pinned.file is not None else None
        recorded = recorded_digests(config.paths.digests).get(spec.url) if spec else None
        if recorded is not None and (actual := files.sha256(file)) != recorded:
            raise DataError(
                f"{option}: {file} has sha256 {actual}, expected {recorded} of {config.paths.digests}; "
                "`dvc repro --force initialize` fetches the recorded file again"
            )
    return found


def pinned_teacher(config: Config) -> PinnedTeacher | None:
    """The pin of the version that `train.teacher` names; None if it names none, or there was no champion."""
    pinned = WeightsPin.read().teacher
    if (pinned and pinned.path) != config.train.teacher:
        raise ConfigError(
            f"train.teacher is {json.dumps(config.train.teacher)}, but {WeightsPin.FILE} pins "
            f"{json.dumps(pinned and pinned.path)}; `perennial pin weights` and then `perennial initialize` "
            "take over the new one; `perennial run` does both"
        )
    return pinned if pinned and pinned.commit else None


def teacher(config: Config) -> tuple[str | None, Path, str] | None:
    """The version of the teacher, the copy of its export, and its SHA-256; None without a teacher."""
    if (pinned := pinned_teacher(config)) is None:
        return None
    folder = config.paths.initial_weights / TEACHER
    if not (contents := _copied(folder)):
        raise DataError(
            f"{folder} is not the copy of {pinned.version} that {WeightsPin.FILE} pins as train.teacher; "
            "`perennial initialize` creates it; `perennial run` and `dvc repro` do so by themselves"
        )
    return pinned.version, folder, _digest(contents)


def is_pinned(config: Config) -> bool:
    """Whether pins/weights.json pins what the options name."""
    try:
        _pinned(config)
    except ConfigError:
        return False
    return True


@contextmanager
def linked_weights(config: Config) -> Iterator[Mapping[str, Path]]:
    """Links to the weights that the options name, without pins and copies, in the form of `located`."""
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for option, path in options(config).items():
            if path is None:
                continue
            published, target = option == IMAGENET and by_name(config), Path(folder) / SUBFOLDERS[option]
            source = config.paths.work / DOWNLOADS / published.file if published else Path(path)
            if option == IMAGENET:
                found[option], *_ = _contents(option, source).values()
                continue
            for name, file in _contents(option, source).items():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                (target / name).symlink_to(file.absolute())
            found[option] = target
        yield found


def _pinned(config: Config) -> dict[str, PinnedWeights]:
    """Return the pins of the options that are set."""
    pinned, found = WeightsPin.read(), {}
    for option, path in options(config).items():
        each: PinnedWeights | None = getattr(pinned, SUBFOLDERS[option])
        if (each and each.path) != path:
            raise ConfigError(
                f"{option} is {json.dumps(path)}, but {WeightsPin.FILE} pins {json.dumps(each and each.path)}; "
                f"{INITIALIZE}"
            )
        file = by_name(config) if option == IMAGENET else None
        if each and each.file != (file and str(file.file)):
            raise ConfigError(
                f"{option}: {path} is {file and file.file} for model.name {config.model.name}, but "
                f"{WeightsPin.FILE} pins {each.file}; {INITIALIZE}"
            )
        if each is not None:
            found[option] = each
    return found


def _contents(option: str, path: Path) -> dict[str, Path]:
    """Return the files to copy, by their names in the copy, which do not depend on the path."""
    if option == IMAGENET:
        if not path.is_file():
            raise ConfigError(f"{option}: {path} does not exist; set a file, or imagenet for published weights")
        return {_name(path): path}
    if not path.is_dir():
        return _original(path)
    if CHECKPOINT.fullmatch(path.resolve().name):
        return {f"{path.resolve().name}/{name}": file for name, file in _under(path)}
    if checkpoints := sorted(filter(_order, path.iterdir()), key=_order)[-CHECKPOINTS:]:
        return {f"{each.name}/{name}": file for each in checkpoints for name, file in _under(each)}
    if prefix := _newest_original(path):
        log.info("%s: %s means its checkpoint %s", option, path, prefix.name)
        return _original(prefix)
    if not (contents := dict(_under(path))):
        raise ConfigError(f"{option}: {path} holds no weights; {KINDS}")
    return contents


def _original(path: Path) -> dict[str, Path]:
    """Return the files of a TensorFlow 1 checkpoint with this path or prefix."""
    prefix = path.with_name(PART.sub("", path.name))
    index, parts = prefix.with_name(f"{prefix.name}.index"), prefix.parent.glob(f"{escape(prefix.name)}.data-*")
    if index.is_file():
        return {f"{SLIM_CHECKPOINT}{it.name.removeprefix(prefix.name)}": it for it in (index, *sorted(parts))}
    for ending, remedy in NOT_READ.items():
        if path.is_file() and re.search(ending, path.name):
            raise ConfigError(f"{WARM_START}: {path} is {remedy}")
    if path.is_file() and prefix != path:
        raise ConfigError(f"{WARM_START}: {path} is a part of a checkpoint that lacks {index.name} beside it")
    if path.is_file() and ".ckpt" in path.name:
        return {SLIM_CHECKPOINT: path}
    if match := re.match(r"(\w{2,}):/", str(path)):
        raise ConfigError(f"{WARM_START}: {match[1]} addresses are not read; download it, and set its path")
    what = "is neither a folder nor a checkpoint of TensorFlow 1" if path.exists() else "does not exist"
    there = _originals(path.parent)
    beside = f"{path.parent} has {listed(there, 5)}" if there else KINDS
    raise ConfigError(f"{WARM_START}: {path} {what}; {beside}")


def _newest_original(folder: Path) -> Path | None:
    """Return the prefix of the checkpoint that a folder of TensorFlow 1 calls the newest, or has alone."""
    found = _originals(folder)
    state = folder / STATE
    if not found or not state.is_file():
        if len(found) > 1:
            raise ConfigError(f"{WARM_START}: {folder} has several checkpoints; name one: {listed(found, 5)}")
        return folder / found[0] if found else None
    named = re.search(r'^model_checkpoint_path: "(.*)"', state.read_text(encoding="utf-8"), re.MULTILINE)
    newest = re.split(r"[\\/]", named[1])[-1] if named else ""  # the folder may come from another machine
    if newest not in found:
        raise ConfigError(
            f"{WARM_START}: {state} names {newest or 'no checkpoint'}, which {folder} has not; name one: "
            f"{listed(found, 5)}"
        )
    return folder / newest


def _originals(folder: Path) -> list[str]:
    """Return the prefixes of the checkpoints of TensorFlow 1 in a folder."""
    names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    prefixes = {PART.sub("", name) for name in names if ORIGINAL.search(name)}
    return sorted(each for each in prefixes if _exists(folder / each))


def _exists(path: Path) -> bool:
    return path.exists() or path.with_name(f"{path.name}.index").exists()


def _name(path: Path) -> str:
    """Return the name of the copy; Keras derives the format from the end of the name."""
    return f"weights{'.weights' * path.name.endswith('.weights.h5')}{path.suffix}"


KINDS = (
    "set a model folder (models/weights), an export (models/export), a folder of checkpoints (train/... in "
    "paths.work), one of them (step-...) or a checkpoint of TensorFlow 1 (....ckpt, or its folder)"
)


def _order(checkpoint: Path) -> tuple[int, ...]:
    """Return the sort key of a checkpoint, oldest first; empty for other paths."""
    named = CHECKPOINT.fullmatch(checkpoint.name)
    return tuple(int(number or 0) for number in named.groups()) if named else ()


def _under(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the relative names and paths of all files below a folder, except the stage's marker."""
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.name != files.MARK:
            yield file.relative_to(folder).as_posix(), file


def _copied(target: Path) -> dict[str, Path]:
    return dict(_under(target)) if target.is_dir() else {}


def _digest(contents: Mapping[str, Path]) -> str:
    """Return the SHA-256 of the names and contents of files."""
    lines = [f"{files.sha256(file)}  {name}\n" for name, file in sorted(contents.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
