"""Every record read and every image decoded; a report, an index, and an error when anything is wrong."""

import logging
import time

from perennial import files
from perennial.config import Config
from perennial.errors import DataError
from perennial.records import checks, index, manifest
from perennial.records.checks import Findings

log = logging.getLogger(__name__)


def validate(config: Config) -> None:
    """Checks the record folder and writes the validation report and the record index.

    Raises:
        DataError: there are problems; the report, written all the same, lists them. The old index stays.
    """
    started = time.monotonic()
    records = config.paths.records
    findings = checks.check(records)
    files.write_json(
        config.paths.validation,
        {
            "ok": not findings.problems,
            "examples": dict(findings.examples),
            "problems": [checks.as_json(problem) for problem in findings.problems],
            "statistics": _statistics(findings) | {"manifest": manifest.digest(records)},
        },
    )
    if findings.problems:
        raise DataError(
            checks.describe(records, findings.problems) + f" All problems are in {config.paths.validation}."
        )
    # Only of sound records: an index of damaged ones would lead readers astray.
    index.write(config.paths.index, findings.places)
    log.info("validated %d records in %.1f s", findings.examples.total(), time.monotonic() - started)


def _statistics(findings: Findings) -> dict[str, object]:
    """Facts about the images: sizes in pixels, mean of all values (0..255)."""
    heights, widths, channels = zip(*findings.sizes, strict=True) if findings.sizes else ((0,), (0,), (0,))
    return {
        "height": [min(heights), max(heights)],
        "width": [min(widths), max(widths)],
        "channels": [min(channels), max(channels)],
        "mean": findings.pixel_sum / findings.pixels if findings.pixels else None,
    }
