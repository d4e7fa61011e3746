"""What is held against a form that is asked for images, and what is not its fault."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from perennial.errors import QualityError
from perennial.evaluation.predictions import Predictions
from perennial.parity.asking import Asked
from perennial.parity.comparison import Comparison

IMAGES = [(b"", np.full((1, 1, 1), number, np.uint8)) for number in range(3)]
SAID = Predictions(
    labels=np.zeros(3, np.int64),
    probabilities=np.full((3, 2), 0.5, np.float32),
    classes=("cat", "dog"),
    split="test",
    data="d",
    model="m",
)


def asked(form: str, fails: Callable[[list[int]], bool], error: Exception) -> Comparison:
    """Of a form that raises where images with such numbers are asked for at once, and else is right."""

    def answer(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if fails(images.ravel().tolist()):
            raise error
        return np.zeros(len(images), np.int64), SAID.probabilities[: len(images)]

    return Comparison(Asked(form=form, bytes=1, answer=answer, difference=0.5, agreement=1.0), SAID)


@pytest.mark.parametrize(
    ("fails", "place"),
    [
        (lambda numbers: 2 in numbers, "test example 2"),
        (lambda numbers: len(numbers) > 1, "test examples 1 to 2 at once"),
    ],
)
def test_what_a_form_raises_at_an_example_is_held_against_it(
    fails: Callable[[list[int]], bool], place: str
) -> None:
    compared = asked("tflite_int8", fails, RuntimeError("node 13 (DIV)\nand more"))
    compared.add(IMAGES[:1])
    with pytest.raises(
        QualityError, match=rf"^tflite_int8 fails at {place}: node 13 \(DIV\); tflite_int8 can be"
    ):
        compared.add(IMAGES[1:])


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (MemoryError(), MemoryError),
        (RuntimeError("6: Failed to allocate memory for requested buffer"), MemoryError),
        (OSError(28, "No space left on device"), OSError),
        (tf.errors.ResourceExhaustedError(None, None, "OOM"), tf.errors.ResourceExhaustedError),
    ],
    ids=["memory", "ONNX Runtime's memory", "disk", "device"],
)
def test_what_the_machine_lacks_is_not(raised: Exception, error: type[Exception]) -> None:
    with pytest.raises(error):
        asked("onnx", lambda numbers: 1 in numbers, raised).add(IMAGES)


def test_a_form_that_takes_no_image_alone_is_named() -> None:
    way = Asked(form="onnx", bytes=1, answer=lambda images: {2: ()}[len(images)], difference=0.5, agreement=1.0)
    with pytest.raises(QualityError, match=r"^onnx fails at an image alone: 1; onnx can be left out of"):
        way.milliseconds(IMAGES)


@pytest.mark.parametrize(
    ("form", "told"), [("onnx", "; onnx can be left out of export.formats"), ("SavedModel", "")]
)
def test_only_what_was_asked_for_can_be_left_out(form: str, told: str) -> None:
    with pytest.raises(QualityError) as caught:
        asked(form, lambda _: False, ValueError()).found(1.0)
    assert str(caught.value) == f"{form} answers 0 test examples, expected 3{told}"
