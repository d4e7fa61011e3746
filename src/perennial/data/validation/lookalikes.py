"""Search for changed copies across splits, such as cropped or brightened images, whose hashes differ a lot.

Three steps, each on the pairs that pass the previous one: hashes, the 8 x 9 cells behind them, and small
versions of the images. The last two shift and stretch one image until it fits the other best.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from perennial.data.images import decode

BITS = 16  # maximum differing bits of 64-bit hashes
COMPARISONS = 2_000_000_000  # of hashes at most, about 2 s; beyond it there is no search
CORRELATION = 0.85  # of cells at least
COARSE = 0.12  # maximum unexplained share of the variance of cells
# The same for small versions, and for their details alone: skies and horizons differ only in details.
FINE, DETAILS = 0.1, 0.3
KEPT, CONFIRMED = 200_000, 4_000  # maximum pairs for the second and third step
SIDE = 24  # pixels of a small version
CHUNK = 1024  # pairs that are fitted at once
FARTHEST = 0.25  # shift or stretch, as a share of the side
COARSE_ROUNDS, FINE_ROUNDS = 2, 3  # of fitting, in the second and the third step
RIDGE = 1e-6  # keeps the equations of a plain or evenly shaded image solvable
Luma = NDArray[np.float32]  # [M, rows, columns]


class Candidates(NamedTuple):
    """Pairs of records that may be copies."""

    pairs: NDArray[np.int64]  # [M, 2], the lower number first; those that fit best first
    complete: bool  # whether these are all


def candidates(
    hashes: NDArray[np.uint64],
    splits: NDArray[np.uint8],
    cells: NDArray[np.uint8],
    *,
    beyond: int,
    comparisons: int = COMPARISONS,
) -> Candidates:
    """Find pairs in different splits that may be copies and whose hashes differ in more than `beyond` bits."""
    none, counts = np.empty((0, 2), np.int64), np.bincount(splits)
    if (int(counts.sum()) ** 2 - int((counts.astype(object) ** 2).sum())) // 2 > comparisons:
        return Candidates(none, complete=False)
    found, total = [none], 0
    for pairs in _alike(hashes, splits, cells, beyond):
        found.append(pairs)
        total += len(pairs)
        if total > KEPT:
            break
    pairs = np.concatenate(found)
    parts = (cells[part.T].astype(np.float32) for part in _chunks(pairs))
    rest = np.concatenate([np.empty(0), *(unexplained(*part, rounds=COARSE_ROUNDS) for part in parts)])
    order = np.lexsort((pairs[:, 1], pairs[:, 0], rest.round(3)))
    order = order[rest[order] <= COARSE]
    return Candidates(pairs[order[:CONFIRMED]], total <= KEPT and len(order) <= CONFIRMED)


def confirmed(
    pairs: NDArray[np.int64], small: Callable[[int], Luma], *, similar: bool = False
) -> NDArray[np.int64]:
    """The pairs [M, 2] of changed copies; `similar`: their hashes are, so that either measure is enough."""
    kept = [np.empty((0, 2), np.int64)]
    for part in _chunks(pairs):
        one, other = (np.stack([small(number) for number in side]) for side in part.T.tolist())
        rest = unexplained(one, other, rounds=FINE_ROUNDS)
        whole, details = rest <= FINE, rest <= DETAILS * np.minimum(_detailed(one), _detailed(other))
        kept.append(part[whole | details if similar else whole & details])
    return np.concatenate(kept)


def small_version(encoded: bytes) -> Luma:
    """The luma of a valid image file at 24 x 24 pixels."""
    opened = decode.opened(encoded)
    opened.draft("L", (4 * SIDE, 4 * SIDE))  # decode a JPEG only at the resolution needed
    opened.load()
    image = decode.plain(opened).convert("L")
    if (factor := min(image.size) // (4 * SIDE)) > 1:
        image = image.reduce(factor)
    return np.asarray(image.resize((SIDE, SIDE), PIL.Image.Resampling.BILINEAR), np.float32)


def unexplained(one: Luma, other: Luma, *, rounds: int) -> NDArray[np.float32]:
    """The unexplained share of variance [M] after fitting one image to the other, whichever is cropped."""
    return np.minimum(_fitted(one, other, rounds), _fitted(other, one, rounds))


def _detailed(image: Luma) -> NDArray[np.float32]:
    """The share of variance [M], 0..1, that is neither between rows nor between columns."""
    centred = _centred(image)
    details = centred - centred.mean(axis=1, keepdims=True) - centred.mean(axis=2, keepdims=True)
    share: NDArray[np.float32] = (details**2).sum(axis=(1, 2)) / np.maximum((centred**2).sum(axis=(1, 2)), 1)
    return share


def _alike(
    hashes: NDArray[np.uint64], splits: NDArray[np.uint8], cells: NDArray[np.uint8], beyond: int
) -> Iterator[NDArray[np.int64]]:
    """Pairs with similar hashes and cells: each record with those of larger splits."""
    units = _units(cells)
    by_size = sorted(np.unique(splits).tolist(), key=lambda split: ((splits == split).sum(), split))
    for place, split in enumerate(by_size[:-1]):
        others = np.flatnonzero(np.isin(splits, by_size[place + 1 :]))
        theirs = hashes[others]
        different, distances = np.empty_like(theirs), np.empty(len(theirs), np.uint8)
        for number in np.flatnonzero(splits == split):
            np.bitwise_xor(theirs, hashes[number], out=different)
            np.bitwise_count(different, out=distances)
            near = np.flatnonzero(distances <= BITS)
            near = others[near[distances[near] > beyond]]
            near = near[units[near] @ units[number] >= CORRELATION]
            if len(near):
                yield np.sort(np.stack((near, np.full(len(near), number)), axis=1), axis=1)


def _units(cells: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Normalize cells [N, 72] to mean 0 and length 1; all zeros for a plain image."""
    units = cells.reshape(len(cells), cells.shape[1] * cells.shape[2]).astype(np.float32)
    units -= units.mean(axis=1, keepdims=True)
    units /= np.maximum(np.linalg.norm(units, axis=1, keepdims=True), 1)
    return units


