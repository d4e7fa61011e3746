"""The result of a stage whose inputs changed while it ran: kept apart, and taken back once they are right."""

import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from perennial.base import documents, files
from perennial.base.config.paths import Paths
from perennial.base.dvc import dvc_digests
from perennial.base.errors import InputsChanged, listed
from perennial.base.project.stage_table import STAGES
from perennial.base.stage_state import outputs, recorded, stage_inputs
from perennial.base.stage_state.stage_inputs import Inputs

log = logging.getLogger(__name__)
BY_DVC = "DVC_STAGE"  # in the environment of a stage that DVC runs
FILE = "inputs.json"


def require_unchanged(noted: Inputs, paths: Paths, *, own_outputs: bool) -> None:
    """Check that a stage that ends would be recorded with what it read; else keep its result apart."""
    changed, stage, by_dvc = noted.changes(), noted.stage, BY_DVC in os.environ
    if not changed:
        if own_outputs:
            _remove(paths, stage)
        if own_outputs and by_dvc:
            recorded.complete(noted, paths)
        return
    found = listed(changed, stage_inputs.SHOWN)
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
    file = folder / FILE
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


def _keep(paths: Paths, noted: Inputs) -> None:
    """Move the outputs of a stage away, since DVC removes them before its next run, and note their inputs."""
    folder = _folder(paths, noted.stage)
    outputs.remove(folder)
    files.make_folder(folder)
    for name in STAGES[noted.stage].outputs:
        if getattr(paths, name).exists():
            shutil.move(getattr(paths, name), folder / name)
    digests = {path: _digest(path) for path in noted.data if noted.has_data(path)}
    kept = {**noted.document(), "data": noted.data, "digests": digests}
    files.write_json(folder / FILE, kept)  # last: a folder without it is incomplete


def _made_by(kept: dict[str, Any], noted: Inputs) -> bool:
    """Whether a kept result is that of these inputs; files that were written again are compared by content."""
    document, digests = noted.document(), kept.get("digests", {})
    now = documents.parse_json(files.json_bytes({**document, "data": noted.data}))
    if any(kept[key] != now[key] for key in document) or kept["data"].keys() != now["data"].keys():
        return False
    return all(
        signatures == now["data"][path] or digests.get(path) == _digest(path)
        for path, signatures in kept["data"].items()
    )


def _digest(path: str) -> str | None:
    """The digest of data as DVC has it; None if there is nothing."""
    return dvc_digests.digest(Path(path)) if Path(path).exists() else None


def _folder(paths: Paths, stage: str) -> Path:
    return paths.work / "kept" / stage


def _remove(paths: Paths, stage: str) -> None:
    folder = _folder(paths, stage)
    outputs.remove(folder)
    with suppress(OSError):  # results of other stages are in it, or there is none
        folder.parent.rmdir()
