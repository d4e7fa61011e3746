"""Validate stage: check every record; write a report, a page and an index; fail on errors."""

import logging
import time

from perennial.base import files
from perennial.base.config import Config
from perennial.base.errors import DataError
from perennial.base.params import advice
from perennial.base.stage_state import outputs
from perennial.data.records import manifest, random_access
from perennial.data.validation import drift, html, image_index, integrity, validation_report
from perennial.data.validation.judged_problems import Policy
from perennial.data.validation.problems import describe

log = logging.getLogger(__name__)


def validate(config: Config) -> None:
    """Check the record folder; write the validation report, its HTML page and the record index."""
    started = time.monotonic()
    records, data = config.paths.records, manifest.load(config.paths.records)
    settings = config.validation
    findings = integrity.check(
        records, decode=settings.decode, fingerprints=config.paths.work, where=config.compute
    )
    digest = manifest.digest(records)
    before = drift.load_baseline(config.paths.baseline).before(data.dataset, digest)
    policy = Policy(settings, records, data, findings)
    valid = not findings.problems
    if valid:
        policy.check_balance()
        policy.check_duplicates()
        policy.check_drift(_statistics(data, digest, findings), before)
    content = validation_report.report(data, digest, findings, policy)
    files.write_json(config.paths.validation, content)
    samples = validation_report.samples(records, data, findings.spans) if valid else {}
    flagged = validation_report.flagged(records, findings.problems, findings.spans)
    page = html.render(content, samples, flagged)
    files.write_bytes(config.paths.validation_page, page.encode())
    counts = ", ".join(f"{split} {count}" for split, count in content["examples"].items())
    seconds = time.monotonic() - started
    log.info("validated in %.1f s: %s; see %s", seconds, counts, config.paths.validation_page)
    if valid:
        # Without this check, readers would trust an index of damaged records.
        with outputs.new_folder(config.paths.index, "validate") as index:
            random_access.write_index(index, findings.spans)
            if settings.decode == "all" and findings.images:
                findings.images.write(index / image_index.FILE)
    _raise_errors(config, findings)
    for code, count in sorted(findings.codes.items()):
        first, *others = (problem for problem in findings.problems if problem.code == code)
        more = f" and {count - 1:,} more, {len(others):,} of them in {config.paths.validation}"
        log.warning("%s%s", first, more if count > 1 else "")
    advice.log(log, advice.of_splits(config))


def _raise_errors(config: Config, findings: integrity.Findings) -> None:
    errors = [problem for problem in findings.problems if problem.severity == "error"]
    if not errors:
        return
    warned = {problem.code for problem in findings.problems} - {problem.code for problem in errors}
    codes = {code: count for code, count in findings.codes.items() if code not in warned}
    listed = "All" if len(errors) == sum(codes.values()) else f"{len(errors):,} of them"
    where = f"{listed} are listed in {config.paths.validation}; see also {config.paths.validation_page}"
    raise DataError(describe(config.paths.records, errors, codes, where))


def _statistics(data: manifest.Manifest, digest: str, findings: integrity.Findings) -> drift.DataStatistics:
    per_class = data.splits["train"].per_class if "train" in data.splits else [0] * len(data.classes)
    return drift.DataStatistics(
        manifest=digest,
        per_class=dict(zip(data.classes, per_class, strict=True)),
        examples=data.splits["train"].examples if data.label_columns and "train" in data.splits else None,
        brightness=findings.statistics["train"].brightness.tolist(),
    )
