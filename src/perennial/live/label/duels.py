"""Decide between the served model and the candidate in the shadow by labels of images on which they disagree.

The e-value is the payoff of a bet against "the candidate is right at most as often as the served model where
exactly one of them is right": the mean of the likelihood ratio over all shares above one half. It is valid at
any peek: under that hypothesis it ever reaches 20 with a probability of at most 1/20 (Ville's inequality).

Sources: H. Robbins, Statistical methods related to the law of the iterated logarithm, 1970 (mixtures);
A. Ramdas et al., Game-theoretic statistics and safe anytime-valid inference, 2023.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from perennial.data.datasets.readers.labelled import Label

PROMOTE = 20.0  # the e-value from which the candidate is better, at a level of 1/20


@dataclass(frozen=True, kw_only=True)
class Duel:
    """What labels say of a served version and a candidate."""

    version: str
    candidate: str
    wins: int  # the candidate is right, and the served version wrong
    losses: int
    neither: int  # both are wrong
    e: float

    @property
    def promotes(self) -> bool:
        """Whether the labels say that the candidate is better."""
        return self.e >= PROMOTE


def e_value(wins: int, losses: int) -> float:
    """The e-value 2^(1+w+l) B(w+1, l+1) (1 - I_1/2(w+1, l+1)): for whole numbers, a sum of binomials."""
    count = wins + losses
    below = sum(math.comb(count + 1, number) for number in range(wins + 1))
    return below / ((count + 1) * math.comb(count, wins))


def duels(labels: Iterable[Label]) -> list[Duel]:
    """Count the disagreements of each pair of versions; the pair that was labelled last comes first."""
    counts: dict[tuple[str, str], list[int]] = {}
    for each in sorted(labels, key=lambda each: each.time):
        if each.candidate and each.candidate != each.served:
            pair = each.version, each.candidate_version
            found = counts.pop(pair, [0, 0, 0])
            found[0 if each.class_ == each.candidate else 1 if each.class_ == each.served else 2] += 1
            counts[pair] = found
    return [
        Duel(
            version=version,
            candidate=candidate,
            wins=wins,
            losses=losses,
            neither=neither,
            e=e_value(wins, losses),
        )
        for (version, candidate), (wins, losses, neither) in reversed(counts.items())
    ]
