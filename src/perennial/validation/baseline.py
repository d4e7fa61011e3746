"""The pin of the previous version of the data, whose statistics drift is measured against.

Git tracks it and the validate stage depends on it. `perennial pin baseline` writes it, in the flow after
`convert`. The stage must not: it would not when DVC restores its results instead of running it.
"""

import hashlib
import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from perennial import files
from perennial.config.release import PathsConfig
from perennial.errors import DataError
from perennial.images.statistics import BINS

log = logging.getLogger(__name__)
LOCK = "dvc.lock"
Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class DataStatistics(_Part):
    """Statistics of the training examples of a version of the data."""

    manifest: str  # its digest
    per_class: dict[str, Count]
    brightness: Annotated[list[Count], Field(min_length=BINS, max_length=BINS)]  # images by mean brightness


class Baseline(_Part):
    """The previous version of the data; both None where there was none."""

    dataset: str | None
    statistics: DataStatistics | None

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.dataset is None) != (self.statistics is None):
            raise ValueError("dataset and statistics must both be null, or none of them")
        return self

    def before(self, dataset: str, manifest: str) -> DataStatistics | None:
        """The version to compare the one with this manifest with: of the same data set, and another one."""
        if dataset != self.dataset or self.statistics is None or self.statistics.manifest == manifest:
            return None
        return self.statistics


NONE = Baseline(dataset=None, statistics=None)


def load(file: Path) -> Baseline:
    """The pinned baseline; a missing file pins none.

    Raises:
        DataError: the file is not a baseline.
    """
    if not file.exists():
        return NONE
    try:
        return Baseline.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise DataError(
            f"{file} is damaged or of an earlier version; `perennial pin baseline` writes it anew"
        ) from error


def pin(paths: PathsConfig) -> Baseline:
    """Pin the version of the data that the last commit has; an unchanged file is not written again.

    If the records are those of the last commit, they keep the baseline that was committed with them: so equal
    inputs are compared with equal statistics. Without a commit of records the file stays as it is.
    """
    file, committed = paths.baseline, _git_show(f"HEAD:./{LOCK}")
    head, now = _lock(committed), _lock(Path(LOCK).read_bytes() if Path(LOCK).is_file() else None)
    records = _md5(head, paths.records)
    if records is None:
        found = None
    elif records == _md5(now, paths.records):
        found = _parsed(_git_show(f"HEAD:./{file.as_posix()}")) or NONE
    else:
        found = _statistics(paths.validation, _md5(head, paths.validation))
    if found is None:
        found = _parsed(file.read_bytes() if file.is_file() else None) or NONE
    content = files.json_bytes(found.model_dump())
    if not file.is_file() or file.read_bytes() != content:
        files.write_bytes(file, content)
    return found


def of_report(report: Mapping[str, Any]) -> Baseline:
    """The baseline for the version after the one that a validation report is about.

    Raises:
        ValueError, LookupError, TypeError: the report lacks its statistics.
    """
    found = report["statistics"]
    train = found["splits"]["train"]
    per_class = dict(zip(found["classes"], train["per_class"], strict=True))
    statistics = DataStatistics(manifest=found["manifest"], per_class=per_class, brightness=train["brightness"])
    return Baseline(dataset=found["dataset"], statistics=statistics)


def _statistics(report: Path, md5: str | None) -> Baseline | None:
    """The statistics in the validation report of the last commit; None where it cannot be had."""
    if md5 is None:
        return None
    content = report.read_bytes() if report.is_file() else b""
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
        content = _dvc_get(report)
    try:
        return of_report(json.loads(content))
    except (ValueError, LookupError, TypeError):
        log.warning("the last commit's %s is not available; drift is measured against the old baseline", report)
        return None


def _dvc_get(path: Path) -> bytes:
    """An output of the last commit, from DVC's cache or remote; empty where neither has it."""
    with tempfile.TemporaryDirectory(prefix="perennial-") as folder:
        target = Path(folder, path.name)
        command = [sys.executable, "-m", "dvc", "get", "--quiet", ".", path.as_posix(), "--rev", "HEAD"]
        try:
            done = subprocess.run([*command, "--out", str(target)], capture_output=True, check=False)
        except OSError:
            return b""
        return target.read_bytes() if not done.returncode and target.is_file() else b""


def _git_show(name: str) -> bytes | None:
    """A file of a commit; None without git, the commit or the file."""
    try:
        done = subprocess.run(["git", "show", name], capture_output=True, check=False)
    except OSError:
        return None
    return None if done.returncode else done.stdout


def _lock(content: bytes | None) -> Mapping[str, Any]:
    """The stages in a dvc.lock; none where it is missing or damaged."""
    try:
        stages = YAML(typ="safe").load(content or b"{}").get("stages")
    except (ValueError, AttributeError, YAMLError):
        stages = None
    return stages if isinstance(stages, Mapping) else {}


def _md5(stages: Mapping[str, Any], path: Path) -> str | None:
    """The digest of an output in a dvc.lock."""
    try:
        outs = [out for stage in stages.values() for out in stage.get("outs", [])]
        return next((str(out["md5"]) for out in outs if Path(out["path"]) == path), None)
    except (LookupError, TypeError, AttributeError):
        return None


def _parsed(content: bytes | None) -> Baseline | None:
    try:
        return Baseline.model_validate_json(content or b"")
    except ValidationError:
        return None
