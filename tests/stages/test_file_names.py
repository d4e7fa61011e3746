"""Names of files in your own data: not UTF-8, hidden; nothing is lost without a message."""

import os
from pathlib import Path

import pytest

from perennial.base.errors import DataError
from perennial.stages.convert import convert
from perennial.stages.download import download

NOT_UTF8 = os.fsdecode(b"\xff")


def exit_3(stage, config):
    with pytest.raises(DataError) as refused:
        stage(config)
    assert refused.value.exit_code == 3
    return str(refused.value).encode().decode()  # printable everywhere


@pytest.mark.parametrize("name", [f"cat/{NOT_UTF8}.jpg", f"{NOT_UTF8}/1.jpg", f"{NOT_UTF8}.txt"])
def test_a_name_that_is_not_utf8_is_refused_by_download(pictures, name):
    file = Path(pictures.dataset.path, name)
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_bytes(b"x")
    assert "UTF-8" in exit_3(download, pictures)


def test_a_link_whose_name_is_not_utf8_is_refused_by_download(pictures):
    Path(pictures.dataset.path, NOT_UTF8).symlink_to("cat")
    exit_3(download, pictures)


def test_tfrecords_whose_names_are_not_utf8_are_refused_by_download(load, tmp_path):
    folder = tmp_path / "records"
    folder.mkdir()
    (folder / f"{NOT_UTF8}_train.tfrecord").write_bytes(b"x")
    assert "UTF-8" in exit_3(download, load(**{"dataset.name": "tfrecord", "dataset.path": str(folder)}))


def test_a_raw_file_whose_name_is_not_utf8_is_refused_by_convert(small):
    (small.paths.raw / f"{NOT_UTF8}.gz").write_bytes(b"x")
    assert "UTF-8" in exit_3(convert, small)


@pytest.mark.parametrize("name", [".c/1.jpg", "cat/.1.jpg", ".secret"])
def test_hidden_images_and_classes_are_refused_by_name(pictures, name):
    file = Path(pictures.dataset.path, name)
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_bytes(b"x")
    assert repr(name.split("/")[0] if name.startswith(".c") else name) in exit_3(download, pictures)


def test_files_that_desktops_and_tools_leave_are_ignored_and_logged(pictures, caplog):
    caplog.set_level("INFO")
    for name in ("cat/.DS_Store", "cat/._01.jpg", "__MACOSX/cat/1.jpg", "dog/Thumbs.db", ".git/config"):
        file = Path(pictures.dataset.path, name)
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_bytes(b"x")
    download(pictures)
    convert(pictures)
    assert all(name in caplog.text for name in (".DS_Store", "._01.jpg", "__MACOSX", "Thumbs.db", ".git"))
