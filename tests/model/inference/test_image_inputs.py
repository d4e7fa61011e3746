"""Image files of every format: classified as a record of them would be, or refused with the reason."""

import array
import gc
import io
import tempfile
import threading
import tracemalloc
from contextlib import ExitStack

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from support.odd_images import png_without_pixels, saved
from support.raw import picture

from perennial.base.errors import DataError
from perennial.data.images import accept, decode
from perennial.model.inference import image_inputs

COLOURS = picture(1, 30)[:24]
PHOTO = PIL.Image.fromarray(COLOURS)
GREY = PHOTO.convert("L")
ALPHA = PIL.Image.fromarray(np.dstack([COLOURS, COLOURS[..., 0]]))
WIDE = PIL.Image.fromarray(COLOURS[..., 0].astype(np.uint16) * 256 + 77)


def two():
    """Options that save a second image; a new one each time, for saving leaves marks on it."""
    return {"save_all": True, "append_images": [PHOTO.rotate(180)]}


def oriented():
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    return saved(PHOTO, "JPEG", exif=exif)


def damaged_jpeg():
    """Noise in the middle of the only scan."""
    content = bytearray(saved(PHOTO, "JPEG"))
    middle = len(content) * 3 // 4
    content[middle : middle + 20] = b"\xff\xc4" * 10
    return bytes(content)


ACCEPTED = {
    "colour JPEG": saved(PHOTO, "JPEG"), "progressive JPEG": saved(PHOTO, "JPEG", progressive=True),
    "grey JPEG": saved(GREY, "JPEG"), "CMYK JPEG": saved(PHOTO.convert("CMYK"), "JPEG"),
    "JPEG with EXIF orientation": oriented(), "MPO": saved(PHOTO, "MPO", **two()),
    "colour PNG": saved(PHOTO, "PNG"), "grey PNG": saved(GREY, "PNG"),
    "PNG with alpha": saved(ALPHA, "PNG"), "PNG with a palette": saved(PHOTO.quantize(16), "PNG"),
    "PNG with one transparent colour": saved(PHOTO, "PNG", transparency=(0, 0, 0)),
    "PNG of 16 bits": saved(WIDE, "PNG"), "bilevel PNG": saved(GREY.convert("1"), "PNG"),
    "lossy WebP": saved(PHOTO, "WEBP"), "lossless WebP": saved(ALPHA, "WEBP", lossless=True),
    "BMP": saved(PHOTO, "BMP"), "HEIC": saved(PHOTO, "HEIF"),
    "AVIF": saved(PHOTO, "AVIF"),
}  # fmt: skip
BAD = {
    "nothing": (b"", "it is empty"),
    "damaged JPEG": (damaged_jpeg(), "it (is incomplete|is damaged|cannot be decoded)"),
    "half a WebP": (saved(PHOTO, "WEBP")[:-20], "it cannot be decoded"),
    "TIFF": (saved(PHOTO, "TIFF"), "it is a TIFF.*; `magick mogrify -format png FILE` converts it"),
    "half a HEIC": (saved(PHOTO, "HEIF")[:-100], "it cannot be decoded: .*Unexpected end of file"),
    "Pillow image of 32 bits": (GREY.convert("F"), "samples of 32 bits"),
    "PostScript": (saved(PHOTO, "EPS"), "not a JPEG, HEIC, PNG, WebP, AVIF or BMP"),
    "a bomb": (png_without_pixels(100_000, 100_000), "100000 x 100000 pixels, expected 1 to"),
}


@pytest.mark.parametrize("content", ACCEPTED.values(), ids=ACCEPTED)
def test_the_model_gets_what_a_record_would_hold(world, classifier, content) -> None:
    accepted = accept.accepted(content, "")
    assert image_inputs.to_encoded(content, image_inputs.PixelBudget()) == accepted.encoded
    expected = world.expected(decode.array(decode.decoded(accepted.encoded)))
    (answer,) = classifier.predict(content)
    # TensorFlow's and Pillow's JPEG decoders differ by a unit or two in a few pixels.
    np.testing.assert_allclose(answer.probabilities, expected, atol=0.03 if accepted.format == "jpg" else 1e-5)


@pytest.mark.parametrize(("content", "reason"), BAD.values(), ids=BAD)
def test_a_bad_image_is_refused_with_the_reason(classifier, content, reason) -> None:
    with pytest.raises(DataError, match=f"^image 0: .*{reason}"):
        classifier.predict(content)


def test_bad_images_do_not_affect_others_of_the_batch(classifier) -> None:
    bad = [content for content, _ in BAD.values()]
    good = ACCEPTED["colour JPEG"]
    mixed = [each for content in bad for each in (content, good)]
    answers = classifier.predict([*mixed, good], on_bad_image="skip")
    (alone,) = classifier.predict(good)
    assert answers[0:-1:2] == [None] * len(bad)
    for answer in answers[1::2]:
        np.testing.assert_allclose(answer.probabilities, alone.probabilities, atol=1e-6)


class Upload:
    """A file object of a web framework, which has a position but no name."""

    def __init__(self, content):
        self._stream = io.BytesIO(content)

    def read(self, size=-1):
        return self._stream.read(min(size, 100))  # less than asked for, as raw streams may


