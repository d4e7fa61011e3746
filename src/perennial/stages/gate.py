"""Decide whether the new model may replace the one in use. A rejection is a result, not a failure."""

import logging
from dataclasses import asdict, dataclass

from perennial import files
from perennial.config import Config
from perennial.config.release import GateConfig

log = logging.getLogger(__name__)


class Metrics(files.JsonFile):
    """The test metrics that the decision reads and records."""

    accuracy: float  # 0..1
    loss: float
    examples: int
    data: str  # digest of the manifest
    model: str  # digest of the weights


@dataclass(frozen=True)
class Decision:
    """The result of the gate, as written to paths.decision."""

    promote: bool
    reasons: list[str]
    candidate: dict[str, object]
    champion: dict[str, object] | None


def gate(config: Config) -> None:
    """Write the decision.

    Raises:
        DataError: the metrics are missing, or lack a key or hold a value of another type.
    """
    advice = "`dvc repro evaluate` makes or restores it; the old decision was kept"
    decision = decide(files.read_checked(config.paths.metrics, Metrics, advice), config.gate)
    files.write_json(config.paths.decision, asdict(decision))
    log.info("%s: %s", "promoted" if decision.promote else "rejected", "; ".join(decision.reasons))


def decide(candidate: Metrics, limits: GateConfig) -> Decision:
    """Promote a model whose test accuracy reaches gate.min_accuracy."""
    accuracy, minimum = candidate.accuracy, limits.min_accuracy
    promote = accuracy >= minimum
    comparison = "reaches" if promote else "is below"
    # Rounded, unless rounding would make a near miss look like a pass.
    digits = 4 if promote or round(accuracy, 4) < minimum else 17
    reason = f"test accuracy {accuracy:.{digits}g} {comparison} gate.min_accuracy {minimum:.{digits}g}"
    recorded = candidate.model_dump(include=set(Metrics.model_fields))
    return Decision(promote=promote, reasons=[reason], candidate=recorded, champion=None)
