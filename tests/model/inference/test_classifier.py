"""Classifier.predict: inputs, order and errors."""

import threading
import time
import types
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from support.inference import CLASSES, write_export
from support.odd_images import saved
from support.raw import picture

import perennial
from perennial.base.errors import ConfigError, DataError, QualityError
from perennial.data.images import decode
from perennial.model.inference import classifier as module
from perennial.model.inference.classifier import Classifier
from perennial.model.inference.image_inputs import PixelBudget

IMAGE = picture(5, 24)
PHOTO = PIL.Image.fromarray(IMAGE)
PNG = saved(PHOTO, "PNG")
GREY = PHOTO.convert("L")


def probabilities(predictions) -> np.ndarray:
    return np.stack([answer.probabilities for answer in predictions])


@pytest.mark.parametrize("image", [np.asarray(GREY), np.asarray(GREY)[..., None], GREY], ids=["2", "3", "L"])
def test_gray_is_repeated_for_every_channel(world, classifier, image) -> None:
    (answer,) = classifier.predict(image)
    np.testing.assert_allclose(answer.probabilities, world.expected(np.asarray(GREY)[..., None]), atol=1e-5)


@pytest.mark.parametrize("mode", ["1", "P", "LA", "RGBA", "CMYK", "I;16"])
def test_pillow_images_of_any_mode_are_classified(classifier, mode) -> None:
    image = (
        GREY.convert("I").point(lambda value: value * 256).convert(mode)
        if mode == "I;16"
        else PHOTO.convert(mode)
    )
    assert len(classifier.predict(image)) == 1


def test_no_images_give_no_predictions(classifier) -> None:
    assert classifier.predict([]) == []


def test_predictions_of_many_batches_come_in_order(world, classifier) -> None:
    images = [picture(number, 20 + number % 5) for number in range(80)]
    predictions = probabilities(classifier.predict(iter(images)))
    np.testing.assert_allclose(predictions, [world.expected(image) for image in images], atol=1e-5)
    assert len(np.unique(predictions.round(4), axis=0)) > 50


def test_large_images_go_through_the_model_in_parts(classifier, monkeypatch) -> None:
    images = [picture(number, 40) for number in range(20)]
    expected = probabilities(classifier.predict(images))
    monkeypatch.setattr(module, "BATCH_PIXELS", 3 * 40 * 40)
    np.testing.assert_allclose(probabilities(classifier.predict(images)), expected, atol=1e-6)


class Watched:
    """A loaded export whose signature records how many pixels are in it at a time."""

    def __init__(self, model) -> None:
        self.signatures = model.signatures | {"classify_bytes": self.classify}
        self.classify_bytes = model.signatures["classify_bytes"]
        self.now = self.most = 0
        self.lock = threading.Lock()

    def classify(self, image):
        pixels = sum(found.height * found.width for found in map(decode.header, image.numpy()))
        with self.lock:
            self.now += pixels
            self.most = max(self.now, self.most)
        try:
            time.sleep(0.01)  # long enough that others would begin
            return self.classify_bytes(image=image)
        finally:
            with self.lock:
                self.now -= pixels


@pytest.mark.parametrize("pixels", [2 * 40 * 40, 10])  # for two images, or less than one
def test_all_workers_together_stay_within_the_pixel_budget(classifier, pixels: int, monkeypatch) -> None:
    monkeypatch.setattr(module, "WORKERS", 4)
    monkeypatch.setattr(module, "BATCH_PIXELS", 40 * 40)
    watched = Watched(types.SimpleNamespace(signatures=dict(classifier._model.signatures)))
    limited = Classifier(watched, CLASSES, budget=PixelBudget(pixels))
    assert len(limited.predict([picture(number, 40) for number in range(60)])) == 60
    assert 0 < watched.most <= max(pixels, 40 * 40)


@pytest.mark.parametrize(("top", "count"), [(1, 1), (2, 2), (np.int64(2), 2), (99, 3)])
def test_the_most_probable_classes_come_in_descending_order(classifier, top: int, count: int) -> None:
    (answer,) = classifier.predict(IMAGE, top=top)
    order = np.argsort(-answer.probabilities)[:count]
    assert [each.index for each in answer.classes] == order.tolist()
    assert [each.label for each in answer.classes] == [CLASSES[index] for index in order]
    assert [each.probability for each in answer.classes] == answer.probabilities[order].tolist()
    assert (answer.label, answer.index) == (CLASSES[order[0]], order[0])
    assert answer.probability == answer.probabilities.max()


@pytest.mark.parametrize(
    "option",
    [*({"top": top} for top in (0, -1, 1.5, None, "2")), *({"on_bad_image": how} for how in ("Fail", None))],
)
def test_invalid_options_are_refused(classifier, option: dict[str, object]) -> None:
    ((name, value),) = option.items()
    with pytest.raises(ConfigError, match=f"^{name} .*got {value!r}"):
        classifier.predict(IMAGE, **option)


INVALID = {
    "two channels": (IMAGE[..., :2], r"^image 0: .*uint8 \[24, 24, 2\]"),
    "one axis": (IMAGE[0, 0], r"^image 0: .*uint8 \[3\]"),
    "nothing in it": (IMAGE[:0], "^image 0: .*24 x 0 pixels"),
    "no file": (Path("no/such.jpg"), "^no/such.jpg: .*No such file"),
    "a folder": (Path("/"), "^/: .*Is a directory"),
    "no name": ("a\0b.jpg", "null byte"),
}


@pytest.mark.parametrize(("image", "reason"), INVALID.values(), ids=INVALID)
def test_an_invalid_image_is_a_data_error_or_none(classifier, image, reason: str) -> None:
    assert [each is None for each in classifier.predict([image, PHOTO], on_bad_image="skip")] == [True, False]
    with pytest.raises(DataError, match=reason):
        classifier.predict([PHOTO, image][::-1])


@pytest.mark.parametrize(
    ("images", "message"),
    [([PHOTO, b"", PHOTO, b""], r"^image 1: .*on_bad_image"), ([PHOTO, 1], "^image 1 .*int")],
)
def test_the_first_bad_image_is_named_by_its_index(classifier, images, message: str) -> None:
    with pytest.raises(DataError, match=message):
        classifier.predict(images)


def test_no_threads_remain_after_a_call(classifier) -> None:
    classifier.predict([PHOTO] * 50)
    with pytest.raises(DataError):
        classifier.predict([b"", *[PHOTO] * 500])
    for thread in threading.enumerate():
        if thread.name.startswith("predict"):
            thread.join(600)
            assert not thread.is_alive()


def test_images_of_another_size_are_bad_for_a_model_of_fixed_size(tmp_path) -> None:
    model = perennial.load(write_export(tmp_path / "export", side=20).folder)
    good, bad = model.predict([picture(0, 20), picture(0, 21)], on_bad_image="skip")
    assert (good is None, bad) == (False, None)
    with pytest.raises(DataError, match=r"21 x 21 .*20 x 20"):
        model.predict(picture(0, 21))


def test_probabilities_that_are_not_finite_are_a_quality_error(tmp_path) -> None:
    model = perennial.load(write_export(tmp_path / "export", scale=np.nan).folder)
    with pytest.raises(QualityError, match="not finite"):
        model.predict(IMAGE)
