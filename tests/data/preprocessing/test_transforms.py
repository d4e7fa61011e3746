"""Colors of batches, against tf.image on one image at a time."""

import numpy as np
import pytest
import tensorflow as tf

from perennial.data.preprocessing import transforms

AMOUNTS = np.array([0.0, 0.3, 0.5, 1.0, 1.5], np.float32)


@pytest.fixture
def bright(images):
    """Images of 0..1 and, as after a change of brightness, somewhat outside."""
    return tf.cast(images(5, 12, 10, 3), tf.float32) / 200.0 - 0.1


def changed(images, **amounts):
    zeros = tf.zeros(len(images))
    nothing = transforms.HsvChanges(brightness=zeros, saturation=zeros - 1, brightness_after=zeros, hue=zeros)
    planes = transforms.adjust_hsv(tf.unstack(images, axis=-1), nothing._replace(**amounts))
    return tf.stack(planes, axis=-1)


def hsv(change):
    return lambda images, amounts: changed(images, **{change: amounts})


def contrasts(images, factors):
    return tf.stack(transforms.adjust_contrasts(tf.unstack(images, axis=-1), factors), axis=-1)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (transforms.adjust_brightness, tf.image.adjust_brightness),
        (transforms.adjust_contrast, tf.image.adjust_contrast),
        (transforms.adjust_saturation, tf.image.adjust_saturation),
        (hsv("brightness"), tf.image.adjust_brightness),
        (hsv("brightness_after"), tf.image.adjust_brightness),
        (hsv("saturation"), tf.image.adjust_saturation),
        (hsv("hue"), tf.image.adjust_hue),
        (contrasts, tf.image.adjust_contrast),
    ],
)
def test_each_image_is_changed_as_by_tf_image(ours, theirs, bright):
    amounts = np.minimum(AMOUNTS, 1.0) if theirs is tf.image.adjust_hue else AMOUNTS
    expected = tf.stack([theirs(image, amount) for image, amount in zip(bright, amounts, strict=True)])
    assert ours(bright, tf.constant(amounts)).numpy() == pytest.approx(expected.numpy(), abs=2e-6)


@pytest.mark.parametrize("change", [transforms.adjust_saturation, hsv("saturation"), hsv("hue")])
def test_gray_stays_gray(change):
    gray = tf.random.stateless_uniform((2, 4, 4, 1), (0, 0))
    assert (change(gray, tf.constant([0.2, 0.4])).numpy() == gray.numpy()).all()
    as_rgb = tf.repeat(gray, 3, axis=-1)
    assert change(as_rgb, tf.constant([0.2, 0.4])).numpy() == pytest.approx(as_rgb.numpy(), abs=1e-6)


def test_colors_become_grey_by_their_luma():
    image = tf.constant([[[[100.0, 50.0, 200.0]]]])
    assert float(transforms.convert_channels(image, 1)[0, 0, 0, 0]) == pytest.approx(29.89 + 29.35 + 22.8)
