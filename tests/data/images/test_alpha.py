"""Transparent pixels: dropped as in TensorFlow, or composited on white."""

import struct
import zlib

import numpy as np
import PIL.Image
import pytest
from support.odd_images import png_of, saved

from perennial.data.images import Image, accept
from perennial.data.images.decode import array, decoded
from perennial.model.inference import image_inputs
from perennial.project.start import survey

SIDE = 16
INSIDE = np.zeros((SIDE, SIDE), bool)
INSIDE[4:12, 4:12] = True
ALPHA = PIL.Image.fromarray(np.where(INSIDE, 255, 0).astype(np.uint8))
ON_WHITE = np.where(INSIDE, 0, 255)


def black(mode):
    image = PIL.Image.new(mode.replace("A", ""), (SIDE, SIDE))
    image.putalpha(ALPHA)
    return image


def with_key(bits, colour, inside, outside, key):
    """A PNG of two colours, of which one is transparent."""
    channels = 3 if colour == 2 else 1
    values = np.where(INSIDE, inside, outside).repeat(channels, 1).reshape(SIDE, -1)
    if bits < 8:
        shifted = values.reshape(SIDE, -1, 8 // bits) << np.arange(8 - bits, -1, -bits)
        lines = shifted.sum(-1).astype(np.uint8)
    else:
        lines = values.astype(">u2" if bits == 16 else np.uint8)
    content = zlib.compress(b"".join(b"\0" + line.tobytes() for line in lines))
    header = struct.pack(">IIBBBBB", SIDE, SIDE, bits, colour, 0, 0, 0)
    return png_of([(b"IHDR", header), (b"tRNS", struct.pack(f">{channels}H", *[key] * channels)),
                   (b"IDAT", content), (b"IEND", b"")])  # fmt: skip


def palette(transparency):
    image = PIL.Image.fromarray(np.where(INSIDE, 1, 0).astype(np.uint8), "P")
    image.putpalette([0] * 9)
    return saved(image, "PNG", transparency=transparency)


def deep():
    """16 bits of grey and of alpha."""
    samples = np.stack([np.zeros((SIDE, SIDE)), np.where(INSIDE, 65535, 0)], axis=-1).astype(">u2")
    content = zlib.compress(b"".join(b"\0" + line.tobytes() for line in samples))
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 16, 4, 0, 0, 0)
    return png_of([(b"IHDR", header), (b"IDAT", content), (b"IEND", b"")])


HIDDEN = {
    "RGBA": saved(black("RGBA"), "PNG"), "grey and alpha": saved(black("LA"), "PNG"),
    "16 bits of grey and alpha": deep(), "palette": palette(0), "palette with alpha": palette(b"\0\xff\0"),
    "WebP": saved(black("RGBA"), "WEBP", lossless=True, exact=True),
}  # fmt: skip
KEYS = {
    "8 bits of grey": with_key(8, 0, 0, 9, 9), "16 bits of grey": with_key(16, 0, 0, 4000, 4000),
    "4 bits of grey": with_key(4, 0, 0, 5, 5), "2 bits of grey": with_key(2, 0, 0, 2, 2),
    "1 bit of grey": with_key(1, 0, 0, 1, 1), "RGB": with_key(8, 2, 0, 9, 9),
    "16 bits of RGB": with_key(16, 2, 0, 4000, 4000),
}  # fmt: skip


@pytest.mark.parametrize("content", HIDDEN.values(), ids=HIDDEN)
def test_a_picture_in_the_alpha_channel_is_noticed(content):
    assert accept.accepted(content, "a").hidden
    assert not accept.accepted(content, "a", "white").hidden


@pytest.mark.parametrize("content", (HIDDEN | KEYS).values(), ids=HIDDEN | KEYS)
def test_transparent_pixels_become_white(content):
    encoded = accept.accepted(content, "a", "white").encoded
    assert (array(decoded(encoded)) == ON_WHITE[..., None]).all()
    assert image_inputs.to_encoded(content, image_inputs.PixelBudget(), "white") == encoded


def test_half_transparent_pixels_are_mixed_with_white():
    image = PIL.Image.new("RGBA", (4, 4), (0, 0, 200, 128))
    found = array(decoded(accept.accepted(saved(image, "PNG"), "a", "white").encoded))
    assert found[0, 0].tolist() == [127, 127, 227]


@pytest.mark.parametrize("image", [black("RGBA"), black("LA")])
def test_a_pillow_image_of_predict_is_composited_as_well(image):
    (source,) = image_inputs.from_values(image)
    for transparency, expected in (("white", ON_WHITE), ("drop", np.zeros_like(ON_WHITE))):
        found = array(decoded(source.read(image_inputs.PixelBudget(), transparency)))
        assert (found == expected[..., None]).all()


def test_an_opaque_image_and_one_with_colours_are_not_hidden():
    colours = PIL.Image.effect_noise((SIDE, SIDE), 90).convert("RGB")
    colours.putalpha(ALPHA)
    opaque = black("RGBA")
    opaque.putalpha(255)
    assert [accept.accepted(saved(each, "PNG"), "a").hidden for each in (colours, opaque)] == [False, False]


@pytest.mark.parametrize("name", [name for name in HIDDEN if name != "WebP"])
def test_an_image_of_a_record_is_composited_where_it_is_a_png(name):
    content = HIDDEN[name]
    image = Image(encoded=content, format="png", height=SIDE, width=SIDE)
    dropped, white = (accept.for_record(image, "a", each) for each in ("drop", "white"))
    assert (dropped.encoded, dropped.hidden) == (content, True)
    assert (array(decoded(white.encoded)) == ON_WHITE[..., None]).all()


def test_start_counts_them(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "own" / name).mkdir(parents=True)
        for number in range(4):
            (tmp_path / "own" / name / f"{number}.png").write_bytes(HIDDEN["RGBA"])
    assert survey.look(tmp_path / "own", tmp_path / "scratch").hidden == 8
