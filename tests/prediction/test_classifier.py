"""The call from Python: what it takes, in which order it answers, what it refuses."""

import threading
import time
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from prediction.conftest import CLASSES, saved_as, write_export
from support.raw import picture

import perennial
from perennial.errors import ConfigError, DataError, QualityError
from perennial.images import header
from perennial.prediction import classifier as module
from perennial.prediction.budget import Budget

IMAGE = picture(5, 24)
PHOTO = PIL.Image.fromarray(IMAGE)
PNG = saved_as(PHOTO, "PNG")
GREY = PHOTO.convert("L")


def probabilities(answers) -> np.ndarray:
    return np.stack([answer.probabilities for answer in answers])


def test_a_path_bytes_an_array_and_an_image_of_pillow_get_the_same_answer(world, classifier, tmp_path) -> None:
    file = tmp_path / "an image.png"
    file.write_bytes(PNG)
    answers = classifier.predict([file, str(file), PNG, IMAGE, PHOTO, PHOTO])
    assert len(answers) == 6
    np.testing.assert_allclose(probabilities(answers), [world.expected(IMAGE)] * 6, atol=1e-5)


@pytest.mark.parametrize("image", [np.asarray(GREY), np.asarray(GREY)[..., None], GREY], ids=["2", "3", "L"])
def test_grey_is_taken_for_every_channel(world, classifier, image) -> None:
    (answer,) = classifier.predict(image)
    np.testing.assert_allclose(answer.probabilities, world.expected(np.asarray(GREY)[..., None]), atol=1e-5)


@pytest.mark.parametrize("mode", ["1", "P", "LA", "RGBA", "CMYK", "I;16"])
def test_images_of_pillow_of_any_mode_are_judged(classifier, mode) -> None:
    image = (
        GREY.convert("I").point(lambda value: value * 256).convert(mode)
        if mode == "I;16"
        else PHOTO.convert(mode)
    )
    assert len(classifier.predict(image)) == 1


def test_an_array_with_a_fourth_axis_is_several_images(classifier) -> None:
    images = np.stack([picture(number, 20) for number in range(5)])
    together, single = classifier.predict(images), [classifier.predict(image)[0] for image in images]
    np.testing.assert_allclose(probabilities(together), probabilities(single), atol=1e-6)


def test_no_image_gets_no_answer(classifier) -> None:
    assert classifier.predict([]) == []


def test_answers_of_many_batches_come_in_the_order_of_the_images(world, classifier) -> None:
    images = [picture(number, 20 + number % 5) for number in range(150)]
    answers = probabilities(classifier.predict(iter(images)))
    np.testing.assert_allclose(answers, [world.expected(image) for image in images], atol=1e-5)
    assert len(np.unique(answers.round(4), axis=0)) > 100


def test_large_images_go_through_the_model_in_parts(monkeypatch, classifier) -> None:
    images = [picture(number, 40) for number in range(20)]
    expected = probabilities(classifier.predict(images))
    monkeypatch.setattr(module, "BATCH_PIXELS", 3 * 40 * 40)
    np.testing.assert_allclose(probabilities(classifier.predict(images)), expected, atol=1e-6)


def test_all_workers_together_decode_no_more_pixels_than_there_is_memory_for(monkeypatch, classifier) -> None:
    found, lock, classify = {"now": 0, "most": 0}, threading.Lock(), classifier._classify

    def watched(image):
        pixels = sum(said.height * said.width for said in map(header.header, image.numpy()))
        with lock:
            found["now"] += pixels
            found["most"] = max(found.values())
        try:
            time.sleep(0.01)  # long enough that others would begin
            return classify(image=image)
        finally:
            with lock:
                found["now"] -= pixels

    monkeypatch.setattr(classifier, "_classify", watched)
    monkeypatch.setattr(module, "BATCH_PIXELS", 40 * 40)
    monkeypatch.setattr(module, "WORKERS", 4)
    for pixels in (2 * 40 * 40, 10):  # the larger one leaves room for two, the other for none
        monkeypatch.setattr(classifier, "_budget", Budget(pixels))
        found.update(now=0, most=0)
        assert len(classifier.predict([picture(number, 40) for number in range(150)])) == 150
        assert 0 < found["most"] <= max(pixels, 40 * 40)


