"""Dropout whose masks depend on seed, layer and place alone."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from perennial.model.models.layers import Dropout, DropPath, randomness

RATE, BATCH, UNITS = 0.4, 8, 5000
ONES = np.ones((BATCH, UNITS), np.float32)


def dropped(layer: keras.Layer, positions: range | list[int], step: int = 0) -> np.ndarray:
    """What the layer makes of ones at these places of a global batch."""
    with randomness(tf.constant([7, step]), tf.constant(positions), BATCH):
        return layer(ONES[: len(positions)], training=True).numpy()


@pytest.fixture
def layer() -> Dropout:
    return Dropout(RATE, name="dropout")


@pytest.mark.parametrize("parts", [2, 4])
def test_parts_of_a_batch_get_the_mask_of_the_whole(layer: Dropout, parts: int) -> None:
    size = BATCH // parts
    pieces = [dropped(layer, range(start, start + size)) for start in range(0, BATCH, size)]
    np.testing.assert_array_equal(np.concatenate(pieces), dropped(layer, range(BATCH)))


def test_a_row_belongs_to_its_place_in_whatever_order(layer: Dropout) -> None:
    order = [5, 0, 3]
    np.testing.assert_array_equal(dropped(layer, order), dropped(layer, range(BATCH))[order])


def test_masks_of_steps_examples_and_layers_are_independent(layer: Dropout) -> None:
    first = dropped(layer, range(BATCH))
    others = [
        dropped(layer, range(BATCH), step=1),
        dropped(Dropout(RATE, name="dropout_2"), range(BATCH)),
        np.roll(first, 1, axis=0),
    ]
    # Independent masks agree where both keep or both drop: 0.6 * 0.6 + 0.4 * 0.4.
    agreement = [np.mean((first > 0) == (other > 0)) for other in others]
    assert agreement == pytest.approx([0.52] * 3, abs=0.02)


def test_the_expectation_is_the_input_itself(layer: Dropout) -> None:
    values = np.concatenate([dropped(layer, range(BATCH), step=step) for step in range(5)])
    assert set(np.unique(values)) == {np.float32(0), np.float32(1) / np.float32(0.6)}
    assert values.mean() == pytest.approx(1, abs=5 * np.sqrt(RATE / (1 - RATE) / values.size))


def test_a_noise_shape_leaves_out_whole_examples() -> None:
    layer = Dropout(0.5, (None, 1), name="branch")
    rows = np.concatenate([dropped(layer, range(BATCH), step=step) for step in range(20)])
    assert {tuple(np.unique(row)) for row in rows} == {(0.0,), (2.0,)}


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_drops_the_same_units(layer: Dropout, dtype: str) -> None:
    mixed = Dropout(RATE, name="dropout", dtype=dtype)
    np.testing.assert_array_equal(dropped(mixed, range(BATCH)) > 0, dropped(layer, range(BATCH)) > 0)


def test_nothing_is_dropped_outside_of_training(layer: Dropout) -> None:
    with randomness(tf.constant([7, 0]), tf.range(BATCH), BATCH):
        np.testing.assert_array_equal(layer(ONES).numpy(), ONES)


def test_a_bare_layer_drops_as_keras_does(layer: Dropout) -> None:
    keras.utils.set_random_seed(0)
    first, second = (tf.function(layer)(ONES, training=True).numpy() for _ in range(2))
    assert (first == 0).mean() == pytest.approx(RATE, abs=0.02)
    assert (first != second).any()


@pytest.mark.parametrize(("step", "rate"), [(0, 0.0), (50, 0.2), (100, 0.4), (1000, 0.4)])
def test_the_rate_of_drop_path_rises_with_the_steps(step: int, rate: float) -> None:
    layer = DropPath(0.4, 100, name="branch")
    ones = np.ones((400, 2, 2, 3), np.float32)
    with randomness(tf.constant([7, step]), tf.range(400), 400):
        found = layer(ones, training=True).numpy()
    assert {len(np.unique(image)) for image in found} == {1}  # whole images
    assert (found[:, 0, 0, 0] == 0).mean() == pytest.approx(rate, abs=0.08)
    assert found.max() == pytest.approx(1 / (1 - rate))
    assert DropPath.from_config(layer.get_config()).steps == 100
