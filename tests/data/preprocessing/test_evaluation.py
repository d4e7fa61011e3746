"""What images are judged on, against tf.image."""

import pytest
import tensorflow as tf

from perennial.data.preprocessing import PREPROCESSING


def by_tf_image(name, images, size, resize):
    images = tf.cast(images, tf.float32)
    height, width = images.shape[1:3]
    match name:
        case "rescale":
            return tf.round(tf.image.resize(images, (size, size), antialias=True)) / 255
        case "lenet":
            return (tf.image.resize_with_crop_or_pad(images, size, size) - 128) / 128
        case "cifarnet" | "cifar10_tutorial":
            return tf.image.per_image_standardization(tf.image.resize_with_crop_or_pad(images, size, size))
        case "inception":
            return resize(tf.image.central_crop(images / 255, 0.875), (size, size)) * 2 - 1
        case "vgg":
            side = round(256 * size / 224)
            scale = side / min(height, width)
            resized = resize(images, (int(height * scale + 0.5), int(width * scale + 0.5)))
            means = (123.68, 116.78, 103.94) if images.shape[-1] == 3 else 117.367
            return tf.image.resize_with_crop_or_pad(resized, size, size) - means
        case _:
            return tf.image.resize(images, (size, size), antialias=True) / 127.5 - 1


# How TF-Slim resized: tf.image.resize_bilinear of TensorFlow 1, without half-pixel centers.
RESIZE = {"exact": tf.image.resize, "legacy": tf.compat.v1.image.resize_bilinear}


@pytest.mark.parametrize(
    ("name", "resize"),
    [*((name, "exact") for name in PREPROCESSING), ("inception", "legacy"), ("vgg", "legacy")],
)
@pytest.mark.parametrize(("shape", "size"), [((32, 32, 3), 24), ((21, 33, 3), 32), ((28, 28, 1), 28)])
def test_images_are_judged_as_published(name, shape, size, resize, pixels, images):
    raw = images(3, *shape)
    found = pixels(name, shape, image_size=size, resize=resize).evaluation(raw).numpy()
    tolerance = 2e-3 if name == "vgg" else 1e-5  # of 0..255
    assert found == pytest.approx(by_tf_image(name, raw, size, RESIZE[resize]).numpy(), abs=tolerance)


@pytest.mark.parametrize("name", ["rescale", "lenet"])
def test_some_preprocessings_train_on_what_they_judge(name, pixels, images):
    raw, way = images(2, 12, 12, 1), pixels(name, (12, 12, 1), image_size=8)
    assert (way.training(raw, tf.zeros((2, 2), tf.int32)).numpy() == way.evaluation(raw).numpy()).all()


@pytest.mark.parametrize("name", PREPROCESSING)
def test_floats_are_judged_as_the_bytes_that_they_are(name, pixels, images):
    raw, way = images(2, 20, 24, 3), pixels(name, (20, 24, 3), image_size=16)
    assert (way.evaluation(tf.cast(raw, tf.float32)).numpy() == way.evaluation(raw).numpy()).all()
