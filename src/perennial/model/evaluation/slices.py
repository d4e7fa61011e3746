"""Slices: the examples with equal values in a further column of a table of labels, such as one site's."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from perennial.base.errors import printable
from perennial.model.evaluation import intervals

MOST = 50  # values of a column that gives slices; one with more, such as a date, tells examples apart
ABSENT = "(none)"  # the value of examples whose field is empty


@dataclass(frozen=True, kw_only=True)
class Slices:
    """The slices of one column."""

    column: str
    values: tuple[str, ...]  # in alphabetical order
    of: NDArray[np.int64]  # [N], index of each example's value

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the slices, such as `site: north`."""
        return tuple(f"{self.column}: {value}" for value in self.values)

    def at(self, rows: NDArray[np.int64]) -> Self:
        """The same slices of some of the examples."""
        return replace(self, of=self.of[rows])


def find(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[Slices, ...]:
    """The slices of each column that has from 2 to 50 values; `rows` has the values of each example."""
    found = []
    for number, column in enumerate(columns):
        texts = [printable(row[number]) or ABSENT for row in rows]
        values = tuple(sorted(set(texts)))
        if 2 <= len(values) <= MOST:
            index = {value: place for place, value in enumerate(values)}
            of = np.array([index[text] for text in texts], np.int64)
            found.append(Slices(column=printable(column), values=values, of=of))
    return tuple(found)


def arrays(slices: Sequence[Slices]) -> dict[str, NDArray[Any]]:
    """Arrays for an archive of predictions; none without slices."""
    if not slices:
        return {}
    names = json.dumps([[each.column, *each.values] for each in slices], ensure_ascii=False)
    return {
        "slices": np.stack([each.of for each in slices], axis=1),  # [N, columns]
        "slice_names": np.frombuffer(names.encode("utf-8", "surrogateescape"), np.uint8),
    }


def of_arrays(found: Mapping[str, NDArray[Any]]) -> tuple[Slices, ...]:
    """The slices that `arrays` put into an archive."""
    if "slices" not in found:
        return ()
    names = json.loads(found["slice_names"].tobytes())
    return tuple(
        Slices(column=column, values=tuple(values), of=of)
        for (column, *values), of in zip(names, found["slices"].T, strict=True)
    )


def scores(slices: Sequence[Slices], correct: NDArray[np.bool_], level: float) -> dict[str, Any]:
    """JSON of each slice's examples and accuracy with its interval (Wilson), by column and value."""
    found = {}
    for each in slices:
        counts = np.bincount(each.of, minlength=len(each.values)).tolist()
        hits = np.bincount(each.of[correct], minlength=len(each.values)).tolist()
        rows = zip(each.values, hits, counts, strict=True)
        found[each.column] = {value: score(hit, count, level) for value, hit, count in rows if count}
    return found


def score(hits: int, examples: int, level: float) -> dict[str, Any]:
    """JSON of an accuracy with its interval (Wilson)."""
    low, high = intervals.wilson(hits, examples, level)
    return {"examples": examples, "accuracy": hits / examples, "low": low, "high": high}
