"""Photos as phones make them: HEIC, AVIF and TIFF are read as they are meant, or refused by name."""

import io
import struct
import sys

import numpy as np
import PIL.Image
import PIL.ImageOps
import pillow_heif
import pytest
from support.odd_images import saved

from perennial.data.images import BadImage, accept, heif
from perennial.data.images.accept import accepted
from perennial.model.inference import image_inputs

SIDE = np.arange(96)
SCENE = PIL.Image.fromarray(
    np.stack(np.broadcast_arrays(SIDE[:64, None] * 3, SIDE * 2, SIDE[:64, None] + SIDE), -1).astype(np.uint8)
)
WIDTH, HEIGHT = SCENE.size
SIXTEEN = np.asarray(SCENE).astype(np.uint16) * 256 + 99
SIDEWAYS = PIL.Image.Exif()
SIDEWAYS[0x0112] = 6
ICC = b"a profile that no decoder applies"
BITS, COLOURS, NUMBERS, KIND, DNG = 258, 262, 339, 254, 50706  # fields of a TIFF
LOSSY = {
    "HEIC": saved(SCENE, "HEIF", quality=95),
    "HEIC with a profile": saved(SCENE, "HEIF", quality=95, icc_profile=ICC),
    "HEIC with alpha": saved(SCENE.convert("RGBA"), "HEIF", quality=95),
    "AVIF": saved(SCENE, "AVIF", quality=95),
}
EXACT = {
    "without compression": {},
    "LZW": {"compression": "tiff_lzw"},
    "Deflate": {"compression": "tiff_adobe_deflate"},
    "PackBits": {"compression": "packbits"},
    "a profile": {"icc_profile": ICC},
}
VIDEO = b"\0\0\0\x14ftypqt  \0\0\0\0qt  " + bytes(50)


def decoded(content):
    image = accepted(content, "IMG_1234.jpg")
    assert not isinstance(image, BadImage), image.reason
    return image, np.asarray(PIL.Image.open(io.BytesIO(image.encoded)))


def reason(content):
    found = accepted(content, "IMG_1234.jpg")
    assert isinstance(found, BadImage)
    return found.reason


def tiff(samples, *fields, order="<"):
    """A TIFF of one uncompressed strip, of fields that Pillow does not write."""
    data = samples.tobytes()
    height, width = samples.shape[:2]
    count = samples.shape[2] if samples.ndim == 3 else 1
    known = {
        256: width, 257: height, BITS: 8, 259: 1, COLOURS: 2, 273: 8, 277: count, 278: height, 279: len(data),
    }  # fmt: skip
    entries = sorted((known | dict(fields)).items())
    mark = b"II*\0" if order == "<" else b"MM\0*"
    rows = b"".join(
        struct.pack(f"{order}HHI", tag, 4, 1) + struct.pack(f"{order}I", value) for tag, value in entries
    )
    start = struct.pack(f"{order}I", 8 + len(data))
    return mark + start + data + struct.pack(f"{order}H", len(entries)) + rows + bytes(4)


@pytest.mark.parametrize("content", LOSSY.values(), ids=LOSSY)
def test_a_photo_of_a_phone_becomes_a_jpeg_of_the_same_picture_whatever_its_name_says(content):
    image, pixels = decoded(content)
    assert (image.format, image.width, image.height, image.original) == ("jpg", WIDTH, HEIGHT, False)
    assert accept.size(content) == (WIDTH, HEIGHT)
    assert np.abs(pixels.astype(int) - np.asarray(SCENE)).mean() < 3


def test_a_grey_heic_stays_grey():
    image, pixels = decoded(saved(SCENE.convert("L"), "HEIF"))
    assert (image.format, pixels.shape) == ("jpg", (HEIGHT, WIDTH))


@pytest.mark.parametrize("kind", ["HEIF", "AVIF", "TIFF"])
def test_a_photo_taken_sideways_is_turned_once(kind):
    _, pixels = decoded(saved(SCENE, kind, exif=SIDEWAYS if kind == "TIFF" else SIDEWAYS.tobytes()))
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


@pytest.mark.parametrize("options", EXACT.values(), ids=EXACT)
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "CMYK", "P", "1"])
def test_a_tiff_becomes_a_png_of_the_same_pixels(mode, options):
    image, pixels = decoded(saved(SCENE.convert(mode), "TIFF", **options))
    assert image.format == "png"
    assert np.array_equal(pixels, SCENE.convert(mode).convert("L" if mode in {"L", "1"} else "RGB"))


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_tiff_of_16_bits_keeps_the_upper_8_in_colours_and_grey(order):
    colours = tiff(SIXTEEN.astype(f"{order}u2"), (BITS, 16), order=order)
    grey = tiff(SIXTEEN[..., 0].astype(f"{order}u2"), (BITS, 16), (COLOURS, 1), order=order)
    assert np.array_equal(decoded(colours)[1], np.asarray(SCENE))
    assert np.array_equal(decoded(grey)[1], np.asarray(SCENE)[..., 0])


def test_a_smaller_version_behind_the_image_of_a_tiff_is_no_second_page():
    stream = io.BytesIO()
    small = PIL.Image.new("RGB", (8, 8))
    small.encoderinfo = {"tiffinfo": {KIND: 1}}
    SCENE.save(stream, "TIFF", save_all=True, append_images=[small])
    assert np.array_equal(decoded(stream.getvalue())[1], np.asarray(SCENE))


