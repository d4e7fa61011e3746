# Origin: deep-al/pycls/al/typiclust.py of github.com/avihu111/TypiClust (MIT): the steps and their limits.
"""Which images to label while there are few labels: typical ones of each group of images that has no label.

A model that has seen few labels is unsure of the wrong images, so labels of typical images teach more.
TypiClust cuts the images into as many groups as there will be labels. Each of the largest groups without a
label gives the image with the smallest mean distance to its nearest neighbours in the group.

Sources: G. Hacohen, A. Dekel and D. Weinshall, Active Learning on a Budget: Opposite Strategies Suit High and
Low Budgets, 2022; features without a network: A. Coates, H. Lee and A. Ng, An Analysis of Single-Layer Networks
in Unsupervised Feature Learning, 2011.
"""

import warnings
from collections.abc import Callable, Iterable

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from perennial.data.images import decode

ENOUGH = 10  # labels a class, from which on margins choose better
POOL = 2000  # images that are compared, at most
SIDE, PATCH = 32, 6  # pixels of the picture that stands for an image, and of its patches
KINDS, SAMPLED = 100, 10_000  # of patches, and the patches that the kinds are found in
FIRST, MOST_GROUPS, NEIGHBOURS = 20, 500, 20
Pictures = NDArray[np.uint8]  # [N, SIDE, SIDE, 3]
Values = NDArray[np.float32]  # [N, width]


def choose(
    names: Iterable[str], fetch: Callable[[str], bytes | None], labelled: Iterable[bytes], count: int, seed: int
) -> list[str]:
    """Up to `count` of the images that can be read, the first to label first; equal arguments, equal names."""
    there = [found for each in labelled if (found := small_picture(each)) is not None]
    new = {name: found for name in names if (found := small_picture(fetch(name))) is not None}
    if not new:
        return []
    rows = order(features(np.stack([*there, *new.values()])), len(there), count, seed)
    return [list(new)[row - len(there)] for row in rows]


def small_picture(content: bytes | None) -> Pictures | None:
    """A small picture of a JPEG or PNG file; None if it cannot be read."""
    try:
        image = decode.opened(content or b"")
        image.draft(None, (2 * SIDE, 2 * SIDE))
        image.load()
        small = decode.plain(image).convert("RGB").resize((SIDE, SIDE), PIL.Image.Resampling.BILINEAR)
    except decode.PILLOW_ERRORS:
        return None
    return np.asarray(small)


def features(pictures: Pictures) -> Values:
    """How near the patches in each quarter of a picture are to the kinds of patches in all of them."""
    from sklearn.cluster import MiniBatchKMeans  # noqa: PLC0415 - takes a second

    def patches(of: Pictures) -> Values:
        """All patches as rows, without their brightness and contrast."""
        rows = np.lib.stride_tricks.sliding_window_view(of, (PATCH, PATCH), axis=(1, 2))
        values = rows.reshape(-1, 3 * PATCH**2).astype(np.float32)
        values -= values.mean(1, keepdims=True)
        values /= np.sqrt(values.var(1, keepdims=True) + 10)
        return values

    random, side = np.random.default_rng(0), SIDE - PATCH + 1
    sample = patches(pictures[random.permutation(len(pictures))[: SAMPLED // side]])
    sample = random.permutation(sample)[:SAMPLED]
    variances, axes = np.linalg.eigh(np.cov(sample.T))
    whitening = (axes / np.sqrt(variances + 0.1) @ axes.T).astype(np.float32)
    kinds = MiniBatchKMeans(KINDS, n_init=1, random_state=0).fit(sample @ whitening).cluster_centers_

    def seen(one: Pictures) -> Values:
        rows = patches(one[None]) @ whitening
        squares = (rows**2).sum(1)[:, None] + (kinds**2).sum(1) - 2 * rows @ kinds.T
        far = np.sqrt(np.maximum(squares, 0)).reshape(side, side, KINDS)
        near = np.maximum(far.mean(2, keepdims=True) - far, 0)
        halves = near[: side // 2], near[side // 2 :]
        return np.concatenate(
            [part.mean((0, 1)) for half in halves for part in np.array_split(half, 2, axis=1)]
        )

    found = np.stack([seen(each) for each in pictures])
    scaled: Values = (found - found.mean(0)) / (found.std(0) + 1e-6)
    return scaled


def order(found: Values, labelled: int, count: int, seed: int) -> list[int]:
    """The rows to label next, after the first `labelled` ones; fewer than `count` at MOST_GROUPS.

    They are chosen in rounds that double the labels, so that the first of many serve as well as a few would.
    """
    from sklearn.cluster import KMeans  # noqa: PLC0415
    from sklearn.metrics import pairwise_distances  # noqa: PLC0415

    def typical(rows: NDArray[np.int64]) -> int:
        distances = np.sort(pairwise_distances(found[rows]), axis=1)
        return int(rows[distances[:, : NEIGHBOURS + 1].mean(1).argmin()])  # the nearest one is the image itself

    there, most = list(range(labelled)), min(labelled + count, len(found), MOST_GROUPS)
    while len(there) < most:
        batch = min(max(len(there), FIRST), most - len(there))
        with warnings.catch_warnings(action="ignore"):  # of fewer different images than groups
            groups = KMeans(len(there) + batch, n_init=1, random_state=seed).fit_predict(found)
        sizes = np.bincount(groups)
        sizes[groups[there]] = 0
        largest = [group for group in np.argsort(-sizes, kind="stable") if sizes[group]]
        if not largest:
            break
        there += [typical(np.flatnonzero(groups == group)) for group in largest[:batch]]
    return there[labelled:]
