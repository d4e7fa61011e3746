"""The rules of the gate for drops: no class and no slice may lose more than its limit, beyond chance."""

from collections.abc import Iterator, Sequence

from perennial.base.config.release import GateConfig
from perennial.base.errors import printable
from perennial.model.evaluation import comparison
from perennial.model.evaluation.comparison import Comparison, Group
from perennial.model.evaluation.label_comparison import LabelGroup
from perennial.model.evaluation.results import Check
from perennial.release.gate.checks import Judged

DROP_LEVEL = 0.05  # how often the drops of an equally good model reject it, at most


def of_groups(compared: Comparison, limits: GateConfig) -> Iterator[Judged]:
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
