"""How far a histogram has moved from an earlier one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, kw_only=True)
class Drift:
    """The largest difference between two distributions, and where it is."""

    distance: float  # 0..1; exact but for one rounding, so that a threshold of 0.1 means what it says
    where: str | int  # the class, or the bin


def labels(counts: Mapping[str, int], before: Mapping[str, int]) -> Drift:
    """How far the shares of the classes have moved: the largest difference of one class's share.

    Classes are matched by name; one that was added or removed had or has the share 0. Source: the L-infinity
    distance of TensorFlow Data Validation. Of equally large differences the first by name counts.
    """
    names = sorted({*counts, *before})
    distance, place = largest_difference(
        [counts.get(name, 0) for name in names], [before.get(name, 0) for name in names]
    )
    return Drift(distance=distance, where=names[place])


def brightness(counts: Sequence[int], before: Sequence[int]) -> Drift:
    """How far a histogram over an ordered quantity has moved: the Kolmogorov-Smirnov distance.

    That is the largest difference of the two cumulative distributions: the net share of all images that moved
    past the upper edge of the bin it names. Single bins would not do: where every image becomes brighter by one
    bin of a broad histogram, no bin changes by much.
    """
    distance, place = largest_difference(counts, before, cumulative=True)
    return Drift(distance=distance, where=place)


def largest_difference(
    counts: Sequence[int], before: Sequence[int], *, cumulative: bool = False
) -> tuple[float, int]:
    """The largest difference of two histograms' shares, 0..1, and the first bin that has it.

    An empty histogram has the share 0 everywhere.

    Raises:
        ValueError: there are no bins, or not equally many.
    """
    if not counts or len(counts) != len(before):
        raise ValueError(f"histograms of {len(counts)} and {len(before)} bins cannot be compared")
    total, total_before = sum(counts) or 1, sum(before) or 1
    # In whole numbers until the last division: as floats, 0.6 - 0.5 is not 0.1.
    differences = [now * total_before - then * total for now, then in zip(counts, before, strict=True)]
    sizes = [abs(difference) for difference in (accumulate(differences) if cumulative else differences)]
    largest = max(sizes)
    return largest / (total * total_before), sizes.index(largest)
