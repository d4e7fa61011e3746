"""Encoded images that the graph of an export takes: answered as `perennial predict` answers, or refused."""

import itertools
import struct
import zlib

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from support.inference import write_export
from support.odd_images import saved
from support.raw import picture

import perennial
from perennial.base.config.data import DatasetConfig
from perennial.data.images import accept, png
from perennial.model.export import encodings
from perennial.model.export.encodings import Takes

COLOURS = picture(3, 32)[:24]
PHOTO = PIL.Image.fromarray(COLOURS)
GREY = PHOTO.convert("L")
ALPHA = PIL.Image.fromarray(np.dstack([COLOURS, COLOURS[..., 0]]))
RNG = np.random.default_rng(0)
BITS = {1: (1, 2, 4, 8, 16), 3: (8, 16), "palette": (1, 2, 4, 8), 2: (8, 16), 4: (8, 16)}
TYPES = {1: 0, 3: 2, "palette": 3, 2: 4, 4: 6}  # colour type by channels
PASSES = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))


def png_of(colour: int | str, bits: int, *, interlaced: bool = False, key: bytes = b"") -> bytes:
    """A PNG of random samples."""
    channels = 1 if colour == "palette" else int(colour)
    samples = RNG.integers(0, 2**bits, (24, 32, channels))
    digits = (samples[..., np.newaxis] >> np.arange(bits)[::-1]) & 1
    parts = [digits[y::down, x::along] for y, x, down, along in PASSES] if interlaced else [digits]
    rows = (b"\0" + np.packbits(row).tobytes() for part in parts for row in part)
    table = png.chunk(b"PLTE", RNG.bytes(3 * 2**bits)) if colour == "palette" else b""
    head = struct.pack(">IIBBBBB", 32, 24, bits, TYPES[colour], 0, 0, interlaced)
    body = png.chunk(b"IHDR", head) + table + (png.chunk(b"tRNS", key) if key else b"")
    return png.SIGNATURE + body + png.chunk(b"IDAT", zlib.compress(b"".join(rows))) + png.chunk(b"IEND", b"")


def exif(value: int) -> PIL.Image.Exif:
    found = PIL.Image.Exif()
    found[0x010F], found[0x0112], found[0x0131] = "a camera", value, "a program"
    return found


PNGS = {
    f"PNG {colour} {bits}{' interlaced' * interlaced}": png_of(colour, bits, interlaced=interlaced)
    for colour in BITS
    for bits in BITS[colour]
    for interlaced in (False, True)
}
KEYED = {
    "PNG of a palette with alpha": png_of("palette", 8, key=RNG.bytes(256)),
    "PNG with a transparent colour": saved(PHOTO, "PNG", transparency=(0, 0, 0)),
    "grey PNG with a transparent colour": saved(GREY, "PNG", transparency=0),
}
JPEGS = {
    "JPEG": saved(PHOTO, "JPEG"),
    "grey JPEG": saved(GREY, "JPEG"),
    "progressive JPEG": saved(PHOTO, "JPEG", progressive=True),
    "JPEG with all colours": saved(PHOTO, "JPEG", subsampling=0),
    "upright JPEG": saved(PHOTO, "JPEG", exif=exif(1)),
    "MPO": saved(PHOTO, "MPO", save_all=True, append_images=[GREY]),
    "upright PNG": saved(PHOTO, "PNG", exif=exif(1)),
}
DEEP = [name for name in PNGS if name.startswith(("PNG 3 16", "PNG 4 16"))]
TAKEN = {1: {each: (JPEGS | PNGS | KEYED)[each] for each in (JPEGS | PNGS | KEYED) if each not in DEEP}}
TAKEN[3] = JPEGS | PNGS | KEYED
OTHER = "image must be a JPEG or PNG file"
ROTATED = "image is rotated by its EXIF orientation"
REFUSED = {
    "nothing": (b"", OTHER),
    "text": (b"no image", OTHER),
    "BMP": (saved(PHOTO, "BMP"), OTHER),
    "BMP with a palette": (saved(PHOTO.quantize(16), "BMP"), OTHER),
    "BMP of 1 bit": (saved(GREY.convert("1"), "BMP"), OTHER),
    "BMP of 32 bits": (saved(ALPHA, "BMP"), OTHER),
    "GIF": (saved(GREY, "GIF"), OTHER),
    "WebP": (saved(PHOTO, "WEBP"), OTHER),
    "WebP with alpha": (saved(ALPHA, "WEBP", lossless=True), OTHER),
    "TIFF": (saved(PHOTO, "TIFF"), OTHER),
    "JPEG in CMYK": (saved(PHOTO.convert("CMYK"), "JPEG"), "image is a JPEG in CMYK"),
    "animated PNG": (saved(PHOTO, "PNG", save_all=True, append_images=[PHOTO.rotate(180)]), "an animation"),
    "rotated PNG": (saved(PHOTO, "PNG", exif=exif(3)), ROTATED),
    **{f"JPEG, EXIF {value}": (saved(PHOTO, "JPEG", exif=exif(value)), ROTATED) for value in range(2, 9)},
}


