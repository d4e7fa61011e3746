"""A file that is written again has the same pixels, and nothing but what decoding them needs."""

import os
from random import Random

import numpy as np
import pytest
import tensorflow as tf
from fuzz.odd_images import odd, valid
from support.odd_images import PHOTO, chunks_of, png_of, saved

from perennial.data.images import Image, Refused, accept, jpeg, png
from perennial.data.images.decode import array, decoded

SECRET = b"Jane Doe, 52.5200 N 13.4050 E "
FILES = int(os.environ.get("PERENNIAL_REWRITTEN_IMAGES", "400"))


def segment(marker, body):
    return bytes((0xFF, marker)) + (2 + len(body)).to_bytes(2) + body


def with_segment(content, added):
    """A JPEG with a further segment before its frame."""
    at = next(each.start for each in jpeg.segments(content) if each.marker in jpeg.FRAMES)
    return content[:at] + added + content[at:]


JPEG, ADOBE = saved(PHOTO, "JPEG"), saved(PHOTO, "JPEG", keep_rgb=True)
PNG = saved(PHOTO, "PNG")
GREY = saved(PHOTO.convert("L"), "JPEG")
CODES = bytes([0] * 7 + [len(SECRET)] + [0] * 8)  # how many of each length, 1 to 16
IDAT = dict(chunks_of(PNG))[b"IDAT"]
STUFFED = {
    "EXIF": with_segment(JPEG, segment(0xE1, b"Exif\0\0" + SECRET)),
    "comment": with_segment(JPEG, segment(0xFE, SECRET)),
    "thumbnail of JFIF": with_segment(JPEG, segment(0xE0, b"JFIF\0\1\2\0\0\1\0\1\3\3" + SECRET[:27])),
    "long JFIF": with_segment(JPEG, segment(0xE0, b"JFIF\0\1\2\0\0\1\0\1\0\0" + SECRET * 9)),
    "resolution of JFIF": with_segment(JPEG, segment(0xE0, b"JFIF\0" + SECRET[:9])),
    "long Adobe": with_segment(ADOBE, segment(0xEE, b"Adobe\0\x64\0\0\0\0\0" + SECRET)),
    "flags of Adobe": with_segment(ADOBE, segment(0xEE, b"Adobe" + SECRET[:6] + b"\0")),
    "unknown segment": with_segment(JPEG, segment(0xEB, SECRET)),
    "reserved segment": with_segment(JPEG, segment(0xDC, SECRET)),
    "table that is replaced": JPEG[:2] + segment(0xDB, b"\0" + (SECRET * 3)[:64]) + JPEG[2:],
    "table that no component has": with_segment(JPEG, segment(0xDB, b"\3" + (SECRET * 3)[:64])),
    "codes that no component has": with_segment(JPEG, segment(0xC4, b"\3" + CODES + SECRET)),
    "bytes between segments": with_segment(JPEG, SECRET),
    "fill bytes before the end": JPEG[:-2] + b"\xff" * 99 + JPEG[-2:] + SECRET,
    "after the end": JPEG + SECRET,
    "a video after the end": JPEG + b"\0\0\0\x18ftypmp42" + SECRET + JPEG,
    "PNG text": png_of([*chunks_of(PNG)[:1], (b"tEXt", b"Author\0" + SECRET), *chunks_of(PNG)[1:]]),
    "PNG text after the lines": png_of([*chunks_of(PNG)[:-1], (b"tEXt", b"Author\0" + SECRET), (b"IEND", b"")]),
    "PNG private chunk": png_of([*chunks_of(PNG)[:1], (b"prVt", SECRET), *chunks_of(PNG)[1:]]),
    "palette of a PNG in colours": png_of([*chunks_of(PNG)[:1], (b"PLTE", SECRET), *chunks_of(PNG)[1:]]),
    "after IEND": PNG + SECRET,
    "in IEND": png_of([*chunks_of(PNG)[:-1], (b"IEND", SECRET)]),
    "behind the compressed lines": png_of([*chunks_of(PNG)[:1], (b"IDAT", IDAT + SECRET), (b"IEND", b"")]),
    "in a further IDAT": png_of([*chunks_of(PNG)[:1], (b"IDAT", IDAT), (b"IDAT", SECRET), (b"IEND", b"")]),
}  # fmt: skip


@pytest.mark.parametrize("place", STUFFED)
def test_nothing_but_pixels_is_left_of_a_file(place):
    found = accept.accepted(STUFFED[place], "a")
    assert isinstance(found, Image), found
    written = accept.without_metadata(found.encoded)
    assert SECRET[:6] not in written
    np.testing.assert_array_equal(array(decoded(written)), array(decoded(found.encoded)))


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("content", [JPEG, GREY], ids=["colours", "grey"])
def test_a_file_with_bytes_between_its_pixels_and_its_end_is_not_kept(content, count):
    with pytest.raises(Refused, match="bytes follow its pixels"):
        accept.without_metadata(content[:-2] + SECRET * count + content[-2:])


def test_what_was_written_again_stays_as_it_is():
    for content in (*valid(), *STUFFED.values()):
        if isinstance(found := accept.accepted(content, "a"), Image):
            written = accept.without_metadata(found.encoded)
            assert accept.without_metadata(written) == written


def test_no_pixel_of_a_fuzzed_image_changes():
    draw, kept, files = Random(5), 0, valid()
    for _ in range(FILES):
        found = accept.accepted(odd(draw, files), "a")
        if not isinstance(found, Image):
            continue
        try:
            written = accept.without_metadata(found.encoded)
        except Refused:
            continue  # it is not kept
        kept += 1
        for read in (lambda each: array(decoded(each)), lambda each: tf.io.decode_image(each).numpy()):
            np.testing.assert_array_equal(read(written), read(found.encoded))
        ours = {jpeg.JFIF: 18, jpeg.ADOBE: 16}
        if written.startswith(png.SIGNATURE):
            assert [kind for kind, _ in chunks_of(written)] == [b"IHDR", b"IDAT", b"IEND"]
        else:
            sizes = {each.marker: each.stop - each.start for each in jpeg.segments(written)}
            assert {each: size for each, size in sizes.items() if each in jpeg.METADATA}.items() <= ours.items()
    assert kept > FILES / 8
