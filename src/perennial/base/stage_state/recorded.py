"""What dvc.lock has for stages, compared with what they read when they ran here; results that are kept apart.

A stage compares its inputs at its end, but DVC reads parameters and code a moment later, and records those. So
a stage that DVC starts notes what it read and what its results look like, for the stages and commands after it.
Where an input changed while it ran, its result is kept apart, and taken back once the inputs are right.
"""

import hashlib
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from perennial.base import documents, files
from perennial.base.config.paths import Paths
from perennial.base.dvc import dvc_digests, dvc_lock
from perennial.base.dvc.dvc_lock import LockedStage
from perennial.base.errors import InputsChanged, listed
from perennial.base.project.git import Repository
from perennial.base.project.stage_table import STAGES
from perennial.base.stage_state import outputs, stage_inputs
from perennial.base.stage_state.stage_inputs import BY_RUN, SHOWN, Inputs

log = logging.getLogger(__name__)
BY_DVC = "DVC_STAGE"  # in the environment of a stage that DVC runs
KEPT = "inputs.json"  # of a kept result, in its folder
HISTORY, LENGTH = "history", 20  # in the notes of a stage: its last runs to the end, the newest last
SMALL_BYTES = 1 << 20  # larger results are compared by size; a small one beside them has their digests
Note = Mapping[str, Any]


def require_unchanged(noted: Inputs, paths: Paths, *, own_outputs: bool) -> None:
    """Check that a stage that ends would be recorded with what it read; else keep its result apart."""
    changed, stage, by_dvc = noted.changes(), noted.stage, BY_DVC in os.environ
    if not changed:
        if own_outputs:
            _remove(paths, stage)
        if own_outputs and by_dvc:
            complete(noted, paths)
        return
    found = listed(changed, SHOWN)
    if by_dvc and own_outputs:
        _keep(paths, noted)
    made, again = ("training", "to train") if stage == "train" else ("result", f"to run {stage}")
    kept = (
        f"is kept: set it back and run again: the finished {made} is recorded in seconds; or run again {again}"
    )
    placed = f"stays in place, made as it was before: set it back, or run again {again}"
    raise InputsChanged(
        f"{found} changed while {stage} ran; nothing was recorded, and the result {kept if by_dvc else placed} "
        "with the new value"
    )


def take(paths: Paths, noted: Inputs) -> bool:
    """Move the kept result of a stage back if these inputs made it; returns whether there was one."""
    folder = _folder(paths, noted.stage)
    file = folder / KEPT
    if not file.is_file() or not _made_by(documents.json_object(file.read_bytes()), noted):
        return False
    file.unlink()
    for name in STAGES[noted.stage].outputs:
        if (folder / name).exists():
            outputs.remove(getattr(paths, name))
            files.make_folder(getattr(paths, name).parent)
            shutil.move(folder / name, getattr(paths, name))
    _remove(paths, noted.stage)
    return True


def complete(noted: Inputs, paths: Paths) -> None:
    """Note that a stage that DVC started has ended: what it read, and what its results look like."""
    file = stage_inputs.note_file(noted.stage, paths.work)
    note = documents.json_object(file.read_bytes()) if file.is_file() else {}
    results = [str(getattr(paths, name)) for name in STAGES[noted.stage].outputs]
    read = {**noted.document(), "files": noted.small_files()}
    history = [*_history(note), {**read, "results": results, "made": _digest(results)}]
    files.write_json(file, {**note, HISTORY: history[-LENGTH:]})


def require_others_as_noted(noted: Inputs, work: Path, *, by_dvc: bool) -> None:
    """Check that DVC recorded for other stages what they have read; `by_dvc`: it starts this one, else warn."""
    if not (notes := list(_notes(work))):  # to parse dvc.lock takes longer than a stage's other checks
        return
    stages, own = dvc_lock.here(), stage_inputs.dvc_process() if by_dvc else []
    below = stage_inputs.built_on(noted, stages)
    for stage, note in notes:
        if stage not in stages or (own and stage == noted.stage):
            continue
        if own and note.get("dvc") == own:  # another DVC may have restored other results since
            found = _differences(stages[stage], stage, note)
        elif stage in below | {noted.stage}:
            found = _wrong(stages[stage], stage, note)
        else:
            continue
        if found and own:
            raise InputsChanged(f"{_described(stage, found)}; {noted.stage} was not started: {_remedy(stage)}")
        if found:
            log.warning("%s: %s", _described(stage, found), _remedy(stage))


