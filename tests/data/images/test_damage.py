"""Files that decoders accept with a warning, or that only some of them accept."""

import io
import struct
import zlib

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from support.odd_images import COLOURS, PHOTO, chunks_of, png_of, saved

from perennial.data.images import MOST_SIDE, BadImage, Image, jpeg, png
from perennial.data.images.accept import accepted
from perennial.data.images.decode import array, decoded

END = b"\xff\xd9"
SEQUENTIAL = {
    "colours": saved(PHOTO.resize((200, 150)), "JPEG"),
    "grey": saved(PHOTO.convert("L").resize((200, 150)), "JPEG"),
    "restart markers": saved(PHOTO.resize((200, 150)), "JPEG", restart_marker_blocks=3),
    "one colour a pixel": saved(PHOTO.resize((200, 150)), "JPEG", subsampling=0),
}


def small_window(pixels, bits):
    """A PNG whose header names a window of 2^bits bytes, while its distances reach 32 KB."""
    chunks = chunks_of(saved(PIL.Image.fromarray(pixels), "PNG", compress_level=9))
    stream = bytearray(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    stream[0] = (bits - 8) << 4 | 8
    stream[1] &= 0xE0
    stream[1] += 31 - int.from_bytes(stream[:2]) % 31
    return png_of([chunks[0], (b"IDAT", bytes(stream)), (b"IEND", b"")])


def noise(height=200, width=200):
    """Pixels that repeat after more bytes than a small window holds."""
    half = np.random.default_rng(0).integers(0, 3, (height // 2, width, 3), np.uint8)
    return np.vstack([half, half])


def scans(content):
    return [segment for segment in jpeg.segments(content) if segment.marker == jpeg.SCAN]


@pytest.mark.parametrize("kind", SEQUENTIAL)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.98])
def test_a_jpeg_that_is_cut_in_its_scan_and_has_an_end_is_refused(kind, share):
    content = SEQUENTIAL[kind]
    (scan,) = scans(content)
    cut = content[: scan.start + 20 + int((scan.stop - scan.start - 20) * share)].rstrip(b"\xff")
    assert accepted(content, "a").encoded == content
    found = accepted(cut + END, "a")
    assert isinstance(found, BadImage)
    assert "truncated" in found.reason
    with pytest.raises(ValueError, match="truncated"):
        decoded(cut + END)


@pytest.mark.parametrize("frame", ["colours", "grey", "progressive"])
@pytest.mark.parametrize(
    "segment", [b"\xff\xe0\0\x07JFIF\0", b"\xff\xee\0\x07Adobe", b"\xff\xee\0\x0cAdobe12345"]
)
def test_a_jpeg_with_a_segment_that_libjpeg_ignores_is_the_same_for_all_decoders(frame, segment):
    whole = SEQUENTIAL.get(frame) or saved(PHOTO, "JPEG", progressive=True)
    content = whole[:2] + segment + whole[20:]  # in place of the JFIF segment
    found = accepted(content, "a")
    assert isinstance(found, Image)
    pixels = array(decoded(content)).astype(int)
    assert np.abs(pixels - tf.io.decode_jpeg(content, dct_method="INTEGER_ACCURATE").numpy()).max() <= 3


def test_a_progressive_jpeg_without_its_last_scans_is_refused():
    content = saved(PHOTO, "JPEG", progressive=True)
    for scan in scans(content)[1:]:
        found = accepted(content[: scan.start] + END, "a")
        assert type(found) is BadImage
        assert "last scans are missing" in found.reason


@pytest.mark.parametrize("bits", [9, 12, 14])
def test_a_png_beyond_its_window_becomes_one_that_training_decodes(bits):
    content = small_window(noise(), bits)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.decode_png(content)
    found = accepted(content, "a")
    assert np.array_equal(tf.io.decode_png(found.encoded), noise())
    with pytest.raises(ValueError, match="window"):
        decoded(content)


def test_a_png_within_its_small_window_is_kept():
    packer = zlib.compressobj(9, zlib.DEFLATED, 9)
    lines = b"".join(b"\0" + line.tobytes() for line in noise())
    chunks = chunks_of(saved(PIL.Image.fromarray(noise()), "PNG"))
    content = png_of([chunks[0], (b"IDAT", packer.compress(lines) + packer.flush()), (b"IEND", b"")])
    assert accepted(content, "a").encoded == content
    assert np.array_equal(tf.io.decode_png(content), noise())


@pytest.mark.parametrize("kind", ["PNG", "BMP"])
def test_an_image_that_is_taller_than_training_decodes_is_refused(kind):
    content = saved(PIL.Image.new("L", (1, MOST_SIDE + 1)), kind)
    assert f"1 x {MOST_SIDE + 1} pixels, expected at most {MOST_SIDE} a side" in accepted(content, "a").reason


HEADER, DATA, LAST = chunks_of(saved(PHOTO, "PNG"))
UNDECODABLE = {
    "two headers": [HEADER, HEADER, DATA, LAST],
    "two palettes": [HEADER, (b"PLTE", bytes(3)), (b"PLTE", bytes(3)), DATA, LAST],
    "a palette before and after": [HEADER, (b"PLTE", bytes(3)), DATA, (b"PLTE", bytes(3)), LAST],
    "an empty palette": [HEADER, (b"PLTE", b""), DATA, LAST],
    "digits as a name": [HEADER, (b"12ab", b""), DATA, LAST],
}


@pytest.mark.parametrize("chunks", UNDECODABLE.values(), ids=UNDECODABLE)
def test_a_png_that_libpng_refuses_is_refused(chunks):
    content = png_of(chunks)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.decode_png(content)
    assert isinstance(accepted(content, "a"), BadImage)


def test_an_unknown_filter_in_an_interlaced_png_is_refused():
    header = HEADER[1][:-1] + b"\1"
    passes = [COLOURS[y::dy, x::dx] for x, y, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4),
              (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))]  # fmt: skip
    for last in (b"\0", b"\5"):
        lines = [b"\0" + line.tobytes() for part in passes for line in part]
        lines[-1] = last + lines[-1][1:]
        content = png_of([(b"IHDR", header), (b"IDAT", zlib.compress(b"".join(lines))), LAST])
        assert isinstance(accepted(content, "a"), Image if last == b"\0" else BadImage)


