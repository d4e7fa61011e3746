"""What is kept, what is converted and what is refused of the images that people have."""

import io
import random
import re
import struct
import zlib

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from support.odd_images import saved

from perennial.data.images import BadImage, Image, png
from perennial.data.images.accept import accepted
from perennial.data.images.png import chunk

HEIGHT, WIDTH = 24, 36
ROWS, COLUMNS = np.mgrid[:HEIGHT, :WIDTH]
COLOURS = np.stack([ROWS * 10, COLUMNS * 7, (ROWS + COLUMNS) * 4], axis=-1).astype(np.uint8)
PHOTO = PIL.Image.fromarray(COLOURS)
GREY = PHOTO.convert("L")
ALPHA = PIL.Image.fromarray(np.dstack([COLOURS, (ROWS * 10).astype(np.uint8)]))
TURNED = PHOTO.rotate(180)
ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))


def raw_png(samples, colour, *, bits=8, interlaced=False, between=b"", size=None, filters=b"\0"):
    """A PNG of samples [height, width, channels], for the kinds that Pillow does not write."""
    dtype = ">u2" if bits == 16 else np.uint8
    passes = [samples[y::dy, x::dx] for y, x, dy, dx in ADAM7] if interlaced else [samples]
    lines = b"".join(filters + line.astype(dtype).tobytes() for part in passes for line in part if part.size)
    height, width = size or samples.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, interlaced)
    body = chunk(b"IDAT", zlib.compress(lines))
    return png.SIGNATURE + chunk(b"IHDR", header) + between + body + chunk(b"IEND", b"")


WIDE = COLOURS.astype(np.uint16) * 256 + 77  # 16 bits a sample
KEPT = {
    "colour JPEG": saved(PHOTO, "JPEG"),
    "grey JPEG": saved(GREY, "JPEG"),
    "progressive JPEG": saved(PHOTO, "JPEG", progressive=True),
    "JPEG of RGB": saved(PHOTO, "JPEG", keep_rgb=True),
    "JPEG of one pixel": saved(PHOTO.crop((0, 0, 1, 1)), "JPEG"),
    "JPEG with junk behind it": saved(PHOTO, "JPEG") + b"junk",
    "two JPEGs": saved(PHOTO, "JPEG") + saved(GREY, "JPEG"),
    "MPO": saved(PHOTO, "MPO", save_all=True, append_images=[TURNED]),
    "colour PNG": saved(PHOTO, "PNG"),
    "grey PNG": saved(GREY, "PNG"),
    "interlaced PNG": raw_png(COLOURS, 2, interlaced=True),
    "interlaced grey PNG": raw_png(COLOURS[..., :1], 0, interlaced=True),
    "PNG of one pixel": saved(GREY.crop((0, 0, 1, 1)), "PNG"),
    "PNG with a gamma": raw_png(COLOURS, 2, between=chunk(b"gAMA", struct.pack(">I", 100000))),
}
GREYS = {
    "bilevel PNG": saved(GREY.convert("1"), "PNG"),
    "PNG of 16 bits of grey": raw_png(WIDE[..., :1], 0, bits=16),
    "PNG of 4 bits of grey": raw_png((COLOURS[:, ::2, :1]), 0, bits=4, size=(HEIGHT, WIDTH)),
    "PNG of grey and alpha": saved(GREY.convert("LA"), "PNG"),
    "grey BMP": saved(GREY, "BMP"),
    "bilevel BMP": saved(GREY.convert("1"), "BMP"),
}
COLOURED = {
    "CMYK JPEG": saved(PHOTO.convert("CMYK"), "JPEG"),
    "PNG with alpha": saved(ALPHA, "PNG"),
    "PNG with one transparent colour": saved(PHOTO, "PNG", transparency=(0, 0, 0)),
    "PNG with a palette": saved(PHOTO.quantize(16), "PNG"),
    "PNG with a palette and transparency": saved(PHOTO.quantize(16), "PNG", transparency=b"\x80\0\xff"),
    "PNG of 16 bits a colour": raw_png(WIDE, 2, bits=16),
    "lossy WebP": saved(PHOTO, "WEBP"),
    "lossless WebP": saved(PHOTO, "WEBP", lossless=True),
    "WebP with alpha": saved(ALPHA, "WEBP", lossless=True),
    "BMP": saved(PHOTO, "BMP"),
    "BMP with a palette": saved(PHOTO.quantize(16), "BMP"),
}
CONVERTED = GREYS | COLOURED
ANIMATED = {"save_all": True, "append_images": [TURNED]}


def sized_jpeg(width, height):
    content = saved(PHOTO, "JPEG")
    at = content.index(b"\xff\xc0") + 5
    return content[:at] + struct.pack(">HH", height, width) + content[at + 4 :]


def of_12_bits():
    content = bytearray(saved(PHOTO, "JPEG"))
    content[content.index(b"\xff\xc0") + 4] = 12
    return bytes(content)