def require_as_recorded(noted: Inputs) -> None:
    """Check that a stage reads the parameters that dvc.lock has for the stages that its result builds on."""
    stages = dvc_lock.here()
    now = {file: documents.flattened(values) for file, values in noted.params.items()}
    below = stage_inputs.built_on(noted, stages)
    for stage in dvc_lock.ordered(stages):
        if stage not in below:
            continue
        found = []
        for file, values in now.items():
            then = {key: value for (name, key), value in stages[stage].params.items() if name == file}
            both = then.keys() & values.keys()
            found += stage_inputs.differing(
                Path(file), {key: then[key] for key in both}, {key: values[key] for key in both}
            )
        if found:
            raise InputsChanged(
                f"{listed(found, SHOWN)} changed since {stage} ran, and {noted.stage} reads both; nothing was "
                "started: set it back, or run again to use what is there now"
            )


def wrong(work: Path, now: tuple[Path, Mapping[str, Any]] | None = None) -> str | None:
    """The first stage recorded with other inputs than it read, with the remedy; `now`: a run's parameters."""
    stages, notes = dvc_lock.here(), dict(_notes(work))
    for stage in dvc_lock.ordered(stages):
        entry, found = stages[stage], []
        if stage in notes and stage in STAGES:
            found = _wrong(entry, stage, notes[stage])
        if found and not (now and _differences(entry, stage, stage_inputs.note(stage, *now).document())):
            return f"{_described(stage, found)}: {_remedy(stage)}"
    return None


def _wrong(entry: LockedStage, stage: str, note: Note) -> list[str]:
    """How dvc.lock differs from what made the results here; nothing where git has the entry."""
    found: list[str] = []
    for each in _history(note):  # the newest last
        if each["made"] == _digest(each["results"]) and not (found := _differences(entry, stage, each)):
            return []
    if found and dvc_lock.entries(Repository(Path()).read("HEAD", dvc_lock.FILE)).get(stage) == entry:
        return []
    return found


def _differences(entry: LockedStage, stage: str, note: Note) -> list[str]:
    read = dict(note.get("files") or {})
    return dvc_lock.differences(entry, stage, note) + [
        f"{path} is not what {stage} read" for path, md5 in read.items() if entry.deps.get(path, md5) != md5
    ]


def _described(stage: str, found: list[str]) -> str:
    return (
        f"{stage} was recorded with other inputs than it read: {listed(found, SHOWN)}; it changed just as "
        f"{stage} ended"
    )


def _remedy(stage: str) -> str:
    return f"run `dvc repro --force --single-item {stage}`, then run this again"


def _notes(work: Path) -> Iterator[tuple[str, Note]]:
    for file in sorted((work / BY_RUN).glob("*.json")):
        yield file.stem, documents.json_object(file.read_bytes())


def _history(note: Note) -> list[dict[str, Any]]:
    found = note.get(HISTORY)
    return [
        each
        for each in (found if isinstance(found, list) else [])
        if isinstance(each, dict) and isinstance(each.get("results"), list) and "made" in each
    ]


def _digest(results: list[str]) -> str:
    """A digest of what results look like."""
    looks = {
        f"{result}/{name}": files.md5(file) if file.stat().st_size <= SMALL_BYTES else file.stat().st_size
        for result in results
        for name, file in dvc_digests.files_of(Path(result)).items()
        if file.is_file()
    }
    return hashlib.sha256(files.json_bytes(looks)).hexdigest()


def _keep(paths: Paths, noted: Inputs) -> None:
    """Move the outputs of a stage away, since DVC removes them before its next run, and note their inputs."""
    folder = _folder(paths, noted.stage)
    outputs.remove(folder)
    files.make_folder(folder)
    for name in STAGES[noted.stage].outputs:
        if getattr(paths, name).exists():
            shutil.move(getattr(paths, name), folder / name)
    digests = {path: _digest_of_data(path) for path in noted.data if noted.has_data(path)}
    kept = {**noted.document(), "data": noted.data, "digests": digests}
    files.write_json(folder / KEPT, kept)  # last: a folder without it is incomplete


def _made_by(kept: dict[str, Any], noted: Inputs) -> bool:
    """Whether a kept result is that of these inputs; files that were written again are compared by content."""
    document, digests = noted.document(), kept.get("digests", {})
    now = documents.parse_json(files.json_bytes({**document, "data": noted.data}))
    if any(kept[key] != now[key] for key in document) or kept["data"].keys() != now["data"].keys():
        return False
    return all(
        signatures == now["data"][path] or digests.get(path) == _digest_of_data(path)
        for path, signatures in kept["data"].items()
    )


def _digest_of_data(path: str) -> str | None:
    """The digest of data as DVC has it; None if there is nothing."""
    return dvc_digests.digest(Path(path)) if Path(path).exists() else None


def _folder(paths: Paths, stage: str) -> Path:
    return paths.work / "kept" / stage


def _remove(paths: Paths, stage: str) -> None:
    folder = _folder(paths, stage)
    outputs.remove(folder)
    with suppress(OSError):  # results of other stages are in it, or there is none
        folder.parent.rmdir()
