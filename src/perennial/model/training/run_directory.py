"""The run folder: one training's checkpoints, found by its fingerprint.

The fingerprint covers everything that determines the weights: parameters, data, code, packages and start
weights. A training resumes only from checkpoints with the same fingerprint, in `<paths.work>/train/<SHA-256>/`.
"""

import hashlib
import json
import logging
import platform
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from perennial.base import documents, files
from perennial.base.config import Config
from perennial.base.errors import DataError, listed
from perennial.base.layout import Project
from perennial.base.project import code_digests, own_components, source_code
from perennial.model.training import checkpoints
from perennial.model.training.training_history import FINGERPRINT, FINISHED, FOLDER

log = logging.getLogger(__name__)
ROUNDING = ("devices", "all_reduce", "intra_op_threads", "inter_op_threads")  # change results by rounding
# Options for where the work runs and what is cached, which the fingerprint leaves out.
NEUTRAL: dict[str, Any] = dict.fromkeys((*ROUNDING, "cache"), True) | {
    "warm_start": {"path"},  # the digest of the start weights counts, not their location
    "teacher": True,  # as well
}
PACKAGES = ("tensorflow", "keras")
REPORTED = (*PACKAGES, "numpy")  # versions that are recorded
STAGE = "train"
SHOWN = 5  # differences listed in a message
Parts = Mapping[str, Any]
T = TypeVar("T")


def fingerprint(
    config: Config,
    *,
    manifest: str,
    weights: str | None,
    teacher: str | None = None,
    package: Path = source_code.PACKAGE,
) -> Parts:
    """Collect the parts of the fingerprint; the others are SHA-256 of data, start weights and teacher."""
    return {
        "code": code(package, config.paths.work / code_digests.CACHE) | _components(config),
        "data": manifest,
        "model": config.model.model_dump(mode="json", exclude={"weights", "weights_url"}),
        "packages": {name: version(name) for name in PACKAGES},
        "preprocessing": config.preprocessing.model_dump(mode="json"),
        "train": config.train.model_dump(mode="json", exclude=NEUTRAL),
        "weights": weights,
        **({"teacher": teacher} if teacher else {}),
    }


def code(package: Path = source_code.PACKAGE, cache: Path | None = None) -> dict[str, str]:
    """The digest of each file that decides what a training makes; to parse them all takes a second."""
    with code_digests.remembered(cache) as facts:
        return {
            file.relative_to(package).as_posix(): facts(file.read_bytes()).digest
            for file in sorted(source_code.of_stage(STAGE, package, facts))
        }


def digest(parts: Parts) -> str:
    """The SHA-256 of a fingerprint, which names its run folder."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def locate(work: Path, parts: Parts) -> Path:
    """The run folder of a fingerprint, which need not exist."""
    return work / FOLDER / digest(parts)


def resumes(folder: Path, parts: Parts) -> bool:
    """Whether the training resumes from a checkpoint; logs why not where another training left some."""
    if checkpoints.steps(folder):
        return True
    _log_start(folder, parts)
    return False


def record(folder: Path, parts: Parts, config: Config) -> None:
    """Write the fingerprint's parts and the versions of Python and packages to fingerprint.json.

    If training continues with other options than before, which the fingerprint leaves out, this is logged and
    added to its resumptions.
    """
    options = config.train.model_dump(mode="json", include=set(ROUNDING))
    before, saved = _recorded(folder, "options", dict), checkpoints.steps(folder)
    resumed = resumptions(folder) if saved else []
    changed = differences({"train": before or options}, {"train": options})
    if saved and changed:
        resumed.append({"step": saved[-1], "changed": changed})
        log.warning(
            "it continues after step %d with other options: %s; its weights differ by rounding from those of a "
            "training that had these from its start; for such a one, remove %s",
            saved[-1], ", ".join(changed), folder,
        )  # fmt: skip
    document = {"parts": parts, "versions": versions(), "options": options, "resumed": resumed}
    files.write_json(folder / FINGERPRINT, document)


def resumptions(folder: Path) -> list[dict[str, Any]]:
    """The steps at which a training went on with other options than before, and these options."""
    return _recorded(folder, "resumed", list)


def _recorded(folder: Path, key: str, kind: type[T]) -> T:
    """A value in fingerprint.json; an empty one if there is none."""
    file = folder / FINGERPRINT
    found = documents.json_object(file.read_bytes()).get(key) if file.is_file() else None
    return found if isinstance(found, kind) else kind()


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that compute."""
    return {"python": platform.python_version(), **{name: version(name) for name in REPORTED}}