def test_sampling_factors_that_training_refuses_become_png_or_are_refused():
    content = bytearray(saved(PHOTO, "JPEG", subsampling=0))
    at = content.index(b"\xff\xc0")
    content[at + 11], content[at + 14] = 0x31, 0x21
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.decode_jpeg(bytes(content))
    found = accepted(bytes(content), "a")
    assert isinstance(found, BadImage) or found.format == "png"
    with pytest.raises(ValueError, match="TensorFlow"):
        decoded(bytes(content))


def test_large_metadata_of_a_png_are_removed():
    small, large = (png_of([HEADER, (b"tEXt", b"a\0" + b"x" * size), DATA, LAST]) for size in (100, 10**5))
    assert accepted(small, "a").encoded == small
    found = accepted(large, "a").encoded
    assert found == png_of([HEADER, DATA, LAST])
    assert array(decoded(large)).shape == COLOURS.shape


def test_a_hundred_scans_are_the_most():
    content = saved(PHOTO, "JPEG", progressive=True)
    scan = scans(content)[-1]
    last = content[scan.start : scan.stop]
    assert "more than 100 scans" in accepted(content[: scan.stop] + last * 100 + END, "a").reason


def test_no_value_of_an_exif_block_is_copied():
    entries = b"".join(struct.pack(">HHII", tag, 7, 50_000, 8) for tag in range(4000))
    block = b"Exif\0\0MM\0*" + struct.pack(">IH", 8, 4000) + entries
    content = saved(PHOTO, "JPEG")
    content = content[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + content[2:]
    image = PIL.Image.open(io.BytesIO(jpeg.read(content).for_decoder(content)))
    assert accepted(content, "a").encoded == content
    assert image.info.keys() & {"exif"} == set()


def test_a_png_in_many_chunks_is_joined_for_the_decoder():
    parts = [(b"IDAT", DATA[1][at : at + 1]) for at in range(len(DATA[1]))]
    content = png_of([HEADER, *parts, LAST])
    assert len(parts) > 100
    assert np.array_equal(array(decoded(content)), COLOURS)
    assert content.startswith(png.SIGNATURE)
