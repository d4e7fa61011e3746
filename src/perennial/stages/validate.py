"""Every record checked; a report, a page, an index, and an error when something is wrong."""

import logging
import sys
import time
from typing import Any

from perennial import files
from perennial.config import Config
from perennial.errors import DataError
from perennial.records import checks, index, manifest
from perennial.records.checks import Findings
from perennial.records.manifest import Manifest
from perennial.records.problems import describe
from perennial.runtime import process
from perennial.validation import baseline, page, report
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
    judgement = Judgement(config.validation, records, data, findings)
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
        from perennial.validation import summary  # noqa: PLC0415 - what draws takes time to import

        summary.tell(written)
    if sound:
        # Only of sound records: an index of damaged ones would lead readers astray.
        index.write(config.paths.index, findings.places)
    _refuse_errors(config, findings)
    _warn(config, findings)
    baseline.write(config.paths.baseline, data.dataset, _version(data, digest, findings), before)


def _refuse_errors(config: Config, findings: Findings) -> None:
    errors = [problem for problem in findings.problems if problem.severity == "error"]
    if not errors:
        return
    warned = {problem.code for problem in findings.problems} - {problem.code for problem in errors}
    codes = {code: count for code, count in findings.codes.items() if code not in warned}
    total, listed = sum(codes.values()), f"{len(errors):,} of them"
    where = f"in {config.paths.validation} and, the first with pictures, in {config.paths.validation_page}"
    told = f"All are {where}." if len(errors) == total else f"{listed} are {where}; the others are like these."
    raise DataError(describe(config.paths.records, errors, codes, told))


def _warn(config: Config, findings: Findings) -> None:
    """Tells the first problem of each kind, how many more there are, and where."""
    for code, count in sorted(findings.codes.items()):
        first, *others = (problem for problem in findings.problems if problem.code == code)
        more = f" and {count - 1:,} more, {len(others):,} of them in {config.paths.validation}"
        log.warning("%s%s", first, more if count > 1 else "")


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
