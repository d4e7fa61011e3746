"""Drift of the training data since the previous version: distances of class shares and of brightness."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple


class Drift(NamedTuple):
    """The largest difference between two distributions, and where it is."""

    distance: float  # 0..1; exact but for one rounding, so that a threshold of 0.1 is exact
    where: str | int  # the class, or the bin


def labels(counts: Mapping[str, int], before: Mapping[str, int]) -> Drift:
    """Label drift: the largest change of one class's share.

    Classes are matched by name; one that was added or removed has the share 0 on the other side. Ties go to the
    first name. Source: the L-infinity distance of TensorFlow Data Validation.
    """
    names = sorted({*counts, *before})
    now, then = ([each.get(name, 0) for name in names] for each in (counts, before))
    distance, place = largest_difference(now, then)
    return Drift(distance, names[place])


def brightness(counts: Sequence[int], before: Sequence[int]) -> Drift:
    """Brightness drift: the Kolmogorov-Smirnov distance of two histograms, and the bin of the difference.

    Single bins do not show a broad histogram that moves by one bin; the cumulative distributions do.
    """
    return Drift(*largest_difference(counts, before, cumulative=True))


def largest_difference(
    counts: Sequence[int], before: Sequence[int], *, cumulative: bool = False
) -> tuple[float, int]:
    """The largest difference of two histograms' shares, 0..1, and the first bin that has it.

    Empty histograms have shares of 0. Raises ValueError for different numbers of bins.
    """
    total, total_before = sum(counts) or 1, sum(before) or 1
    # Integers until the last division: as floats, 0.6 - 0.5 is not 0.1.
    differences = [now * total_before - then * total for now, then in zip(counts, before, strict=True)]
    sizes = [abs(difference) for difference in (accumulate(differences) if cumulative else differences)]
    return max(sizes) / (total * total_before), sizes.index(max(sizes))
