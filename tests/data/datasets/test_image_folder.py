"""Images of one's own: what is collected, and that it is read back."""

import bz2
import gzip
import lzma
import shutil
import zipfile

import pytest

from perennial.base.errors import DataError
from perennial.data import archives
from perennial.data.datasets.image_folder import IMAGE_FOLDER, collect


@pytest.fixture
def photos(tmp_path):
    for name in ("rose", "tulip"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "1.jpg").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "raw").mkdir()
    return tmp_path / "photos"


@pytest.fixture
def raw(tmp_path, photos):
    return tmp_path / "raw"


def test_a_folder_is_collected_as_one_tar_file(photos, raw):
    collect(photos, raw)
    assert IMAGE_FOLDER.read(raw).classes == ("rose", "tulip")


@pytest.mark.parametrize(
    ("name", "compress"),
    [
        ("images.tar", bytes),
        ("images.tar.gz", gzip.compress),
        ("images.tar.bz2", bz2.compress),
        ("images.tar.xz", lzma.compress),
    ],
)
def test_an_archive_is_collected_as_it_is_with_the_ending_of_its_content(tmp_path, photos, raw, name, compress):
    archives.pack(photos, tmp_path / "packed")
    (tmp_path / "packed").write_bytes(compress((tmp_path / "packed").read_bytes()))
    collect(tmp_path / "packed", raw)
    assert [(path.name, path.read_bytes()) for path in raw.iterdir()] == [
        (name, (tmp_path / "packed").read_bytes())
    ]


def test_a_zip_archive_is_collected_and_read(tmp_path, photos, raw):
    collect(shutil.make_archive(tmp_path / "x", "zip", photos) and tmp_path / "x.zip", raw)
    archives.expand(raw / "images.zip", raw / "images.tar")
    assert zipfile.is_zipfile(raw / "images.zip")
    assert IMAGE_FOLDER.read(raw).splits["train"].labels.tolist() in ([0, 1], [1, 0])


def test_what_a_person_owns_is_not_the_file_in_the_raw_folder(tmp_path, photos, raw):
    archives.pack(photos, tmp_path / "x.tar")
    collect(tmp_path / "x.tar", raw)
    assert not (raw / "images.tar").samefile(tmp_path / "x.tar")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "x does not exist; dataset.path names"), (b"", "x is empty"), (b"<html>", "x is not a tar")],
)
def test_what_is_no_archive_is_not_collected(tmp_path, raw, content, message):
    if content is not None:
        (tmp_path / "x").write_bytes(content)
    with pytest.raises(DataError, match=message):
        collect(tmp_path / "x", raw)
    assert list(raw.iterdir()) == []


@pytest.mark.parametrize("names", [[], ["a.tar", "b.tar"]])
def test_exactly_one_tar_file_is_read(raw, names):
    for name in names:
        (raw / name).touch()
    with pytest.raises(DataError, match=r"expected one \.tar file"):
        IMAGE_FOLDER.read(raw)