def test_a_heic_without_its_decoder_is_refused_with_the_command_that_installs_it(monkeypatch):
    content = saved(SCENE, "HEIF")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    assert reason(content) == "it is HEIC, and no decoder is installed: `perennial add heic` installs one"


GREY = np.asarray(SCENE.convert("L"))
REFUSED = {
    "the video of a Live Photo": (VIDEO, r"it is a video \(qt\), such as that of a Live Photo; remove it"),
    "a HEIC sequence": (b"\0\0\0\x18ftyphevc\0\0\0\0mif1heic", "it is an animation"),
    "an animated AVIF": (saved(SCENE, "AVIF", save_all=True, append_images=[SCENE.rotate(90)]), "an animation"),
    "a raw photo of Canon": (b"\0\0\0\x18ftypcrx \0\0\0\0isom", r"it is a raw photo \(CR3\)"),
    "a raw photo": (tiff(np.asarray(SCENE), (DNG, 1)), "it is a raw photo of a camera, such as DNG"),
    "a CR2": (tiff(np.frombuffer(b"CR\2" * 32, np.uint8)[None]), "it is a raw photo of a camera"),
    **{f"a raw photo that starts with {start!r}": (start + bytes(99), "a raw photo of a camera")
       for start in (b"IIRO", b"IIU\0", b"FUJIFILMCCD-RAW")},
    "the preview of a raw photo": (tiff(np.asarray(SCENE), (KIND, 1)), "it is a raw photo of a camera"),
    "a TIFF of several pages": (saved(SCENE, "TIFF", save_all=True, append_images=[SCENE]), "several pages"),
    "a BigTIFF": (saved(SCENE, "TIFF", big_tiff=True), "it is a BigTIFF; save it as PNG or JPEG"),
    "JPEG in a TIFF": (saved(SCENE, "TIFF", compression="jpeg"), "a TIFF of the compression 7, expected none"),
    "a TIFF of fractions": (saved(SCENE.convert("F"), "TIFF"), "a TIFF of 32 bits a sample"),
    "a TIFF of signed numbers": (tiff(GREY, (COLOURS, 1), (NUMBERS, 2)), "expected grey, RGB, CMYK"),
    "a TIFF of 12 bits": (tiff(GREY, (BITS, 12), (COLOURS, 1)), "a TIFF of 12 bits a sample"),
    "16 bits with white as 0": (tiff(SIXTEEN[..., 0], (BITS, 16), (COLOURS, 0)), "16 bits a sample and the"),
    "a TIFF of YCbCr": (saved(SCENE.convert("YCbCr"), "TIFF"), "8 bits a sample and the colours 6"),
    "a TIFF whose strip is too short": (tiff(GREY, (COLOURS, 1), (279, 9)), "tiles have too few bytes"),
    "a TIFF of too many pixels": (tiff(GREY, (256, 90_000), (257, 90_000)), "it has 90000 x 90000 pixels"),
    "tiles that are too large": (
        tiff(GREY, (COLOURS, 1), (322, 90_000), (323, 90_000), (324, 8), (325, 9)), "90000 x 90000 pixels"
    ),
    "a web page": (b"<!DOCTYPE html><title>Sign in", "a web page or a drawing in SVG"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "expected"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_read_is_refused_by_name(content, expected):
    assert expected.replace("\\", "") in reason(content)


@pytest.mark.parametrize("options", [*EXACT.values(), None], ids=[*EXACT, "HEIC"])
def test_a_photo_that_was_cut_off_is_never_read_in_part(options):
    whole = saved(SCENE, "HEIF") if options is None else saved(SCENE, "TIFF", **options)
    _, expected = decoded(whole)
    for end in range(0, len(whole), max(len(whole) // 200, 1)):
        cut = accepted(whole[:end], "")
        if not isinstance(cut, BadImage):  # without bytes that no decoder needs
            assert np.array_equal(PIL.Image.open(io.BytesIO(cut.encoded)), expected)


@pytest.mark.parametrize("kind", ["HEIF", "AVIF"])
def test_no_decoder_sees_metadata(kind):
    exif = PIL.Image.Exif()
    exif[0x010F] = "a camera"  # Pillow would copy each value, however many entries name the same bytes
    content = saved(SCENE, kind, exif=exif.tobytes(), xmp=b"<x:xmpmeta/>")
    assert b"Exif" in content
    opened = heif.opened(content)
    opened.load()
    assert not {"exif", "xmp"} & {key for key, value in opened.info.items() if value}


@pytest.mark.parametrize("max_side", [None, 40])
@pytest.mark.parametrize("kind", ["HEIF", "AVIF", "TIFF"])
def test_predict_gives_the_model_the_bytes_of_the_record(kind, max_side):
    content, budget = saved(SCENE, kind), image_inputs.PixelBudget()
    record = accepted(content, "")
    record = record if max_side is None else accept.limited(record, max_side)
    encoded = image_inputs.limited(image_inputs.to_encoded(content, budget), budget, max_side)
    assert encoded == record.encoded
    assert max(record.width, record.height) == max_side or max_side is None
