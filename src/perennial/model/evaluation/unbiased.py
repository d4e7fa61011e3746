"""The score of a champion on test examples that played no part in choosing it.

The test split chooses the champion, so its score there is too high: the luckiest of many wins. Examples that
joined the split later, and those that no decision reads (`evaluate.audit_fraction`), do not know it.
Compare A. Blum and M. Hardt, The Ladder, 2015; C. Dwork et al., The reusable holdout, Science 349, 2015.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perennial.base.choices import SPLITS
from perennial.model.evaluation import intervals

NO_PART, CHOSE, TRAINED = 0, 1, 2  # of a test example in a version
ENOUGH = 100  # examples from which on the score is shown
UNKNOWN = "not known yet"
SALT = b"audit:"


def audited(digests: Iterable[bytes], fraction: float) -> NDArray[np.bool_]:
    """Choose the examples of a test split that no decision reads, by the SHA-256 of their images, mask [N].

    An image stays chosen while others join or leave, and with a larger fraction.
    """
    ranks = [hashlib.sha256(SALT + digest).digest()[:8] for digest in digests]
    return np.array([int.from_bytes(rank, "big") < fraction * 2**64 for rank in ranks], np.bool_)


def parts(
    now: NDArray[np.void], before: NDArray[np.void], audit: NDArray[np.bool_] | None = None
) -> NDArray[np.int8]:
    """The part that each test example of the index `now` played in a version with the index `before`, [N].

    NO_PART: its image was in none of the version's splits, or its decision did not read it (`audit`, a mask of
    the version's test split); CHOSE: in its test split, by which it was chosen; TRAINED: in its training or
    validation split. Images are the same if their files or their pixels are. The indices are those of
    `image_index`.
    """
    test, own = now[now["split"] == SPLITS.index("test")], before["split"] == SPLITS.index("test")
    chose = before[own] if audit is None else before[own][~audit]
    found = np.full(len(test), NO_PART, np.int8)
    for part, entries in ((CHOSE, chose), (TRAINED, before[~own])):
        found[among(test, entries)] = part
    return found


def among(entries: NDArray[np.void], others: NDArray[np.void]) -> NDArray[np.bool_]:
    """Whether the image of each entry of an index is among others, mask [N]."""
    found = np.zeros(len(entries), np.bool_)
    for field in ("sha256", "pixels"):
        known = set(_rows(others[field]))
        found |= np.array([row in known for row in _rows(entries[field])], np.bool_)
    return found


def _rows(values: NDArray[Any]) -> list[bytes]:
    count, content = len(values), values.tobytes()
    size = len(content) // max(count, 1)
    return [content[size * row : size * (row + 1)] for row in range(count)]


def score(hits: int, examples: int) -> dict[str, Any]:
    """JSON of an accuracy with its 95 % interval (Wilson); None below 100 examples."""
    if examples < ENOUGH:
        return {"examples": examples, "correct": hits, "accuracy": None, "low": None, "high": None}
    low, high = intervals.wilson(hits, examples)
    return {"examples": examples, "correct": hits, "accuracy": hits / examples, "low": low, "high": high}


def chosen_text(accuracy: float, examples: int | None, comparison: int | None) -> str:
    """The score on the examples that chose a champion, in words."""
    on = "the test examples" if examples is None else f"{examples:,} test examples"
    number = "" if comparison is None else f" (comparison {comparison})"
    return f"{accuracy:.4g} on {on}, which chose it{number}"


def text(found: Mapping[str, Any] | None, on: str = "{:,} examples that played no part") -> str:
    """A `score` in words; `on`: its examples, with a place for their number."""
    if found is None or found["accuracy"] is None:
        count = found["examples"] if found else 0
        return f"{UNKNOWN} on examples that played no part ({count} of {ENOUGH} needed)"
    interval = f"[{found['low']:.3f}, {found['high']:.3f}]"
    return f"{found['accuracy']:.4g} {interval} on {on.format(found['examples'])}"
