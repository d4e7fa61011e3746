"""`perennial show`: facts and image of a record, and of damaged records."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from perennial.base import files
from perennial.base.errors import ConfigError, DataError
from perennial.cli import app
from perennial.cli.command import guarded
from perennial.cli.show_record import show, show_in_file
from perennial.data.images import Image, png
from perennial.data.records import manifest
from perennial.data.tfrecord import example, framing

SOURCE = str(Path(files.__file__).parents[2])
DIGIT = png.encode(np.full((4, 6), 200, np.uint8))
IMAGES = (
    (Image(encoded=DIGIT, format="png", height=4, width=6), 1),
    (Image(encoded=b"no image", format="jpg", height=5, width=5, filename="\x1b[2Jbad.jpg"), 7),
)


def shard_of(pairs):
    return b"".join(framing.frame(example.serialize(*pair)) for pair in pairs)


@pytest.fixture
def config(tmp_path):
    """The paths of a data set with two records: a grey image, and one that does not decode."""
    records, index = tmp_path / "records", tmp_path / "index"
    files.write_bytes(records / "all.tfrecord", content := shard_of(IMAGES))
    shard = manifest.Shard(file="all.tfrecord", examples=2, bytes=len(content), sha256="")
    split = manifest.SplitManifest(examples=2, per_class=[1, 1], shards=[shard])
    whole = manifest.Manifest(dataset="pets", classes=["cat", "dog"], source={}, splits={"test": split})
    manifest.write(records, whole)
    index.mkdir()
    np.save(index / "all.tfrecord.npy", framing.scan(io.BytesIO(content), len(content))[0])
    return SimpleNamespace(paths=SimpleNamespace(records=records, index=index))


def test_a_record_is_described_in_lines_or_in_one_json_document(config, capsys):
    show(config, 0, split="test")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "record  0 in all: test, all.tfrecord, record 0"
    assert lines[2] == "label   1: dog"
    assert lines[3] == f"image   png, 4 x 6 x 1 (height x width x channels), {len(DIGIT)} bytes"
    guarded("show", lambda: show(config, 0), as_json=True)
    found = json.loads(capsys.readouterr().out)
    expected = {"shard": "all.tfrecord", "class": "dog", "channels": 1, "filename": None}
    assert expected.items() <= found.items()


@pytest.mark.parametrize(("labels", "shown"), [((0, 1), "0: cat, 1: dog"), ((1,), "1: dog"), ((), "none")])
def test_a_record_with_several_labels_names_all_of_them(config, capsys, labels, shown):
    content = shard_of([(IMAGES[0][0], labels)])
    files.write_bytes(config.paths.records / "all.tfrecord", content)
    data = manifest.load(config.paths.records)
    manifest.write(config.paths.records, data.model_copy(update={"task": "multilabel"}))
    shard = config.paths.records / "all.tfrecord"
    guarded("show", lambda: show_in_file(shard, 0), as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["label"], found["class"]) == (list(labels), [data.classes[label] for label in labels])
    show_in_file(shard, 0)
    assert f"label   {shown}" in capsys.readouterr().out.splitlines()


def test_a_damaged_image_with_an_unknown_label_is_described(config, capsys):
    show(config, 1)
    out = capsys.readouterr().out
    assert "label   7: " in out
    assert "5 x 5 x unknown" in out
    assert "file    \\x1b[2Jbad.jpg" in out


def test_the_encoded_image_is_saved_as_it_is(config, tmp_path, capsys):
    show(config, 0, save=tmp_path / "dog.png")
    assert (tmp_path / "dog.png").read_bytes() == DIGIT


def test_a_file_that_exists_is_not_overwritten(config, tmp_path):
    (tmp_path / "mine.png").write_bytes(b"mine")
    with pytest.raises(ConfigError, match=r"mine\.png"):
        show(config, 0, save=tmp_path / "mine.png")
    assert (tmp_path / "mine.png").read_bytes() == b"mine"


def harm(config, place):
    """Flips a bit of the first record."""
    shard = config.paths.records / "all.tfrecord"
    content = bytearray(shard.read_bytes())
    content[place] ^= 1
    shard.write_bytes(content)


def test_a_damaged_record_is_an_error_after_its_facts(config, capsys):
    harm(config, len(shard_of(IMAGES[:1])) - 1)
    with pytest.raises(DataError, match=r"all\.tfrecord record 0 at byte 0: .* `dvc repro`"):
        show(config, 0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "label   1: dog"
    assert lines[-1] == "damage  the checksum of the record's data does not match"


def test_of_a_record_that_cannot_be_parsed_the_place_is_printed_and_nothing_is_saved(config, tmp_path, capsys):
    harm(config, 12)
    for as_json in (False, True):
        with pytest.raises(SystemExit, match="3"):
            guarded("show", lambda: show(config, 0, save=tmp_path / "dog.png"), as_json=as_json)
        out = capsys.readouterr().out
        if as_json:
            assert json.loads(out)["image_bytes"] is None
        else:
            assert [line.split()[0] for line in out.splitlines()] == ["record", "place", "damage"]
    assert not (tmp_path / "dog.png").exists()


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs `perennial show` in a folder without parameters that has two records in a.tfrecord."""
    (tmp_path / "a.tfrecord").write_bytes(shard_of(IMAGES))
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, ["show", *arguments])


def test_a_record_of_a_file_is_shown_without_parameters_manifest_and_index(command):
    lines = command("0", "--shard", "a.tfrecord").output.splitlines()
    assert lines[0] == "record  a.tfrecord, record 0"
    assert lines[2].startswith("label   1: ")
    assert "dog" not in lines[2]


@pytest.mark.fast_rows("arguments0-ascii", "arguments1-latin-1")
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_a_class_name_is_printed_on_a_terminal_that_cannot_encode_it(config, encoding, arguments):
    folder = config.paths.records
    whole = manifest.load(folder)
    manifest.write(folder, whole.model_copy(update={"classes": ["\u732b", "\u72ac\U0001f415"]}))
    shown = subprocess.run(
        [sys.executable, "-m", "perennial", "show", "0", "--shard", str(folder / "all.tfrecord"), *arguments],
        env=os.environ | {"PYTHONIOENCODING": encoding, "PYTHONPATH": SOURCE},
        capture_output=True,
        check=False,
    )
    assert (shown.returncode, shown.stderr) == (0, b"")
    if arguments:
        assert json.loads(shown.stdout)["class"] == "\u72ac\U0001f415"
    elif encoding == "latin-1":  # with ASCII the library writes UTF-8
        assert b"label   1: \\u72ac\\U0001f415\n" in shown.stdout