def _chunks(pairs: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    return [pairs[start : start + CHUNK] for start in range(0, len(pairs), CHUNK)]


def _fitted(one: Luma, other: Luma, rounds: int) -> NDArray[np.float32]:
    """The share of `other`'s variance [M] that `one` leaves once it is fitted (Lucas and Kanade 1981)."""
    rows, columns = one.shape[1:]
    down, right = _centres(rows)[:, np.newaxis], _centres(columns)
    wanted = _centred(other)
    variance = np.maximum((wanted**2).sum(axis=(1, 2)), 1)
    moved, best = np.zeros((len(one), 4), np.float32), np.ones(len(one), np.float32)
    for turn in range(rounds + 1):
        of_columns, of_rows = _resampling(moved[:, :2], columns), _resampling(moved[:, 2:], rows)
        image = _centred(of_rows @ one @ of_columns.transpose(0, 2, 1))
        common, own = (image * wanted).sum(axis=(1, 2)), np.maximum((image**2).sum(axis=(1, 2)), 1)
        best = np.minimum(best, 1 - np.maximum(common, 0) ** 2 / own / variance)
        if turn < rounds:
            across, along = np.gradient(image, axis=2) * columns, np.gradient(image, axis=1) * rows
            # The effect of a small shift and stretch. Centred like the image, so that brightness is ignored.
            changes = map(_centred, (across, across * right, along, along * down))
            terms = np.stack((image, *changes), axis=1).reshape(len(one), 5, -1)
            squares = (terms @ terms.transpose(0, 2, 1)).astype(np.float64)
            size = np.trace(squares, axis1=1, axis2=2)[:, np.newaxis, np.newaxis] + 1
            squares += RIDGE * size * np.eye(5)
            found = np.linalg.solve(squares, terms @ wanted.reshape(len(one), -1, 1))[..., 0]
            step = found[:, 1:] / np.maximum(found[:, :1], 0.3)
            moved = np.clip(moved + step, -FARTHEST, FARTHEST).astype(np.float32)
    return best


def _centred(image: NDArray[Any]) -> Luma:
    centred: Luma = image - image.mean(axis=(1, 2), keepdims=True)
    return centred


def _centres(pixels: int) -> NDArray[np.float32]:
    """The positions of pixels on a side of length 1 centred at 0."""
    centres: NDArray[np.float32] = ((np.arange(pixels) + 0.5) / pixels - 0.5).astype(np.float32)
    return centres


def _resampling(moved: NDArray[np.float32], pixels: int) -> NDArray[np.float32]:
    """Weights [M, pixels, pixels] of linear interpolation after a shift and a stretch, [M, 2], of the side."""
    places = _centres(pixels) * (1 + moved[:, 1:]) + moved[:, :1]
    numbers = np.arange(pixels, dtype=np.float32)
    places = np.clip((places + 0.5) * pixels - 0.5, 0, pixels - 1)
    weights: NDArray[np.float32] = np.maximum(0, 1 - np.abs(places[..., np.newaxis] - numbers))
    return weights
