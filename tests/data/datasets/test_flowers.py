"""Flowers: the photographs of five kinds, without splits."""

import pytest
from support.raw import tar

from perennial.base.errors import DataError
from perennial.data.datasets.flowers import CLASSES, FLOWERS


def read(folder, classes=CLASSES):
    """What is read from an archive of the layout of the original, two files a kind, as a plain tar file."""
    photos = {f"flower_photos/{name}/{number}.jpg": b"\xff\xd8\xff" for name in classes for number in "01"}
    (folder / "flower_photos.tar").write_bytes(tar(photos | {"flower_photos/LICENSE.txt": b"CC-BY"}))
    return FLOWERS.read(folder)


def test_flowers_are_read_from_their_archive(tmp_path):
    source = read(tmp_path)
    assert (source.classes, set(source.splits), len(source.splits["train"].names)) == (CLASSES, {"train"}, 10)


def test_an_archive_without_one_of_the_kinds_is_refused(tmp_path):
    kinds = r"\['daisy', 'dandelion', 'roses', 'sunflowers'\]"
    with pytest.raises(DataError, match=f"the classes are {kinds}, expected"):
        read(tmp_path, CLASSES[:-1])
