"""Flowers: the photographs of five kinds, without splits."""

import tarfile

import pytest

from perennial.base.errors import DataError
from perennial.data import archives
from perennial.data.datasets.flowers import CLASSES, FLOWERS


@pytest.fixture
def raw(tmp_path):
    """A folder with an archive of the layout of the original, two files a kind, as a plain tar file."""

    def make(classes=CLASSES):
        for name in classes:
            (tmp_path / "flower_photos" / name).mkdir(parents=True)
            for number in range(2):
                (tmp_path / "flower_photos" / name / f"{number}.jpg").write_bytes(b"\xff\xd8\xff")
        (tmp_path / "flower_photos" / "LICENSE.txt").write_text("CC-BY")
        with tarfile.open(tmp_path / "flower_photos.tgz", "w:gz") as archive:
            archive.add(tmp_path / "flower_photos", "flower_photos")
        archives.expand(tmp_path / "flower_photos.tgz", tmp_path / "flower_photos.tar")
        return tmp_path

    return make


def test_flowers_are_read_from_their_archive(raw):
    source = FLOWERS.read(raw())
    assert (source.classes, set(source.splits), len(source.splits["train"].names)) == (CLASSES, {"train"}, 10)


def test_an_archive_without_one_of_the_kinds_is_refused(raw):
    with pytest.raises(
        DataError, match=r"the classes are \['daisy', 'dandelion', 'roses', 'sunflowers'\], expected"
    ):
        FLOWERS.read(raw(CLASSES[:-1]))