def finish(folder: Path, *, weights_sha256: str, started_from: str | None) -> None:
    """Mark a training as finished, with its weights and their origin; remove older finished ones.

    Otherwise each retraining on new data would add a folder. Unfinished trainings stay because they can resume;
    the training whose weights this one started from stays, too, and all stay if this one made no steps.
    """
    files.write_json(folder / FINISHED, {"weights_sha256": weights_sha256, "versions": versions()})
    if not checkpoints.steps(folder):
        return
    source = Path(started_from).resolve() if started_from else None
    for other in sorted(folder.parent.iterdir()):
        used = source is not None and source.is_relative_to(other.resolve())
        if other != folder and (other / FINISHED).exists() and not used:
            log.info("removed the finished training %s, which this one replaces", other.name[:12])
            # Rename first: a half-removed folder must not look like one with damaged checkpoints.
            other = other.rename(other.with_name(f".{other.name}.removed"))  # noqa: PLW2901
        if other.name.endswith(".removed"):
            shutil.rmtree(other)


def differences(old: Parts, new: Parts) -> list[str]:
    """List the differences between two fingerprints, one per parameter, source file and package.

    >>> differences({"train": {"seed": 0}, "data": "1f"}, {"train": {"seed": 1}, "data": "1f"})
    ['train.seed (0, now 1)']
    """
    before, after = documents.flattened(old), documents.flattened(new)
    changed = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    return [_difference(name, before.get(name), after.get(name)) for name in changed]


def _difference(name: str, old: object, new: object) -> str:
    kind, _, rest = name.partition(".")
    named = {"code": f"code {rest}", "data": "data", "weights": "start weights", "teacher": "teacher"}.get(kind)
    return named or f"{rest if kind == 'packages' else name} ({json.dumps(old)}, now {json.dumps(new)})"


def _log_start(folder: Path, parts: Parts) -> None:
    """Log how the fingerprint differs from that of the training with the newest checkpoint."""
    found = [(path, checkpoints.committed(path)) for path in folder.parent.glob("[!.]*") if path.is_dir()]
    others = [(path, saved[-1]) for path, saved in found if saved]
    if not others:
        return
    other, newest = max(others, key=lambda each: each[1].stat().st_mtime)
    try:
        changed = differences(documents.read_json(other / FINGERPRINT)["parts"], parts)
    except (DataError, LookupError, TypeError, AttributeError):
        changed = [f"unknown, since {other / FINGERPRINT} cannot be read"]
    log.info(
        "starting from step 0: the fingerprint of this training differs from that of the last one in %s; "
        "the checkpoints of that one, up to step %d, are in %s%s",
        listed(changed, SHOWN), checkpoints.step_of(newest), other,
        " until this one finishes" if (other / FINISHED).exists() else " and stay there: it resumes from them "
        "once these are as they were",
    )  # fmt: skip


def _components(config: Config) -> dict[str, str]:
    """The digests of the project's components, by file, if this training names any."""
    if not own_components.named(config.model_dump()):
        return {}
    root = Project.find().root
    return {
        file.relative_to(root).as_posix(): source_code.facts(file.read_bytes()).digest
        if file.suffix == ".py"
        else files.sha256(file)
        for file in own_components.files(root)
    }
