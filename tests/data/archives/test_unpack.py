"""Raw files as their readers want them."""

import gzip

import pytest
from support import raw

from perennial.base.errors import DataError
from perennial.data.archives import unpack

CONTENT = b"\x00\x00\x08\x01" + bytes(range(100)) * 2
PACKED = gzip.compress(CONTENT, mtime=0)


@pytest.fixture
def unpacked(tmp_path):
    """What becomes of raw files, by name."""
    files, folder = tmp_path / "raw", tmp_path / "unpacked"
    files.mkdir()
    folder.mkdir()

    def content(**contents):
        for name, packed in contents.items():
            (files / name.replace("_", ".")).write_bytes(packed)
        for path in folder.iterdir():
            path.unlink()
        unpack(files, folder)
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    return content


def tar(kind=""):
    return raw.tar({"a.txt": b"abc"}, f"w:{kind}")


@pytest.mark.parametrize(
    ("name", "packed", "becomes"),
    [
        ("a_gz", PACKED, {"a": CONTENT}),
        ("a_gz", PACKED + PACKED, {"a": CONTENT + CONTENT}),
        ("a_tfrecord", CONTENT, {"a.tfrecord": CONTENT}),
        ("A_TGZ", tar("gz"), {"A.tar": tar()}),
    ],
    ids=["gzip", "gzip of several parts", "plain", "capitals"],
)
def test_a_file_becomes_what_it_holds(unpacked, name, packed, becomes):
    assert unpacked(**{name: packed}) == becomes


@pytest.mark.parametrize("ending", ["tar.gz", "tgz", "tar.bz2", "tbz2", "tar.xz", "txz", "tar"])
def test_an_archive_becomes_a_plain_tar_file(unpacked, ending):
    kind = {"gz": "gz", "bz2": "bz2", "xz": "xz", "ar": ""}[ending.removeprefix("tar.").removeprefix("t")]
    assert unpacked(**{f"a_{ending.replace('.', '_')}": tar(kind)}) == {"a.tar": tar()}


def test_a_folder_that_is_empty_or_missing_is_reported_with_what_fetches_it(unpacked, tmp_path):
    with pytest.raises(DataError, match=r"raw holds no files; `dvc repro download` fetches them"):
        unpacked()
    with pytest.raises(DataError, match=r"`dvc repro download`"):
        unpack(tmp_path / "absent", tmp_path)


@pytest.mark.parametrize("content", [b"", b"<html>404</html>", b"\x1f\x8b", CONTENT])
def test_what_is_no_gzip_file_is_refused_by_name(unpacked, content):
    with pytest.raises(DataError, match=r"a\.gz"):
        unpacked(a_gz=content)


@pytest.mark.parametrize(
    "files",
    [
        {"a": b"raw", "a_gz": PACKED},
        {"a_tar": tar(), "a_zip": b"PK"},
        {"a_tgz": tar("gz"), "a_tar_gz": tar("gz")},
    ],
    ids=["plain and gzip", "tar and zip", "two of one ending"],
)
def test_two_raw_files_that_would_become_one_are_refused(unpacked, files):
    with pytest.raises(DataError, match="two files that would both be a"):
        unpacked(**files)
