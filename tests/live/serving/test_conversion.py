"""Large images are converted in a process of their own, so that decoders keep no other request waiting."""

import io
import os
from itertools import starmap

import numpy as np
import PIL.Image
import pytest
from live.serving.served import MODEL, b64, expected, serving
from support import tasks

from perennial.data.images import png
from perennial.live.serving.conversion import FEW_PIXELS, PIECE, Converter
from perennial.model.inference.image_inputs import PixelBudget, UnusableImage, to_encoded

SIDE = 700
PICTURE = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)


@pytest.fixture(scope="module")
def converter():
    found = Converter(10**6)
    yield found
    found.close()


def saved(kind, pixels=PICTURE):
    stream = io.BytesIO()
    PIL.Image.fromarray(pixels).save(stream, kind, lossless=True)
    return stream.getvalue()


@pytest.mark.fast_rows("WebP", "16 bits")
@pytest.mark.parametrize(
    "content",
    [
        saved("WEBP"),
        saved("PNG", PICTURE[..., 0] * np.uint16(256)),
    ],
    ids=["WebP", "16 bits"],
)
def test_an_image_becomes_the_same_file_in_another_process(converter, content):
    assert to_encoded(content, converter) == to_encoded(content, PixelBudget())


def test_only_images_of_many_pixels_go_to_another_process(converter):
    here, there = (converter.convert(FEW_PIXELS + more, tasks.process_number) for more in (0, 1))
    assert int(here) == os.getpid() != int(there)


@pytest.mark.parametrize("size", [0, 1, PIECE, PIECE + 1, 3 * PIECE])
def test_results_of_any_size_are_received_whole(converter, size):
    assert len(converter.convert(10**6, bytes, size)) == size


def test_a_refusal_has_the_same_reason(converter):
    content = saved("WEBP")[:-1000]
    with pytest.raises(UnusableImage) as here:
        to_encoded(content, PixelBudget())
    with pytest.raises(UnusableImage) as there:
        to_encoded(content, converter)
    assert str(there.value) == str(here.value)


def test_a_killed_process_is_replaced(converter):
    with pytest.raises(UnusableImage, match="was killed"):
        converter.convert(10**6, tasks.end)
    assert converter.convert(10**6, bytes, 3) == bytes(3)


def test_a_server_answers_as_perennial_predict_does(world, classifier):
    images = [
        saved("WEBP"),
        saved("BMP"),
        png.encode(PICTURE),
    ]  # TensorFlow gets the last in pieces
    with serving(world.folder) as (server, client):
        answer = client.post(f"{MODEL}:predict", json={"instances": list(map(b64, images))}).json()
        assert server.budget._worker._executor is not None
    found = [each["probabilities"] for each in answer["predictions"]]
    assert all(starmap(np.allclose, zip(found, expected(classifier, *images), strict=True)))