@pytest.fixture(scope="module", params=[1, 3], ids=["grey", "RGB"])
def both(request, tmp_path_factory):
    """The signature of a grey or RGB model, the same model for `predict`, and its channels."""
    folder = write_export(
        tmp_path_factory.mktemp("encodings") / "export", channels=request.param, scale=3
    ).folder
    loaded = tf.saved_model.load(str(folder))
    return loaded.signatures["classify_bytes"], perennial.load(folder), request.param


def test_what_the_graph_takes_gets_the_answer_of_predict(both) -> None:
    classify, model, channels = both
    names, images = zip(*TAKEN[channels].items(), strict=True)
    found = classify(image=tf.constant(images))["probabilities"].numpy()
    for name, row, expected in zip(names, found, model.predict(images), strict=True):
        np.testing.assert_allclose(row, expected.probabilities, atol=1e-6, err_msg=name)
    assert np.ptp(found, axis=0).max() > 0.001  # the answers differ, so the comparison means something


def test_what_it_would_read_otherwise_is_refused_in_the_graph_with_the_reason(both) -> None:
    classify, _, channels = both
    deep = {name: (PNGS[name], "image is a PNG in colours of 16 bits") for name in DEEP if channels == 1}
    for content, reason in (REFUSED | deep).values():
        with pytest.raises(tf.errors.InvalidArgumentError, match=reason):
            classify(image=tf.constant([content]))


def test_a_model_on_white_refuses_transparent_images(tmp_path) -> None:
    folder = write_export(tmp_path / "export", takes=Takes(transparent=False)).folder
    classify = tf.saved_model.load(str(folder)).signatures["classify_bytes"]
    clear = {name for name in PNGS if name.startswith(("PNG 2", "PNG 4"))} | KEYED.keys()
    for name, content in TAKEN[3].items():
        if name in clear:
            with pytest.raises(tf.errors.InvalidArgumentError, match="image is transparent; composite"):
                classify(image=tf.constant([content]))
        else:
            classify(image=tf.constant([content]))


def test_a_model_whose_records_may_hold_such_takes_rotated_images(tmp_path) -> None:
    folder = write_export(tmp_path / "export", takes=Takes(different=True)).folder
    classify = tf.saved_model.load(str(folder)).signatures["classify_bytes"]
    images = [content for content, reason in REFUSED.values() if reason != OTHER]
    assert classify(image=tf.constant(images))["classes"].shape == len(images)
    with pytest.raises(tf.errors.InvalidArgumentError, match=OTHER):
        classify(image=tf.constant([REFUSED["BMP"][0]]))


@pytest.mark.parametrize(
    ("name", "transparency", "expected"),
    [
        ("flowers", "drop", Takes()),
        ("image_folder", "white", Takes(transparent=False)),
        ("tfrecord", "drop", Takes(different=True)),
        ("tfrecord", "white", Takes(different=True, transparent=False)),
        ("components.pets:PETS", "white", Takes(different=True)),
    ],
)
def test_a_model_takes_what_the_records_of_its_data_set_may_hold(name, transparency, expected) -> None:
    assert Takes.of(DatasetConfig(name=name, transparency=transparency)) == expected


def tiff(order: str, entries: list[tuple[int, int, int, bytes]]) -> bytes:
    rows = b"".join(struct.pack(f"{order}HHI", *each[:3]) + each[3] for each in entries)
    mark = {"<": b"II*\0", ">": b"MM\0*"}[order]
    return mark + struct.pack(f"{order}I", 8) + struct.pack(f"{order}H", len(entries)) + rows + bytes(4)


def test_no_image_that_convert_keeps_as_it_is_counts_as_rotated() -> None:
    plain, jfif = saved(PHOTO, "JPEG"), 20
    tags = (0x0100, 0x010F, 0x0112, 0x0131, 0x8769)
    checked = tf.function(lambda image: encodings.checked(image, 3, Takes()))
    found = set()
    kinds = ((3, "H2x"), (4, "I"))
    for order, value, (kind, form), chosen in itertools.product(
        "<>", range(10), kinds, itertools.combinations(tags, 3)
    ):
        number = struct.pack(f"{order}{form}", value)
        block = b"Exif\0\0" + tiff(
            order, [(tag, kind, 1, number if tag == 0x0112 else bytes(4)) for tag in chosen]
        )
        segment = b"\xff\xe1" + struct.pack(">H", 2 + len(block)) + block
        for image in (plain[:2] + segment + plain[2:], plain[:jfif] + segment + plain[jfif:]):
            kept = accept.is_kept(image)
            found.add(kept)
            if kept:
                assert checked(tf.constant(image)) == image
            else:
                with pytest.raises(tf.errors.InvalidArgumentError, match=ROTATED):
                    checked(tf.constant(image))
    assert found == {True, False}
