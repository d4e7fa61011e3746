"""Pin the previous version of the data, that of the last commit. It is the baseline for drift."""

import hashlib
import logging
import tempfile
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from perennial.base import documents, files
from perennial.base.config.paths import Paths
from perennial.base.dvc import dvc_lock, dvc_program
from perennial.base.dvc.dvc_program import DvcError
from perennial.base.errors import PerennialError
from perennial.base.project.git import Repository
from perennial.data.validation.drift import NO_BASELINE, Baseline, baseline_of

log = logging.getLogger(__name__)


def pin(paths: Paths) -> Baseline:
    """Write the drift baseline for the new records; the file is written only if it changes.

    Records that equal those of the last commit keep the baseline that was committed with them, so that equal
    inputs are compared with equal statistics. If no commit has records, the file stays unchanged.
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
    """Return the text of a file in the last commit; None without git, a commit or the file."""
    try:
        return Repository(Path()).read("HEAD", file)
    except PerennialError as error:
        log.warning("the last commit cannot be read: %s", error)
        return None


def _committed(report: Path, md5: str | None) -> Baseline | None:
    """Return the statistics in the validation report of the last commit; None if it is not available."""
    content = report.read_bytes() if report.is_file() else b""
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
        content = _of_cache(report)
    try:
        return baseline_of(documents.parse_json(content))
    except (ValueError, LookupError, TypeError):
        log.warning("%s of the last commit is not available; measuring drift against the old baseline", report)
        return None


def _of_cache(path: Path) -> bytes:
    """Return an output of the last commit from DVC's cache or remote; empty if neither has it."""
    with tempfile.TemporaryDirectory(prefix="perennial-") as folder, suppress(DvcError):
        target = Path(folder, path.name)
        dvc_program.get(path.as_posix(), "HEAD", target)
        return target.read_bytes()
    return b""


def _parsed(content: bytes) -> Baseline | None:
    try:
        return Baseline.model_validate_json(content)
    except ValidationError:
        return None
