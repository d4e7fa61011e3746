"""Images of different sizes, decoded and distorted one by one, against whole images in a batch."""

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from support.odd_images import saved

from perennial.base.config.training import AugmentationConfig
from perennial.data.preprocessing import PREPROCESSING, keys, photographs
from perennial.data.preprocessing.randomness import alternating
from perennial.data.preprocessing.transforms import Window

NONE = AugmentationConfig()
DISTORTING = [name for name, each in PREPROCESSING.items() if each.distortion is not None]
SIZES = [(30, 22), (16, 16), (41, 70), (9, 33), (60, 13)]


def encoded(pixels, kind="PNG", mode=None, **options):
    image = PIL.Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    return saved(image.convert(mode) if mode else image, kind, **options)


def shown(content):
    return tf.constant(content, tf.string)


@pytest.mark.fast_rows(
    "cifarnet-True-exact", "inception-True-legacy", "vgg-True-exact", "inception-False-exact"
)
@pytest.mark.parametrize("resize", ["exact", "legacy"])
@pytest.mark.parametrize(("name", "fast"), [*((name, True) for name in DISTORTING), ("inception", False)])
def test_photographs_are_distorted_like_images_of_one_size(name, fast, resize, pixels, images):
    drawn, options = keys(3, 3, tf.range(8)), {"image_size": 16, "fast": fast, "resize": resize}
    way = pixels(name, (None, None, 3), **options)
    for size in SIZES[1:] if resize == "exact" and not fast else SIZES[-2:]:
        raw = images(8, *size, 3)
        found = photographs.for_training(shown([encoded(each) for each in raw.numpy()]), drawn, way, NONE)
        assert way.distortion is not None
        placed = way.distortion.placed(tf.cast(raw, tf.float32), drawn, way.target)
        exact = np.clip(placed.numpy(), 0, 255)
        assert (found.dtype, found.shape) == (tf.uint8, (8, 16, 16, 3))
        difference = np.abs(found.numpy().astype(np.float32) - exact)
        # tf.image's cubic comes from a table of 1024 rows.
        assert difference.max() <= (0.8 if not fast else 0.51)


@pytest.mark.fast_rows("inception")
@pytest.mark.parametrize("name", DISTORTING)
def test_colors_and_values_follow_in_the_training_step(name, pixels, images):
    drawn, raw = keys(3, 3, tf.range(6)), images(6, 30, 22, 3)
    content = shown([encoded(each) for each in raw.numpy()])
    for channels in (1, 3):
        way = pixels(name, (None, None, 3), image_size=16, grayscale=channels == 1)
        found = way.finished(photographs.for_training(content, drawn, way, NONE), drawn).numpy()
        expected = way.training(raw, drawn).numpy()
        assert found.shape == expected.shape == (6, 16, 16, channels)
        # Half a level, enhanced by up to 1.5 for inception, and 1.8 where images are standardized.
        assert np.abs(found - expected).max() <= {"vgg": 0.51}.get(name, 0.1 if "cifar" in name else 0.013)


@pytest.mark.parametrize("name", ["rescale", "lenet", "plain"])
def test_what_is_not_distorted_is_trained_on_as_it_is_judged(name, pixels, images):
    raw, way = images(3, 30, 22, 3), pixels(name, (None, None, 3), image_size=16)
    content = shown([encoded(each) for each in raw.numpy()])
    found = way.finished(photographs.for_training(content, keys(0, 0, tf.range(3)), way, NONE), None)
    assert (found.numpy() == way.evaluation(raw).numpy()).all()


@pytest.mark.fast_rows("rescale", "cifarnet", "inception", "vgg")
@pytest.mark.parametrize("name", PREPROCESSING)
def test_an_image_is_judged_alike_alone_and_in_a_batch(name, pixels, images):
    raw, way = images(3, 31, 23, 3), pixels(name, (None, None, 3), image_size=16, resize="legacy")
    one = tf.function(way.evaluation_one, [tf.TensorSpec((None, None, 3), tf.uint8)], autograph=False)
    many = tf.function(way.evaluation, [tf.TensorSpec((None, None, None, 3), tf.uint8)], autograph=False)
    assert (np.stack([one(each) for each in raw]) == many(raw).numpy()).all()


