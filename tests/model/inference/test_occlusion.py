"""Heatmaps of what a class depends on."""

import io

import numpy as np
import PIL.Image
import pytest
from support.raw import encoded, picture

from perennial.model.inference import image_inputs, occlusion
from perennial.model.inference.occlusion import CELLS, PATCH, heatmap, overlay

PIXELS = picture(3, 16)


def source(pixels, kind: str = "PNG"):
    (found,) = image_inputs.from_values(encoded(pixels, kind))
    return found


def probability(classifier, pixels, index: int) -> float:
    return float(classifier.predict(pixels)[0].probabilities[index])


def test_a_corner_has_the_loss_of_the_only_patch_that_covers_it(classifier) -> None:
    index = classifier.predict(PIXELS)[0].index
    heat, pixels = heatmap(classifier, source(PIXELS), index)
    assert (pixels == PIXELS).all()
    covered = PIXELS.copy()
    side = 16 * PATCH // CELLS
    covered[:side, :side] = PIXELS.mean(axis=(0, 1)).astype(np.uint8)
    lost = probability(classifier, PIXELS, index) - probability(classifier, covered, index)
    assert heat[0, 0] == pytest.approx(lost, abs=1e-5)


def test_an_image_of_one_colour_has_no_hot_place(classifier) -> None:
    heat, _ = heatmap(classifier, source(np.full((16, 16, 3), 90, np.uint8)), 0)
    assert np.abs(heat).max() < 1e-5


@pytest.mark.parametrize("shape", [(8, 8, 1), (9, 31, 3), (5, 6, 3)])
def test_images_of_any_shape_have_a_heatmap_and_an_overlay_of_their_size(classifier, shape) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    heat, found = heatmap(classifier, source(pixels if shape[2] == 3 else pixels[..., 0]), 1)
    assert heat.shape == (CELLS, CELLS)
    assert PIL.Image.open(io.BytesIO(overlay(heat, found))).size == (shape[1], shape[0])


def test_large_images_are_reduced_for_a_model_that_takes_any_size(classifier, monkeypatch) -> None:
    monkeypatch.setattr(occlusion, "MOST_SIDE", 12)
    _, pixels = heatmap(classifier, source(picture(1, 24), "JPEG"), 0)
    assert pixels.shape == (12, 12, 3)


def test_the_hottest_place_is_the_reddest(classifier) -> None:
    heat = np.zeros((CELLS, CELLS), np.float32)
    heat[2, 5] = 0.5
    shown = np.asarray(PIL.Image.open(io.BytesIO(overlay(heat, np.full((80, 80, 3), 128, np.uint8))))).astype(
        int
    )
    red = shown[..., 0] - shown[..., 1]
    row, column = np.unravel_index(red.argmax(), red.shape)
    assert (row // 10, column // 10) == (2, 5)
    assert red[60:, :20].max() == 0
