"""The rules of the gate for the comparison of a candidate with the champion."""

from collections.abc import Iterator, Sequence

from perennial.base.config.release import GateConfig
from perennial.base.errors import printable
from perennial.model.evaluation import comparison, intervals
from perennial.model.evaluation.comparison import Champion, Comparison, Group
from perennial.model.evaluation.label_comparison import LabelGroup
from perennial.model.evaluation.results import Check
from perennial.release.gate import checks
from perennial.release.gate.checks import Judged
from perennial.release.gate.compared import TRAFFIC, Budget
from perennial.release.gate.own_limits import Candidate

DROP_LEVEL = 0.05  # how often the drops of an equally good model reject it, at most
ENOUGH = 100  # labels of traffic, from which on they count


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
    if validated is not None and not traffic_decides(compared, limits):
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
    champion: Champion, compared: Comparison, limits: GateConfig, score: str, validated: Judged | None
) -> Iterator[Judged]:
    """Check the rules of the comparison with the champion; `validated`: only a gain on all images needs it."""
    missing = ", ".join(map(printable, compared.missing_classes))
    lacks = f"classes of the champion {champion.version} are missing: {missing}"
    reason = lacks if missing else f"every class of the champion {champion.version} is known"
    yield checks.judged("missing_classes", len(compared.missing_classes), 0, reason, passed=not missing)
    level = limits.significance if limits.false_share is None else budget(champion).level(limits)
    if level is not None and traffic_decides(compared, limits):
        level /= 2  # two ways to pass
    of_all = _gain(champion, compared, limits, score, level)
    yield from _by_traffic(compared, limits, level, [*([validated] if validated else []), *of_all])
    yield from _drops(compared, limits)
    if (limit := limits.max_negative_flips) is not None:
        yield _flips(champion, compared, limit)


def random_labels(compared: Comparison) -> Group | None:
    """The random labels of traffic in the test split, if there are enough of them."""
    return next((each for each in compared.slices if each.name == TRAFFIC and each.examples >= ENOUGH), None)


def traffic_decides(compared: Comparison | None, limits: GateConfig) -> bool:
    """Whether a gain on traffic alone can pass, without one on validation, which may hold no traffic."""
    return limits.traffic == "decides" and compared is not None and random_labels(compared) is not None


def _by_traffic(
    compared: Comparison, limits: GateConfig, level: float | None, of_all: list[Judged]
) -> list[Judged]:
    """The rules for the gain, from those `of_all` test images; `level`: alpha, or with `decides` its half.

    Random labels of traffic in the test split protect production, or decide (`gate.traffic`). Their gain is
    that of production; old test images may hide it, or a loss. With `protects`, the gain on all test images
    counts as before, and the lower bound of that on traffic must exceed -`gate.max_slice_drop`. With `decides`,
    a significant gain on traffic suffices, too. Each of these two ways has half of the level alpha, so that an
    equally good model passes with at most alpha (Bonferroni). The bound is that of Bonett and Price (2012),
    which a model that lost more passes with about alpha.
    """
    if limits.traffic is None or level is None or limits.max_slice_drop is None:
        return of_all
    if (group := random_labels(compared)) is None:
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
    gain, p_value = -group.drop, comparison.mcnemar(group.won, group.lost)
    passed = gain > 0 and gain >= limits.min_gain and p_value <= level
    reason = f"gain on traffic {gain:.4g} ({counts}; p-value {p_value:.2g}) "
    reason += f"{'reaches' if passed else 'misses'} gate.min_gain {limits.min_gain:g} at the level {level:.2g}"
    way = checks.judged("traffic_gain", p_value, level, reason, passed=passed)
    return [way] if passed else [way, *protected]


def _gain(
    champion: Champion, compared: Comparison, limits: GateConfig, score: str, level: float | None
) -> Iterator[Judged]:
    """Check the gain on all test examples, by its size and its p-value, of which the highest is `level`."""
    unknown = ", ".join(map(printable, compared.new_classes))
    new = f" (it does not know {unknown})" if unknown else ""
    won = f"{compared.won} won and {compared.lost} lost (negative flips: {compared.negative_flips:.3g}) "
    won += f"of {compared.examples} test examples{new}"
    won += "" if champion.probabilities is None else ", by exact match"
    if compared.left_out:
        won += f", without {compared.left_out} that {champion.version} was trained on"
    between = f"(95 %: {compared.gain_low:.3g} to {compared.gain_high:.3g})"
    what = f"gain in {score} over {champion.version} {between}, {won},"
    gain = checks.against("min_gain", what, compared.gain, limits.min_gain, least=True)
    if compared.gain == 0:  # also where gate.min_gain is 0
        tie = f"a tie with {champion.version} does not pass: {won}"
        gain = checks.judged("min_gain", 0.0, limits.min_gain, tie, passed=False)
    yield gain
    if level is not None:
        name = "significance" if limits.false_share is None else "false_share"
        which = f" ({budget(champion).text(limits)})" if name == "false_share" else ""
        yield checks.against(name, f"p-value of the gain{which}", compared.p_value, level)


def _drops(compared: Comparison, limits: GateConfig) -> Iterator[Judged]:
    """Check that no class or slice lost more than its limit, beyond chance.

    A drop counts if the exact McNemar test of the losses, or the permutation test of the average precision of a
    class, finds it at a level of 0.05 divided by the number of classes and slices that are judged (Bonferroni):
    of equally good models, at most 5 % are rejected, whatever the number of groups and however they overlap.
    """
    by_label = any(isinstance(group, LabelGroup) for group in compared.classes)
    of_class, of_slice = ("average precision", "exact match") if by_label else ("recall", "accuracy")
    rules = (
        ("max_class_drop", f"{of_class}, of class", limits.max_class_drop, compared.classes),
        ("max_slice_drop", f"{of_slice}, of slice", limits.max_slice_drop, compared.slices),
    )
    judged = sum(group.judged for *_, limit, found in rules if limit is not None for group in found)
    for name, what, limit, found in rules:
        if limit is not None and found:
            yield _drop(name, what, limit, found, judged)


def _drop(name: str, what: str, limit: float, groups: Sequence[Group], judged: int) -> Judged:
    """Check the drops of the classes, or of the slices; `judged` groups share the level."""
    level = DROP_LEVEL / max(judged, 1)
    beyond = [each for each in groups if each.judged and each.drop > limit and each.p_value <= level]
    worst = max(beyond or groups, key=lambda group: (group.drop, group.examples))
    check = Check(name=name, value=worst.drop if beyond else 0.0, limit=limit, passed=not beyond)
    drop = f"largest drop in {what} {printable(worst.name)}, {worst.drop:.4g}"
    counts = f"{worst.won} won and {worst.lost} lost of {worst.examples}"
    if beyond:
        chance = f"p-value {worst.p_value:.2g}, at most {level:.2g}: {DROP_LEVEL:g} over {judged} groups"
        return Judged(check, f"{drop} is above gate.{name} {limit:g} and no chance ({counts}; {chance})")
    if worst.drop <= 0:
        return Judged(check, f"no {what.rpartition(' ')[2]} has a lower score than the champion's")
    if worst.drop <= limit:
        return Judged(check, f"{drop} is within gate.{name} {limit:g} ({counts})")
    why = f"p-value {worst.p_value:.2g}, above {level:.2g}: {DROP_LEVEL:g} over {judged} groups"
    why = why if worst.judged else f"fewer than {comparison.ENOUGH} examples are not judged"
    return Judged(check, f"{drop} is above gate.{name} {limit:g}, but may be chance ({counts}; {why})")


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