KINDS = {
    "jpeg": lambda pixels: encoded(pixels, "JPEG", quality=95),
    "progressive": lambda pixels: encoded(pixels, "JPEG", progressive=True, subsampling=0),
    "grey jpeg": lambda pixels: encoded(pixels[..., :1], "JPEG"),
    "cmyk": lambda pixels: encoded(pixels, "JPEG", "CMYK"),
    "grey png": lambda pixels: encoded(pixels[..., :1]),
    "palette": lambda pixels: encoded(pixels, "PNG", "P"),
    "alpha": lambda pixels: encoded(pixels, "PNG", "RGBA"),
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["inception", "vgg"])
def test_a_part_of_any_file_is_that_part_of_the_whole_image(name, channels, pixels, images):
    raw = images(1, 120, 90, 3).numpy()[0]
    kinds = [kind for kind in KINDS if channels == 3 or kind != "cmyk"]  # TensorFlow makes no grey of CMYK
    content = shown([KINDS[kind](raw) for kind in kinds])
    drawn = keys(1, 0, tf.range(len(kinds)))
    way = pixels(name, (None, None, channels), image_size=32)
    found = photographs.for_training(content, drawn, way, NONE).numpy().astype(np.float32)
    for number, kind in enumerate(kinds):
        whole = tf.cast(photographs.decoded(content[number], way), tf.float32)[None]
        expected = way.distortion.placed(whole, drawn[number : number + 1], way.target).numpy()[0]
        difference = np.abs(found[number] - expected)
        if kind in {"jpeg", "cmyk"} and channels == 3:  # colors at the edges are those without what is outside
            assert np.quantile(difference, 0.9) <= 0.51
        else:
            assert difference.max() <= 0.51, kind


@pytest.mark.fast_rows("inception")
@pytest.mark.parametrize("name", ["inception", "vgg"])
def test_equal_bits_come_in_batches_of_any_size_and_order(name, pixels, images):
    content = [KINDS[kind](images(1, *size, 3).numpy()[0]) for kind in ("jpeg", "palette") for size in SIZES]
    way, drawn = pixels(name, (None, None, 3), image_size=24, fast=False), keys(3, 3, tf.range(10))
    signature = [tf.TensorSpec([None], tf.string), tf.TensorSpec([None, 2], tf.int32)]
    train = tf.function(lambda *given: photographs.for_training(*given, way, NONE), signature, autograph=False)
    together = train(shown(content), drawn).numpy()
    some = [9, 0, 4]
    chosen = train(shown([content[number] for number in some]), tf.gather(drawn, some)).numpy()
    assert (chosen == together[some]).all()


@pytest.mark.fast_rows("True-False")
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("fast", [True, False])
def test_colors_have_equal_bits_in_batches_of_any_size(fast, compiled, pixels, images):
    raw, drawn = tf.cast(images(32, 61, 61, 3), tf.float32), keys(3, 3, tf.range(32))
    way = pixels("inception", (None, None, 3), image_size=61, fast=fast)
    assert way.distortion is not None
    change = tf.function(
        lambda some, drawn: way.distortion.finished(some, drawn, way.target),
        [tf.TensorSpec([None, 61, 61, 3]), tf.TensorSpec([None, 2], tf.int32)],
        jit_compile=compiled,
    )
    together = change(raw, drawn).numpy()
    for first, last in ((0, 1), (3, 6)):
        assert (change(raw[first:last], drawn[first:last]).numpy() == together[first:last]).all()


@pytest.mark.parametrize("kind", ["jpeg", "palette"])
def test_a_flip_that_alternates_comes_before_the_crop(kind, pixels, images):
    raw, numbers = images(1, 48, 64, 3).numpy()[0], tf.range(8, dtype=tf.int64)
    way, content = pixels("inception", (None, None, 3), image_size=24, resize="legacy"), KINDS[kind](raw)
    drawn = alternating(keys(1, 0, numbers), 1, tf.constant(0, tf.int64), numbers)
    flips = AugmentationConfig(alternating_flip=True)
    found = photographs.for_training(shown([content] * 8), drawn, way, flips).numpy()
    whole = tf.cast(photographs.decoded(tf.constant(content), way), tf.float32)
    turned = drawn[:, 1].numpy() & 1 == 1
    raw = tf.stack([whole[:, ::-1] if turn else whole for turn in turned])
    expected = way.distortion.placed(raw, drawn, way.target).numpy()
    assert set(turned) == {False, True}
    assert np.quantile(np.abs(found - expected), 0.9) <= 0.51


def test_the_window_holds_every_pixel_that_counts(pixels):
    sizes = tf.constant([(300, 200), (224, 224), (100, 1000), (1, 1), (2000, 3000)])
    for name in ("inception", "vgg"):
        way = pixels(name, (None, None, 3), image_size=224)
        windows: Window = way.distortion.windows(sizes, keys(0, 0, tf.range(5)), way.target)
        (top, left, height, width), whole = windows.rectangle.numpy().T, sizes.numpy()
        assert (np.minimum(top, left) >= 0).all()
        assert (np.minimum(height, width) >= 1).all()
        assert (top + height <= whole[:, 0]).all()
        assert (left + width <= whole[:, 1]).all()