CONTENT = ACCEPTED["colour PNG"]
PASSED = {
    "bytes": lambda file: CONTENT, "bytearray": lambda file: bytearray(CONTENT),
    "memoryview": lambda file: memoryview(CONTENT + b"more")[: len(CONTENT)], "text": str,
    "path": lambda file: file, "BytesIO": lambda file: io.BytesIO(CONTENT),
    "open file": lambda file: file.open("rb"), "raw file": lambda file: file.open("rb", buffering=0),
    "upload": lambda file: Upload(CONTENT), "Pillow image": PIL.Image.open, "array": lambda file: COLOURS,
}  # fmt: skip


@pytest.mark.parametrize("passed", PASSED.values(), ids=PASSED)
def test_an_image_is_passed_in_any_form_alone_or_in_a_list(classifier, tmp_path, passed) -> None:
    file = tmp_path / "photo.png"
    file.write_bytes(CONTENT)
    (expected,) = classifier.predict(CONTENT)
    with ExitStack() as opened:
        one, *others = images = [passed(file) for _ in range(3)]
        for image in images:
            opened.callback(getattr(image, "close", str))
        answers = [*classifier.predict(one), *classifier.predict(others)]
    assert len(answers) == 3
    for answer in answers:
        np.testing.assert_allclose(answer.probabilities, expected.probabilities, atol=1e-6)


def test_a_pillow_image_whose_metadata_are_damaged_is_read() -> None:
    content = saved(PHOTO, "WEBP", lossless=True, exif=b"Exif\0\0II*\0" + b"\xff" * 4)
    (source,) = image_inputs.from_values(PIL.Image.open(io.BytesIO(content)))
    assert np.array_equal(
        decode.array(decode.decoded(source.read(image_inputs.PixelBudget(), "drop"))), COLOURS
    )


def test_an_array_is_one_image_or_several_by_its_dimensions() -> None:
    grey = COLOURS[..., 0]
    arrays = (grey, grey[..., np.newaxis], COLOURS, COLOURS[np.newaxis].repeat(4, 0), [grey, COLOURS])
    assert [len(list(image_inputs.from_values(each))) for each in arrays] == [1, 1, 1, 4, 2]


def closed(file):
    with file.open("rb") as stream:
        pass
    return stream


def at_end(file):
    stream = io.BytesIO(file.read_bytes())
    stream.read()
    return stream


REFUSED = {
    "file opened as text": (lambda file: file.open(), r"photo\.png is open as text; open it with 'rb'"),
    "text stream": (lambda file: io.StringIO("photo"), "image 0 is open as text"),
    "temporary text": (
        lambda file: tempfile.NamedTemporaryFile("w+", dir=file.parent),  # noqa: SIM115 - the test closes it
        "the file reads str, expected bytes",
    ),
    "number": (lambda file: 3, "the images are of the type int; expected a path, the bytes of a file"),
    "nothing": (lambda file: None, "the images are of the type NoneType"),
    "table": (lambda file: {"a": CONTENT}, "the images are of the type dict"),
    "set": (lambda file: {CONTENT}, "the images are of the type set"),
    "numbers": (lambda file: [3, 4], "image 0 is of the type int"),
    "array of the standard library": (lambda file: array.array("B", CONTENT), "of the type array.array"),
    "closed file": (closed, "photo.png: it cannot be read: .*closed file"),
    "read to its end": (at_end, "image 0: it is empty"),
    "address": (lambda file: "https://host/a.jpg", r"^https://host/a\.jpg\.\.\.: it is no path but an address"),
    "data address": (
        lambda file: "data:image/png;base64,iVBO",
        "it is no path but an address or content; pass the bytes",
    ),
    "base64": (lambda file: "iVBORw0K" * 1000, "^(iVBORw0K){5}\\.\\.\\.: it is no path"),
    "tensor": (lambda file: tf.constant(CONTENT), "the images are of the type tensorflow.*Tensor; expected"),
    "array of 0 to 1": (lambda file: COLOURS / 255, "float64 .*expected uint8"),
}


@pytest.mark.parametrize(("passed", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_image_is_refused_by_its_type(classifier, tmp_path, passed, message) -> None:
    file = tmp_path / "photo.png"
    file.write_bytes(CONTENT)
    image = passed(file)
    try:
        with pytest.raises(DataError, match=message):
            classifier.predict(image)
    finally:
        getattr(image, "close", str)()


FILES = 5000


def test_only_the_names_of_a_large_folder_are_held(tmp_path) -> None:
    for number in range(FILES):
        (tmp_path / f"{number:07}.jpg").touch()
    tracemalloc.start(10)
    try:
        images = image_inputs.from_arguments([str(tmp_path)])
        assert len(images) == FILES
        assert sum(1 for _ in images) == FILES
        gc.collect()
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    # Servers of other tests may run in threads of this process.
    ours = tracemalloc.Filter(inclusive=True, filename_pattern=image_inputs.__file__, all_frames=True)
    held = sum(trace.size for trace in snapshot.filter_traces([ours]).traces)
    assert 0 < held / FILES < 100  # bytes


CONVERTED = {name: content for name, content in ACCEPTED.items() if "of 16 bits" in name or "CMYK" in name}


@pytest.mark.parametrize("content", CONVERTED.values(), ids=CONVERTED)
def test_a_converted_image_waits_for_its_share_of_the_pixel_budget(content) -> None:
    budget, done = image_inputs.PixelBudget(PHOTO.width * PHOTO.height), threading.Event()

    def convert() -> None:
        image_inputs.to_encoded(content, budget)
        done.set()

    with budget.reserve(1):
        thread = threading.Thread(target=convert)
        thread.start()
        assert not done.wait(0.2)
    thread.join(600)
    assert done.is_set()
