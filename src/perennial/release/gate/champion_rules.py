"""The rules of the gate for the comparison of a candidate with the champion."""

from collections.abc import Iterator

from perennial.base.config.release import GateConfig
from perennial.base.errors import printable
from perennial.model.evaluation.comparison import Champion, Comparison
from perennial.release.gate import checks, drops, traffic_labels
from perennial.release.gate.budget import Budget
from perennial.release.gate.checks import Judged
from perennial.release.gate.own_limits import Candidate


def against_champion(
    candidate: Candidate, champion: Champion, compared: Comparison | None, limits: GateConfig
) -> Iterator[Judged]:
    """Check a candidate against the champion; `compared` is None if they cannot be compared."""
    same = champion.model == candidate.metrics.model
    reason = f"the weights are {'' if same else 'not '}those of the champion {champion.version}"
    yield checks.judged(
        "new_weights", None, None, reason + ": there is nothing new to promote" * same, passed=not same
    )
    if same:
        return
    validated = validation(candidate, champion, limits)
    if validated is not None and not traffic_labels.decides(compared, limits):
        yield validated
        if not validated.check.passed:
            return
        validated = None
    if compared is None:
        why = champion.problem or "it was trained on every example"
        reason = f"the champion {champion.version} cannot be compared on this test split: {why}"
        yield checks.judged("comparable", None, None, reason, passed=False)
        return
    yield from _better(champion, compared, limits, candidate.metrics.score_name, validated)


def budget(champion: Champion) -> Budget:
    """The state that was pinned with a champion; without one, that of a first comparison: the lowest level."""
    return Budget(champion.comparisons or 0, champion.promotions or 0)


def validation(candidate: Candidate, champion: Champion, limits: GateConfig) -> Judged | None:
    """Check the gain on the validation split, which comes before the test split; None if not recorded."""
    ours, theirs, why = candidate.validation, champion.validation, champion.not_validated
    if ours is not None and theirs is not None:
        what = f"gain in validation {candidate.metrics.score_name} over {champion.version}"
        gain = round(ours - theirs, 9)  # both are rounded
        return checks.against("min_gain", what, gain, limits.min_gain, least=True, rule="validation_gain")
    if why is None:
        return None
    reason = f"not compared with {champion.version} on validation: {why}"
    return checks.judged("validation_gain", None, limits.min_gain, reason, passed=True)


def _better(
    champion: Champion, comparison: Comparison, limits: GateConfig, score: str, validated: Judged | None
) -> Iterator[Judged]:
    """Check the rules of the comparison with the champion; `validated`: only a gain on all images needs it."""
    missing = ", ".join(map(printable, comparison.missing_classes))
    lacks = f"classes of the champion {champion.version} are missing: {missing}"
    reason = lacks if missing else f"every class of the champion {champion.version} is known"
    yield checks.judged("missing_classes", len(comparison.missing_classes), 0, reason, passed=not missing)
    level = limits.significance if limits.false_share is None else budget(champion).level(limits)
    if level is not None and traffic_labels.decides(comparison, limits):
        level /= 2  # two ways to pass
    of_all = _gain(champion, comparison, limits, score, level)
    yield from traffic_labels.rules(comparison, limits, level, [*([validated] if validated else []), *of_all])
    yield from drops.of_groups(comparison, limits)
    if (limit := limits.max_negative_flips) is not None:
        yield _flips(champion, comparison, limit)


def _gain(
    champion: Champion, comparison: Comparison, limits: GateConfig, score: str, level: float | None
) -> Iterator[Judged]:
    """Check the gain on all test examples, by its size and its p-value, of which the highest is `level`."""
    unknown = ", ".join(map(printable, comparison.new_classes))
    new = f" (it does not know {unknown})" if unknown else ""
    won = f"{comparison.won} won and {comparison.lost} lost (negative flips: {comparison.negative_flips:.3g}) "
    won += f"of {comparison.examples} test examples{new}"
    won += "" if champion.probabilities is None else ", by exact match"
    if comparison.left_out:
        won += f", without {comparison.left_out} that {champion.version} was trained on"
    between = f"(95 %: {comparison.gain_low:.3g} to {comparison.gain_high:.3g})"
    what = f"gain in {score} over {champion.version} {between}, {won},"
    gain = checks.against("min_gain", what, comparison.gain, limits.min_gain, least=True)
    if comparison.gain == 0:  # also where gate.min_gain is 0
        tie = f"a tie with {champion.version} does not pass: {won}"
        gain = checks.judged("min_gain", 0.0, limits.min_gain, tie, passed=False)
    yield gain
    if level is not None:
        name = "significance" if limits.false_share is None else "false_share"
        which = f" ({budget(champion).text(limits)})" if name == "false_share" else ""
        yield checks.against(name, f"p-value of the gain{which}", comparison.p_value, level)


def _flips(champion: Champion, compared: Comparison, limit: float) -> Judged:
    """Check the share of examples that only the champion gets right, by the lower end of its interval."""
    share, low, high = compared.negative_flips, compared.negative_flips_low, compared.negative_flips_high
    passed, side = low <= limit, "within" if share <= limit else "above"
    chance = "" if share <= limit else ", but may be chance" if passed else " and no chance"
    reason = (
        f"{champion.version} got {compared.lost} test examples right that are wrong now: {share:.3g} (95 %: "
        f"{low:.3g} to {high:.3g}) is {side} gate.max_negative_flips {limit:g}{chance}"
    )
    return checks.judged("max_negative_flips", low, limit, reason, passed=passed)
