"""Whether the model may take the place of the one in use. A rejection is a result, not a failure."""

import logging

from perennial import files
from perennial.config import Config
from perennial.errors import DataError

log = logging.getLogger(__name__)


def gate(config: Config) -> None:
    """Writes the decision: promoted when test accuracy reaches gate.min_accuracy.

    Raises:
        DataError: there are no metrics to decide on.
    """
    if not config.paths.metrics.is_file():
        raise DataError(f"{config.paths.metrics} does not exist; `dvc repro evaluate` makes it")
    metrics = files.read_json(config.paths.metrics)
    accuracy, least = metrics["accuracy"], config.gate.min_accuracy
    promote = accuracy >= least
    comparison = "reaches" if promote else "is below"
    # Rounded, unless rounding would make a near miss look like a hit.
    digits = 4 if promote or round(accuracy, 4) < least else 17
    reason = f"test accuracy {accuracy:.{digits}g} {comparison} gate.min_accuracy {least:.{digits}g}"
    candidate = {name: metrics[name] for name in ("accuracy", "loss", "examples", "data", "model")}
    files.write_json(
        config.paths.decision,
        {"promote": promote, "reasons": [reason], "candidate": candidate, "champion": None},
    )
    log.info("%s: %s", "promoted" if promote else "rejected", reason)