def with_wrong_checksum(kind):
    content = bytearray(saved(PHOTO, "PNG", pnginfo=None, dpi=(72, 72)))
    content[content.index(kind) + 5] ^= 1
    return bytes(content)


def webp(kind, body):
    body = kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


REFUSED = {
    "nothing": (b"", "it is empty"),
    "HTML": (b"<html>404</html>", "it is a web page or a drawing in SVG"),
    "ICO": (saved(PHOTO, "ICO"), "not a JPEG, HEIC, PNG, WebP, AVIF or BMP"),
    "zeros": (bytes(1000), "not a JPEG, HEIC, PNG, WebP, AVIF or BMP"),
    "GIF": (saved(PHOTO, "GIF"), "it is a GIF; `magick mogrify -format png FILE` converts it"),
    "animated WebP": (saved(PHOTO, "WEBP", **ANIMATED), "it is an animation"),
    "animated PNG": (saved(PHOTO, "PNG", **ANIMATED), "it is an animation"),
    "start of a JPEG": (b"\xff\xd8\xff", "it is incomplete"),
    "half a JPEG": (saved(PHOTO, "JPEG")[:-100], "incomplete: a JPEG without an end"),
    "half a PNG": (saved(PHOTO, "PNG")[:-20], "it is incomplete"),
    "half a WebP": (saved(PHOTO, "WEBP")[:-20], "it cannot be decoded"),
    "half a BMP": (saved(PHOTO, "BMP")[:-200], "image file is truncated"),
    "PNG with a wrong checksum": (with_wrong_checksum(b"IDAT"), "the checksum of the chunk b'IDAT' is wrong"),
    "PNG with wrong metadata": (with_wrong_checksum(b"pHYs"), "the checksum of the chunk b'pHYs' is wrong"),
    "PNG without a header": (png.SIGNATURE + chunk(b"IEND", b""), "its first chunk is b'IEND' of 0 bytes"),
    "PNG with too few lines": (raw_png(COLOURS[:-1], 2, size=(HEIGHT, WIDTH)), "2507 bytes, expected 2616"),
    "PNG with too many lines": (raw_png(COLOURS, 2, size=(HEIGHT - 1, WIDTH)), "expected 2507"),
    "PNG with an unknown filter": (raw_png(COLOURS, 2, filters=b"\5"), "a line has the filter 5"),
    "PNG with an unknown chunk": (raw_png(COLOURS, 2, between=chunk(b"ABCD", b"")), "b'ABCD' is unknown"),
    "PNG without pixels": (
        raw_png(COLOURS, 2)[:33] + chunk(b"IEND", b""),
        "its IDAT chunks are missing or not consecutive",
    ),
    "PNG in two parts": (
        raw_png(COLOURS, 2, between=chunk(b"IDAT", b"") + chunk(b"tEXt", b"a\0b")),
        "its IDAT chunks are missing or not consecutive",
    ),
    "PNG of no width": (raw_png(COLOURS, 2, size=(HEIGHT, 0)), "0 x 24 pixels"),
    "JPEG of 12 bits": (of_12_bits(), "12-bit"),
    "JPEG of no height": (sized_jpeg(36, 0), "it cannot be decoded|36 x 0 pixels"),
    "JPEG bomb": (sized_jpeg(65_000, 65_000), "65000 x 65000 pixels, expected 1 to 120000000"),
    "PNG bomb": (raw_png(COLOURS, 2, size=(30_000, 30_000)), "30000 x 30000 pixels"),
    "BMP bomb": (
        COLOURED["BMP"][:18] + struct.pack("<ii", 60_000, 60_000) + COLOURED["BMP"][26:],
        "60000 x 60000 pixels",
    ),
    "WebP bomb": (webp(b"VP8X", bytes(4) + b"\xff\xff\xff" * 2), "16777216 x 16777216 pixels"),
    "lossless WebP bomb": (webp(b"VP8L", b"\x2f" + b"\xff" * 9), "16384 x 16384 pixels"),
    "lossy WebP bomb": (webp(b"VP8 ", bytes(6) + b"\xff\x3f" * 2), "16383 x 16383 pixels"),
}


def decoded(content):
    with PIL.Image.open(io.BytesIO(content)) as image:
        image.load()
        return image.copy()


def fully_decodes(content):
    try:
        decoded(content)
    except (OSError, SyntaxError, ValueError):
        return False
    return True


def by_tensorflow(content, channels):
    return tf.io.decode_image(content, channels=channels, expand_animations=False).numpy()


def refused(content):
    return isinstance(accepted(content, "a.jpg"), BadImage)