@pytest.mark.parametrize(("top", "told"), [(1, 1), (2, 2), (np.int64(2), 2), (99, 3)])
def test_the_likeliest_classes_are_named_in_falling_order(classifier, top: int, told: int) -> None:
    (answer,) = classifier.predict(IMAGE, top=top)
    order = np.argsort(-answer.probabilities)[:told]
    assert [each.index for each in answer.classes] == order.tolist()
    assert [each.label for each in answer.classes] == [CLASSES[index] for index in order]
    assert [each.probability for each in answer.classes] == answer.probabilities[order].tolist()
    assert (answer.label, answer.index) == (CLASSES[order[0]], order[0])
    assert answer.probability == answer.probabilities.max()


@pytest.mark.parametrize("top", [0, -1, 1.5, None, "2"])
def test_a_top_that_is_no_number_of_classes_is_refused(classifier, top: object) -> None:
    with pytest.raises(ConfigError, match=f"top must be a whole number from 1, got {top!r}"):
        classifier.predict(IMAGE, top=top)


@pytest.mark.parametrize("on_bad_image", ["ignore", "Fail", None])
def test_a_policy_that_there_is_none_of_is_refused(classifier, on_bad_image: object) -> None:
    with pytest.raises(ConfigError, match=f"on_bad_image must be fail or skip, got {on_bad_image!r}"):
        classifier.predict(IMAGE, on_bad_image=on_bad_image)


NO_IMAGES = {
    "floats": (IMAGE / np.float32(255), r"image 0: it is float32 \[24, 24, 3\], expected uint8"),
    "two channels": (IMAGE[..., :2], r"image 0: it is uint8 \[24, 24, 2\]"),
    "one axis": (IMAGE[0, 0], r"image 0: it is uint8 \[3\]"),
    "nothing in it": (IMAGE[:0], "image 0: it has 24 x 0 pixels"),
    "32 bits": (GREY.convert("I"), r"image 0: it has samples of 32 bits \(mode I\)"),
    "no file": (Path("no/such.jpg"), "no/such.jpg: it cannot be read: No such file or directory"),
    "a folder": (Path("/"), "/: it cannot be read: Is a directory"),
    "no name": ("a\0b.jpg", "it cannot be read: embedded null byte"),
}


@pytest.mark.parametrize(("image", "reason"), NO_IMAGES.values(), ids=NO_IMAGES)
def test_what_is_no_image_is_a_data_error_or_none(classifier, image, reason: str) -> None:
    assert [each is None for each in classifier.predict([image, PHOTO], on_bad_image="skip")] == [True, False]
    with pytest.raises(DataError, match=reason):
        classifier.predict([PHOTO, image][::-1])


def test_the_first_bad_image_is_named_by_its_place(classifier) -> None:
    with pytest.raises(DataError, match=r"^image 1: .*; on_bad_image='skip' gives None for it"):
        classifier.predict([PHOTO, b"", PHOTO, b""])


def test_what_cannot_be_an_image_is_refused(classifier) -> None:
    with pytest.raises(DataError, match="image 1 is a int, expected a path"):
        classifier.predict([PHOTO, 1])


def test_no_thread_stays_after_a_call(classifier) -> None:
    classifier.predict([PHOTO] * 50)
    with pytest.raises(DataError):
        classifier.predict([b"", *[PHOTO] * 500])
    for thread in threading.enumerate():
        if thread.name.startswith("predict"):
            thread.join(10)
            assert not thread.is_alive()


def test_images_of_another_size_than_the_models_are_bad(tmp_path) -> None:
    model = perennial.load(write_export(tmp_path / "export", side=20).folder)
    good, bad = model.predict([picture(0, 20), picture(0, 21)], on_bad_image="skip")
    assert (good is None, bad) == (False, None)
    with pytest.raises(DataError, match=r"it has 21 x 21 pixels, the model takes 20 x 20 \(width x height\)"):
        model.predict(picture(0, 21))


def test_probabilities_that_are_not_finite_are_a_quality_error(tmp_path) -> None:
    model = perennial.load(write_export(tmp_path / "export", scale=np.nan).folder)
    with pytest.raises(QualityError, match="not finite"):
        model.predict(IMAGE)
