"""IDX files of any content are read as what they say, or refused."""

import struct

import numpy as np
import PIL.Image
import pytest
from fuzz.hunt import hostile, hunt

from perennial.base.errors import DataError
from perennial.data.datasets.readers import fixed_size
from perennial.data.images import decode

IMAGES = struct.pack(">4I", 0x803, 3, 2, 4) + bytes(range(24))
LABELS = struct.pack(">2I", 0x801, 3) + bytes([0, 1, 2])


@pytest.fixture
def read(tmp_path):
    """What is read from two files, as their bytes; None where they are refused."""

    def content(images=IMAGES, labels=LABELS):
        (tmp_path / "images").write_bytes(images)
        (tmp_path / "labels").write_bytes(labels)
        try:
            examples = fixed_size.idx_examples(tmp_path / "images", tmp_path / "labels", classes=3)
        except DataError:
            return None
        numbers = range(len(examples.labels))
        pixels = [array(image) for image in examples.images(numbers)]
        stacked = np.stack(pixels)[..., 0]
        return (
            struct.pack(">4I", 0x803, *stacked.shape) + stacked.tobytes(),
            struct.pack(">2I", 0x801, len(numbers)) + examples.labels.astype(np.uint8).tobytes(),
        )

    return content


def array(image):
    found = decode.decoded(image.encoded)
    return decode.array(found) if isinstance(found, PIL.Image.Image) else found


def test_images_that_are_accepted_are_those_of_the_file(read):
    def check(content):
        assert read(images=content) in (None, (content, LABELS))

    hunt(hostile(IMAGES), check)


def test_labels_that_are_accepted_are_those_of_the_file(read):
    def check(content):
        assert read(labels=content) in (None, (IMAGES, content))

    hunt(hostile(LABELS), check)
