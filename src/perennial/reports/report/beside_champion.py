"""The candidate beside the champion: by class and slice, and the examples that changed sides."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from perennial.base.config import Config
from perennial.base.config.paths import Paths
from perennial.base.errors import PerennialError
from perennial.data.validation.html import Thumbnail
from perennial.model.evaluation import unbiased
from perennial.model.evaluation.comparison import ENOUGH, Group, Sides, correct, groups
from perennial.model.evaluation.diagnostics import NONE
from perennial.model.evaluation.label_comparison import LabelGroup
from perennial.release.registry import scores
from perennial.release.registry.access import open_registry
from perennial.reports.report.facts import Facts
from perennial.reports.report.suspects import picture, scored_records

NIGHTS = 365  # runs a year
CHANGED = 18  # examples won, and as many lost


class ChangedExample(NamedTuple):
    """An example that only one of candidate and champion classifies correctly."""

    number: int  # of the record in its split
    true: str
    predicted: str
    by_champion: str
    won: bool  # by the candidate
    image: Thumbnail | None  # None if the records are not those that were scored


def champion_scores(found: Facts, config: Config) -> Sequence[str]:
    """Both scores of the champion in words, as far as this repository knows them; none without a champion."""
    champion = found.results.decision.champion
    if champion is None:
        return []
    try:
        registry = open_registry(config, fetch=False).registry
        known = scores.of_version(config, registry, champion.version)
    except PerennialError:
        known = None
    measured = champion.unbiased.model_dump() if champion.unbiased else None
    return scores.lines(known) if known else [unbiased.text(measured)]


def budget(config: Config) -> str | None:
    """How many models that are no better a year of nightly runs promotes at most; None without a test."""
    level = config.gate.significance
    if level is None:
        return None
    return f"{level:g} (gate.significance) x {NIGHTS} nights = {level * NIGHTS:.2g}"


def classes(found: Facts) -> list[Group]:
    """The classes by both models, the largest drop of a recall first; none without a champion."""
    if found.test is None or found.champion is None:
        return []
    scored = found.test.predictions
    if scored.multilabel:  # the gate's tests take too long to be repeated
        compared = (found.results.decision.comparison or {}).get("classes", [])
        return sorted((LabelGroup(**each) for each in compared), key=lambda group: -group.drop)
    rows, ours, theirs = correct(scored, found.champion)
    found_groups = groups(scored.labels[rows], scored.classes, ours, theirs)
    return sorted(found_groups, key=lambda group: -group.drop)


def slices(found: Facts) -> list[Group]:
    """The slices in the order of their columns and values; without a champion, both sides are the model."""
    if found.test is None:
        return []
    scored, ours = found.test.predictions, found.test.predictions.right
    own = Sides(np.arange(len(ours)), ours, ours)
    rows, ours, theirs = correct(scored, found.champion) if found.champion else own
    return [row for each in scored.slices for row in groups(each.of[rows], each.names, ours, theirs, ENOUGH)]


def changed(found: Facts, paths: Paths) -> list[ChangedExample]:
    """The first examples that were won, then those that were lost against the champion."""
    if found.test is None or found.champion is None:
        return []
    scored, champion = found.test.predictions, found.champion
    rows, ours, theirs = correct(scored, champion)
    numbers = scored.numbers
    records = scored_records(paths.records, paths.index, scored.data)
    return [
        ChangedExample(
            int(numbers[row]),
            true=named(scored.classes, scored.labels[row]),
            predicted=named(scored.classes, scored.predicted[row]),
            by_champion=named(champion.classes, champion.predicted[numbers[row]]),
            won=won,
            image=picture(records, int(numbers[row]), scored.split),
        )
        for won, side in ((True, ours & ~theirs), (False, theirs & ~ours))
        for row in rows[side][:CHANGED].tolist()
    ]


def named(classes: Sequence[str], answer: Any) -> str:
    """The name of a class by its index, or the names of the labels that an array of 0 and 1 marks."""
    chosen = np.flatnonzero(answer).tolist() if np.ndim(answer) else [int(answer)]
    return ", ".join(classes[index] for index in chosen) or NONE
