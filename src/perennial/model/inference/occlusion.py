"""Heatmaps of which parts of an image a class depends on: how much it loses while a grey patch covers them.

Source: M. D. Zeiler and R. Fergus, Visualizing and Understanding Convolutional Networks, 2014, section 4.2.
"""

import io
from itertools import product

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from perennial.base.errors import DataError
from perennial.data.images import BadImage, Refused, decode, png
from perennial.model.inference import image_inputs
from perennial.model.inference.classifier import BATCH, Classifier
from perennial.model.inference.image_inputs import ImageSource

CELLS = 8  # of a heatmap's sides
PATCH = 2  # cells that the patch covers, so that each cell is covered by several
MOST_SIDE = 512  # pixels; larger images are reduced first, because each patch is another image to decode
TINY = 1e-12  # in place of the highest loss where there is none
HOT = (214, 39, 40)  # red
Heatmap = NDArray[np.float32]  # [CELLS, CELLS]


def heatmap(classifier: Classifier, image: ImageSource, index: int) -> tuple[Heatmap, NDArray[np.uint8]]:
    """How much probability the class `index` loses where the image is covered, and the pixels of the image.

    The loss is averaged over the patches that cover a cell, below 0 where the class gains; pixels are uint8
    [height, width, 1 or 3].
    """
    most_side = MOST_SIDE if classifier.image_size == (None, None) else None  # None: the model takes one size
    encoded = image_inputs.limited(classifier.encoded(image), image_inputs.PixelBudget(), most_side)
    try:
        pixels = decode.array(decode.decoded(encoded))
    except ValueError as error:
        raise Refused(f"it cannot be decoded: {error}") from error
    places = list(product(range(CELLS - PATCH + 1), repeat=2))
    rows, columns = (np.linspace(0, side, CELLS + 1).round().astype(int) for side in pixels.shape[:2])
    grey = pixels.mean(axis=(0, 1)).astype(np.uint8)
    before = _probability(classifier, [pixels], index)[0]
    lost, covered = np.zeros((CELLS, CELLS)), np.zeros((CELLS, CELLS))
    for start in range(0, len(places), BATCH):
        batch = []
        for row, column in places[start : start + BATCH]:
            changed = pixels.copy()
            changed[rows[row] : rows[row + PATCH], columns[column] : columns[column + PATCH]] = grey
            batch.append(changed)
        after = _probability(classifier, batch, index)
        for (row, column), probability in zip(places[start:], after, strict=False):
            lost[row : row + PATCH, column : column + PATCH] += before - probability
            covered[row : row + PATCH, column : column + PATCH] += 1
    return (lost / covered).astype(np.float32), pixels


def overlay(heat: Heatmap, pixels: NDArray[np.uint8]) -> bytes:
    """A PNG of the image in grey, red where the class depends on it; the hottest place is the reddest."""
    height, width = pixels.shape[:2]
    grey = PIL.Image.fromarray(pixels.mean(axis=2).astype(np.uint8))
    share = np.clip(heat, 0, None) / max(float(heat.max()), TINY)
    mask = PIL.Image.fromarray((160 * share).astype(np.uint8)).resize(
        (width, height), PIL.Image.Resampling.BICUBIC
    )
    stream = io.BytesIO()
    PIL.Image.composite(PIL.Image.new("RGB", (width, height), HOT), grey.convert("RGB"), mask).save(
        stream, "PNG"
    )
    return stream.getvalue()


def _probability(classifier: Classifier, images: list[NDArray[np.uint8]], index: int) -> list[float]:
    sources = [image_inputs.from_record("the image", png.encode(image)) for image in images]
    outputs = classifier.outputs(sources)
    refused = [each for each in outputs if isinstance(each, BadImage)]
    if refused:
        raise DataError(f"the model refuses the image with a patch: {refused[0].reason}")
    return [float(each[index]) for each in outputs if not isinstance(each, BadImage)]
