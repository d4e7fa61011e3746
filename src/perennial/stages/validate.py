"""Every record checked; a report, a page, an index, and an error when something is wrong."""

import logging
import sys
import time
from typing import Any

from rich.console import Console

from perennial import files, process
from perennial.config import Config
from perennial.errors import DataError
from perennial.records import checks, index, manifest
from perennial.records.checks import Findings
from perennial.records.manifest import Manifest
from perennial.records.problems import describe
from perennial.validation import baseline, page, report, summary
from perennial.validation.baseline import Version
from perennial.validation.judgement import Judgement

log = logging.getLogger(__name__)


def validate(config: Config) -> None:
    """Checks the record folder; writes the report, its page, the record index and the baseline.

    Raises:
        DataError: there are problems that `validate.severity` or the format calls errors; report and page,
            written all the same, show them. The old index and baseline stay.
    """
    started = time.monotonic()
    process.keep_freed_memory()
    records, data = config.paths.records, manifest.load(config.paths.records)
    findings = checks.check(records, decode=config.validation.decode, fingerprints=True, where=config.compute)
    judgement = Judgement(config.validation, data, findings)
    digest = manifest.digest(records)
    known = baseline.load(config.paths.baseline)
    before = known.before(data.dataset, digest) if known else None
    sound = not findings.problems
    if sound:
        judgement.balance()
        judgement.twins()
        judgement.drifted(_version(data, digest, findings), before)
    written = report.report(data, digest, findings, judgement)
    _write(config, data, findings, written, sound=sound)
    log.info("validated %d records in %.1f s", sum(written["examples"].values()), time.monotonic() - started)
    if sys.stderr.isatty():
        Console(stderr=True).print(summary.summary(written))
    if sound:
        # Only of sound records: an index of damaged ones would lead readers astray.
        index.write(config.paths.index, findings.places)
    errors = [problem for problem in findings.problems if problem.severity == "error"]
    if errors:
        where = f"All are in {config.paths.validation} and, with pictures, in {config.paths.validation_page}."
        raise DataError(f"{describe(records, errors)} {where}")
    for code, count in sorted(findings.codes.items()):
        first = next(problem for problem in findings.problems if problem.code == code)
        log.warning("%d x %s: %s%s", count, code, first, " and others" if count > 1 else "")
    baseline.write(config.paths.baseline, data.dataset, _version(data, digest, findings), before)


def _version(data: Manifest, digest: str, findings: Findings) -> Version:
    per_class = data.splits["train"].per_class if "train" in data.splits else [0] * len(data.classes)
    return Version(
        manifest=digest,
        per_class=dict(zip(data.classes, per_class, strict=True)),
        brightness=report.brightness(findings, "train"),
    )


def _write(config: Config, data: Manifest, findings: Findings, written: dict[str, Any], *, sound: bool) -> None:
    """Writes the report and its page."""
    records = config.paths.records
    samples = report.samples(records, data, findings.places) if sound else {}
    flagged = report.flagged(records, findings.problems, findings.places)
    files.write_json(config.paths.validation, written)
    text = page.render(written, data.classes, samples, flagged)
    files.write_bytes(config.paths.validation_page, text.encode())
