"""Photos as phones make them: HEIC and AVIF are read as they are meant, other files refused by name."""

import io
import sys

import numpy as np
import PIL.Image
import PIL.ImageOps
import pillow_heif
import pytest
from support.odd_images import saved

from perennial.data.images import BadImage, accept, other_formats
from perennial.model.inference import image_inputs

SIDE = np.arange(96)
SCENE = PIL.Image.fromarray(
    np.stack(np.broadcast_arrays(SIDE[:64, None] * 3, SIDE * 2, SIDE[:64, None] + SIDE), -1).astype(np.uint8)
)
WIDTH, HEIGHT = SCENE.size
SIDEWAYS = PIL.Image.Exif()
SIDEWAYS[0x0112] = 6
ICC = b"a profile that no decoder applies"
LOSSY = {
    "HEIC": saved(SCENE, "HEIF", quality=95),
    "HEIC with a profile": saved(SCENE, "HEIF", quality=95, icc_profile=ICC),
    "HEIC with alpha": saved(SCENE.convert("RGBA"), "HEIF", quality=95),
    "AVIF": saved(SCENE, "AVIF", quality=95),
}
VIDEO = b"\0\0\0\x14ftypqt  \0\0\0\0qt  " + bytes(50)


def decoded(content):
    image = accept.accepted(content, "IMG_1234.jpg")
    assert not isinstance(image, BadImage), image.reason
    return image, np.asarray(PIL.Image.open(io.BytesIO(image.encoded)))


def reason(content):
    found = accept.accepted(content, "IMG_1234.jpg")
    assert isinstance(found, BadImage)
    return found.reason


@pytest.mark.parametrize("content", LOSSY.values(), ids=LOSSY)
def test_a_photo_of_a_phone_becomes_a_jpeg_of_the_same_picture_whatever_its_name_says(content):
    image, pixels = decoded(content)
    assert (image.format, image.width, image.height, image.original) == ("jpg", WIDTH, HEIGHT, False)
    assert accept.size(content) == (WIDTH, HEIGHT)
    assert np.abs(pixels.astype(int) - np.asarray(SCENE)).mean() < 3


def test_a_grey_heic_stays_grey():
    image, pixels = decoded(saved(SCENE.convert("L"), "HEIF"))
    assert (image.format, pixels.shape) == ("jpg", (HEIGHT, WIDTH))


@pytest.mark.parametrize("kind", ["HEIF", "AVIF"])
def test_a_photo_taken_sideways_is_turned_once(kind):
    _, pixels = decoded(saved(SCENE, kind, exif=SIDEWAYS.tobytes()))
    expected = SCENE.transpose(PIL.Image.Transpose.ROTATE_270)
    assert pixels.shape == (WIDTH, HEIGHT, 3)
    assert np.abs(pixels.astype(int) - np.asarray(expected)).mean() < 3


def test_the_primary_image_counts_of_a_heic_with_further_views():
    file = pillow_heif.from_pillow(SCENE.rotate(180))
    file.add_from_pillow(SCENE)
    stream = io.BytesIO()
    file.save(stream, primary_index=1, quality=95)
    _, pixels = decoded(stream.getvalue())
    assert np.abs(pixels.astype(int) - np.asarray(SCENE)).mean() < 3


def test_a_heic_without_its_decoder_is_refused_with_the_command_that_installs_it(monkeypatch):
    content = saved(SCENE, "HEIF")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    assert reason(content) == "it is HEIC, and no decoder is installed: `perennial add heic` installs one"


CONVERT = "`magick mogrify -format png FILE` converts it"
REFUSED = {
    "the video of a Live Photo": (VIDEO, r"it is a video \(qt\), such as that of a Live Photo; remove it"),
    "a HEIC sequence": (b"\0\0\0\x18ftyphevc\0\0\0\0mif1heic", "it is an animation"),
    "an animated AVIF": (saved(SCENE, "AVIF", save_all=True, append_images=[SCENE.rotate(90)]), "an animation"),
    "a raw photo of Canon": (b"\0\0\0\x18ftypcrx \0\0\0\0isom", r"it is a raw photo \(CR3\)"),
    "a TIFF": (saved(SCENE, "TIFF"), f"it is a TIFF, or a raw photo such as DNG, NEF or ARW; {CONVERT}"),
    "a BigTIFF": (saved(SCENE, "TIFF", big_tiff=True), f"or a raw photo such as DNG, NEF or ARW; {CONVERT}"),
    "a PDF": (b"%PDF-1.7", f"it is a PDF; {CONVERT}"),
    **{f"a raw photo that starts with {start!r}": (start + bytes(99), "a raw photo of a camera")
       for start in (b"IIRO", b"IIU\0", b"FUJIFILMCCD-RAW")},
    "a web page": (b"<!DOCTYPE html><title>Sign in", "a web page or a drawing in SVG"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "expected"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_read_is_refused_by_name(content, expected):
    assert expected.replace("\\", "") in reason(content)


def test_a_photo_that_was_cut_off_is_never_read_in_part():
    whole = saved(SCENE, "HEIF")
    _, expected = decoded(whole)
    for end in range(0, len(whole), max(len(whole) // 200, 1)):
        cut = accept.accepted(whole[:end], "")
        if not isinstance(cut, BadImage):  # without bytes that no decoder needs
            assert np.array_equal(PIL.Image.open(io.BytesIO(cut.encoded)), expected)


@pytest.mark.parametrize("kind", ["HEIF", "AVIF"])
def test_no_decoder_sees_metadata(kind):
    exif = PIL.Image.Exif()
    exif[0x010F] = "a camera"  # Pillow would copy each value, however many entries name the same bytes
    content = saved(SCENE, kind, exif=exif.tobytes(), xmp=b"<x:xmpmeta/>")
    assert b"Exif" in content
    opened = other_formats.opened(content)
    opened.load()
    assert not {"exif", "xmp"} & {key for key, value in opened.info.items() if value}


@pytest.mark.parametrize("max_side", [None, 40])
@pytest.mark.parametrize("kind", ["HEIF", "AVIF"])
def test_predict_gives_the_model_the_bytes_of_the_record(kind, max_side):
    content, budget = saved(SCENE, kind), image_inputs.PixelBudget()
    record = accept.accepted(content, "")
    record = record if max_side is None else accept.limited(record, max_side)
    encoded = image_inputs.limited(image_inputs.to_encoded(content, budget), budget, max_side)
    assert encoded == record.encoded
    assert max(record.width, record.height) == max_side or max_side is None
