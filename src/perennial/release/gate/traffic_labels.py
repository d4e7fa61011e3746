"""`gate.traffic`: random labels of traffic in the test split protect production, or decide.

Their gain is that of production; old test images may hide it, or a loss. With `protects`, the gain on all test
images counts as before, and the lower bound of that on traffic must exceed -`gate.max_slice_drop`. With
`decides`, a significant gain on traffic suffices, too. Each of these two ways has half of the level alpha, so
that an equally good model passes with at most alpha (Bonferroni). The bound is that of Bonett and Price (2012),
which a model that lost more passes with about alpha.
"""

from perennial.base.config.release import GateConfig
from perennial.model.evaluation import intervals
from perennial.model.evaluation.comparison import Comparison, Group, mcnemar
from perennial.release.gate import checks
from perennial.release.gate.checks import Judged
from perennial.release.gate.compared import TRAFFIC

ENOUGH = 100  # labels from which on they count


def labels(compared: Comparison) -> Group | None:
    """The random labels of traffic in the test split, if there are enough of them."""
    return next((each for each in compared.slices if each.name == TRAFFIC and each.examples >= ENOUGH), None)


def decides(compared: Comparison | None, limits: GateConfig) -> bool:
    """Whether a gain on traffic alone can pass, without one on validation, which may hold no traffic."""
    return limits.traffic == "decides" and compared is not None and labels(compared) is not None


def rules(compared: Comparison, limits: GateConfig, level: float | None, of_all: list[Judged]) -> list[Judged]:
    """The rules for the gain, from those `of_all` test images; `level`: alpha, or with `decides` its half."""
    if limits.traffic is None or level is None or limits.max_slice_drop is None:
        return of_all
    if (group := labels(compared)) is None:
        few = f"gate.traffic waits: the test split has fewer than {ENOUGH} random labels of traffic"
        return [checks.judged("traffic_labels", None, ENOUGH, few, passed=True), *of_all]
    alpha = level * (2 if limits.traffic == "decides" else 1)
    low, _ = intervals.gain(group.won, group.lost, group.examples, max(1 - 2 * alpha, 0.0))
    counts = f"{group.won} won and {group.lost} lost of {group.examples} random labels"
    drop = f"possible drop on traffic ({counts})"
    limit = limits.max_slice_drop
    protected = [*of_all, checks.against("max_slice_drop", drop, -low, limit, rule="traffic_drop")]
    if limits.traffic == "protects" or all(each.check.passed for each in protected):
        return protected
    gain, p_value = -group.drop, mcnemar(group.won, group.lost)
    passed = gain > 0 and gain >= limits.min_gain and p_value <= level
    reason = f"gain on traffic {gain:.4g} ({counts}; p-value {p_value:.2g}) "
    reason += f"{'reaches' if passed else 'misses'} gate.min_gain {limits.min_gain:g} at the level {level:.2g}"
    way = checks.judged("traffic_gain", p_value, level, reason, passed=passed)
    return [way] if passed else [way, *protected]
