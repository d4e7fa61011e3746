"""Pin the previous version of the data: that of the last commit, which drift is measured against."""

import hashlib
import json
import logging
import tempfile
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from perennial import dvc, dvc_lock, files
from perennial.config.release import PathsConfig
from perennial.dvc import DvcError
from perennial.errors import PerennialError
from perennial.registry.git import Repository
from perennial.validation.drift import NO_BASELINE, Baseline, baseline_of

log = logging.getLogger(__name__)


def pin(paths: PathsConfig) -> Baseline:
    """Write the baseline of the data that were just converted; an unchanged file is not written again.

    If the records are those of the last commit, they keep the baseline that was committed with them: so equal
    inputs are compared with equal statistics. Without a commit of records the file stays as it is.
    """
    file = paths.baseline
    committed = dvc_lock.entries(_of_head(dvc_lock.FILE))
    records = dvc_lock.digest(committed, paths.records)
    if records is None:
        found = None
    elif records == dvc_lock.digest(dvc_lock.here(), paths.records):
        text = _of_head(file)
        found = None if text is None else _parsed(text.encode(errors="replace")) or NO_BASELINE
    else:
        found = _committed(paths.validation, dvc_lock.digest(committed, paths.validation))
    if found is None:
        found = _parsed(file.read_bytes() if file.is_file() else b"") or NO_BASELINE
    files.update_json(file, found.model_dump())
    return found


def _of_head(file: Path) -> str | None:
    """The text of a file in the last commit; None without git, a commit or the file."""
    try:
        return Repository(Path()).read("HEAD", file)
    except PerennialError as error:
        log.warning("the last commit cannot be read: %s", error)
        return None


def _committed(report: Path, md5: str | None) -> Baseline | None:
    """The statistics in the validation report of the last commit; None where it cannot be had."""
    content = report.read_bytes() if report.is_file() else b""
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
        content = _of_cache(report)
    try:
        return baseline_of(json.loads(content))
    except (ValueError, LookupError, TypeError):
        log.warning("the last commit's %s is not available; drift is measured against the old baseline", report)
        return None


def _of_cache(path: Path) -> bytes:
    """An output of the last commit, from DVC's cache or remote; empty where neither has it."""
    with tempfile.TemporaryDirectory(prefix="perennial-") as folder, suppress(DvcError):
        target = Path(folder, path.name)
        dvc.get(path.as_posix(), "HEAD", target)
        return target.read_bytes()
    return b""


def _parsed(content: bytes) -> Baseline | None:
    try:
        return Baseline.model_validate_json(content)
    except ValidationError:
        return None
