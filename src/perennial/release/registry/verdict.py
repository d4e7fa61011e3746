"""The decision of the gate in one sentence; its `reasons` and the report have the statistics."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from perennial.base.errors import printable
from perennial.model.evaluation.results import Check, Decision
from perennial.release.gate.compared import promoted_by_traffic

WORDS = 25
DROPS = {"max_class_drop": "classes", "max_slice_drop": "slices"}


def sentence(decision: Decision) -> str:
    """Say what the gate decided and why, in at most 25 words."""
    clauses = list(dict.fromkeys(_clauses(decision))) or decision.reasons
    said = f"{decision.verdict}: {'; '.join(clauses)}"
    while len(said.split()) > WORDS and len(clauses) > 1:
        clauses = clauses[:-1]
        said = f"{decision.verdict}: {'; '.join(clauses)}; the report says more"
    words = said.split()
    return said if len(words) <= WORDS else f"{' '.join(words[: WORDS - 1])} ..."


def flips(compared: Mapping[str, Any]) -> str | None:
    """The negative and positive flips of a comparison in words; None for one of an earlier program."""
    if "negative_flips" not in compared:
        return None
    share, low, high = (100 * compared[f"negative_flips{end}"] for end in ("", "_low", "_high"))
    between = f"{share:.2f} %; 95 %: {low:.2f} to {high:.2f}"
    return f"{compared['lost']:,} negative ({between}), {compared['won']:,} positive"


def _clauses(decision: Decision) -> Iterator[str]:
    if decision.promote:
        yield from _passed(decision)
    compared = decision.comparison
    failed = [check for check in decision.checks if not check.passed]
    for check, reason in zip(failed, decision.reasons, strict=False):
        rules = {each.name for each in failed}
        if compared and check.name in {"min_gain", "significance", "false_share"}:
            by_map = decision.candidate.map
            won, lost = compared["won"], compared["lost"]
            yield _gain(won, lost, rules) if by_map is None else _map_gain(by_map, compared["gain"], rules)
        elif check.name == "validation_gain" and check.value is not None:
            yield _validated(check.value, "accuracy" if decision.candidate.map is None else "mAP")
        elif check.name == "traffic_gain":
            yield "no gain on traffic beyond chance"
        elif check.name == "traffic_drop":
            yield f"traffic may have lost {100 * (check.value or 0):.2g} points"
        elif compared and check.name in DROPS:
            yield _drop(check, compared[DROPS[check.name]]) or reason
        else:
            yield reason


def _passed(decision: Decision) -> list[str]:
    """Why a model passed."""
    compared, champion = decision.comparison, decision.champion
    if not compared or not champion:
        return decision.reasons
    if champion.map is not None:
        return [f"mAP {decision.candidate.map:.3f} is {compared['gain']:.3f} above {champion.version}'s"]
    of_traffic = promoted_by_traffic(decision)
    counts, which = of_traffic or compared, " of traffic" if of_traffic else ""
    return [f"better than {champion.version} on {_images(counts['won'])}{which}, worse on {counts['lost']:,}"]


def _gain(won: int, lost: int, failed: set[str]) -> str:
    """The wins and losses of a model that does not beat the champion, or not by enough."""
    if won < lost:
        return f"worse on {_images(lost)}, better on {won:,}"
    if won == lost:
        return f"a tie: better on {_images(won)}, worse on {lost:,}"
    return f"better on {_images(won)}, worse on {lost:,}, {_why(failed)}"


def _map_gain(score: float, gain: float, failed: set[str]) -> str:
    """The gain in mean average precision of a model that does not beat the champion, or not by enough."""
    side = "below the champion's" if gain < 0 else f"above the champion's, {_why(failed)}"
    return f"mAP {score:.3f} is {abs(gain):.3f} {side}" if gain else f"a tie: mAP {score:.3f}"


def _validated(gain: float, score: str) -> str:
    """The gain on validation of a model that is not compared on the test split."""
    if not gain:
        return f"a tie in validation {score}"
    side = "below the champion's" if gain < 0 else "above the champion's, too little for gate.min_gain"
    return f"validation {score} is {100 * abs(gain):.2g} points {side}"


def _why(failed: set[str]) -> str:
    return "too little for gate.min_gain" if "min_gain" in failed else "which may be chance"


def _drop(check: Check, groups: list[dict[str, Any]]) -> str | None:
    """The scores of the class or slice whose drop the gate counts."""
    for found in reversed(groups):
        drop = found["champion"] - found["candidate"]
        if not found["judged"] or not math.isclose(drop, check.value or 0.0, abs_tol=1e-9):
            continue
        digits = int(f"{found['champion']:.0%}" == f"{found['candidate']:.0%}")
        before, now = (f"{100 * found[each]:.{digits}f} %" for each in ("champion", "candidate"))
        return f"{printable(found['name'])} fell from {before} to {now}"
    return None


def _images(count: int) -> str:
    return f"{count:,} test image{'s' * (count != 1)}"