@pytest.mark.parametrize("content", KEPT.values(), ids=KEPT)
def test_plain_jpeg_and_png_are_kept_byte_for_byte(content):
    width, height = decoded(content).size
    kind = "png" if content.startswith(png.SIGNATURE) else "jpg"
    expected = Image(
        encoded=content, format=kind, height=height, width=width, filename="rose/1.gif", original=True
    )
    assert accepted(content, "rose/1.gif") == expected


@pytest.mark.parametrize("name", CONVERTED)
def test_other_images_become_png_of_grey_or_colours(name):
    image = accepted(CONVERTED[name], "a.jpg")
    found = (image.format, image.height, image.width, decoded(image.encoded).mode, image.filename)
    assert found == ("png", HEIGHT, WIDTH, "L" if name in GREYS else "RGB", "a.jpg")


@pytest.mark.parametrize(("content", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_plain_image_is_refused_with_a_reason(content, reason):
    found = accepted(content, "tulip/2.jpg")
    assert (type(found), found.filename) == (BadImage, "tulip/2.jpg")
    assert re.search(reason, found.reason)


PNGS = {name: content for name, content in KEPT.items() if "PNG" in name} | CONVERTED


@pytest.mark.parametrize("name", PNGS)
def test_tensorflow_sees_the_pixels_of_a_png_as_pillow_does(name):
    encoded = accepted(PNGS[name], "a").encoded
    assert np.array_equal(by_tensorflow(encoded, 3), decoded(encoded).convert("RGB"))
    if name in GREYS:
        assert np.array_equal(by_tensorflow(encoded, 1)[..., 0], decoded(encoded))


@pytest.mark.parametrize(
    "name", ["PNG with alpha", "PNG of 16 bits a colour", "PNG of 16 bits of grey", "PNG with a palette", "BMP"]
)
def test_a_converted_image_has_the_pixels_that_tensorflow_sees_in_the_original(name):
    content = CONVERTED[name]
    assert np.array_equal(by_tensorflow(accepted(content, "a").encoded, 3), by_tensorflow(content, 3))


@pytest.mark.parametrize(
    "name", ["colour JPEG", "progressive JPEG", "grey JPEG", "JPEG of RGB", "JPEG of one pixel"]
)
def test_every_cut_of_a_jpeg_that_a_full_decode_refuses_is_refused(name):
    content = KEPT[name]
    cuts = [content[:size] for size in range(len(content))]
    assert [len(cut) for cut in cuts if not fully_decodes(cut) and not refused(cut)] == []


@pytest.mark.parametrize("name", ["colour PNG", "grey PNG", "interlaced PNG", "PNG with alpha", "lossy WebP"])
def test_every_cut_of_another_image_is_refused(name):
    content = (KEPT | CONVERTED)[name]
    assert [size for size in range(len(content)) if not refused(content[:size])] == []


def test_broken_exif_is_no_reason_and_no_warning():
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    content = saved(PHOTO, "JPEG", exif=exif)
    for whole, broken in ((b"\x12\x01\x03\0", b"\x12\x01\xff\0"), (b"\x01\x12\0\x03", b"\x01\x12\0\xff")):
        content = content.replace(whole, broken)
    assert accepted(content, "a").encoded == content


@pytest.mark.parametrize("name", ["BMP", "lossless WebP"])
def test_the_bytes_of_a_converted_image_are_those_of_our_encoder(name):
    assert accepted(COLOURED[name], "a").encoded == png.encode(COLOURS)


VIDEO = b"\0\0\0\x18ftypmp42\0\0\0\0isommp42"
THUMBNAIL = b"Exif\0\0" + saved(PHOTO.resize((8, 8)), "JPEG")
JPEGS = {name: KEPT[f"{name} JPEG"] for name in ("colour", "progressive", "grey")} | {
    "restart markers": saved(PHOTO, "JPEG", restart_marker_blocks=2),
    "thumbnail": saved(PHOTO, "JPEG", exif=THUMBNAIL),
}
MARKERS = (b"\xff\xd9", b"\xff\xda", b"\xff\xd8\xff", b"\xff\xd9\xff\xda", b"\xff\xc0", b"")


def trailer(seed):
    draw = random.Random(seed)
    pieces = [piece for _ in range(6) for piece in (draw.randbytes(draw.randrange(200)), draw.choice(MARKERS))]
    return VIDEO + b"".join(pieces) + (JPEGS["progressive"][: draw.randrange(2000)] if seed % 3 == 0 else b"")


TRAILERS = [trailer(seed) for seed in range(45)] + [JPEGS["colour"], JPEGS["progressive"], b"\xff\xda", b"\xff"]


@pytest.mark.parametrize("kind", JPEGS)
def test_bytes_after_the_end_are_ignored(kind):
    results = [accepted(JPEGS[kind] + trailer, "a.jpg") for trailer in TRAILERS]
    assert [result for result in results if not isinstance(result, Image)] == []
    assert all(decoded(result.encoded).size == (WIDTH, HEIGHT) for result in results)
