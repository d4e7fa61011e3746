"""Excluded images: what is converted and trained is what a source without them gives."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from support import raw
from support.git import git
from support.records import datum
from typer.testing import CliRunner

from perennial.base import files
from perennial.base.errors import DataError
from perennial.base.project.pins import Exclusions, Reason
from perennial.cli import app
from perennial.data.images import png
from perennial.data.images.accept import accepted
from perennial.data.records import manifest
from perennial.data.tfrecord import example, framing
from perennial.stages.convert import convert
from perennial.stages.download import download


def digest(content):
    return hashlib.sha256(content).hexdigest()


def exclude(*digests):
    files.write_json(Exclusions.FILE, {"digests": sorted(digests), "reasons": {}})


def converted(config):
    """The files of a record folder, and the manifest without the digests of the raw files."""
    convert(config)
    found = {file.name: file.read_bytes() for file in config.paths.records.iterdir()}
    described = json.loads(found.pop(manifest.FILE))
    del described["source"]
    return found, described


def examples(config):
    convert(config)
    return sum(part.examples for part in manifest.load(config.paths.records).splits.values())


@pytest.fixture
def pictures(load):
    """Parameters with pictures of one's own; one is encoded again, and so is a rotated photograph."""
    raw.write_pictures(Path("own"))
    files.write_bytes(Path("own/cat/web.webp"), raw.encoded(raw.picture(77), "WEBP", lossless=True))
    exif = raw.PIL.Image.Exif()
    exif[0x0112] = 6
    files.write_bytes(Path("own/owl/turned.jpg"), raw.encoded(raw.picture(78), "JPEG", exif=exif))
    return load(**{"dataset.name": "image_folder", "dataset.path": "own"})


OUT = ["cat/03.jpeg", "cat/04.png", "cat/web.webp", "dog/00.png", "owl/turned.jpg"]


@pytest.mark.parametrize("shards", ["auto", 3])
def test_records_are_those_of_a_folder_without_the_files(pictures, load, shards):
    config = load(**{"dataset.shards": shards})
    exclude(*(digest(Path("own", name).read_bytes()) for name in OUT), "0" * 64)
    download(config)
    found = converted(config)
    exclude()
    for name in OUT:
        Path("own", name).unlink()
    download(config)
    assert found == converted(config)


def test_an_image_is_left_out_by_the_digest_of_what_the_records_hold_of_it(pictures, caplog):
    download(pictures)
    before = examples(pictures)
    held = [
        accepted(Path("own", name).read_bytes(), name).encoded for name in ("cat/web.webp", "owl/turned.jpg")
    ]
    exclude(*map(digest, held))
    caplog.set_level("INFO", "perennial")
    assert examples(pictures) == before - 2
    assert "left out 2 examples that pins/exclusions.json lists" in caplog.text


def test_records_of_ones_own_are_converted_as_if_they_were_cut_out(load, tmp_path):
    config = load(**{"dataset.name": "tfrecord", "dataset.path": "own", "dataset.shards": 3})
    data = [datum(raw.picture(number, 8), number % 2) for number in range(40)]

    def write(numbers):
        files.write_bytes(Path("own/pets_train.tfrecord"), b"".join(framing.frame(data[n]) for n in numbers))
        download(config)
        return converted(config)

    exclude(*(digest(example.parse(data[number])[1]) for number in (0, 13, 39)))
    found = write(range(40))
    exclude()
    assert found == write([number for number in range(40) if number not in {0, 13, 39}])


def test_arrays_are_converted_as_if_their_rows_were_cut_out(load):
    config = load(**{"dataset.name": "mnist", "dataset.validation_fraction": 0.25})
    raw.write_mnist(config)
    gone = [3, 17, 33]
    exclude(*(digest(png.encode(np.full((3, 4), number, np.uint8))) for number in [*gone, raw.TEST_FROM]))
    found = converted(config)
    exclude()
    for prefix, first, examples, out in (("train", 0, 40, gone), ("t10k", raw.TEST_FROM, 20, [raw.TEST_FROM])):
        numbers = np.array([n for n in range(first, first + examples) if n not in out], np.uint8)
        images = np.broadcast_to(numbers[:, None, None], (len(numbers), 3, 4))
        raw.write_idx(config.paths.raw / f"{prefix}-images-idx3-ubyte.gz", images)
        raw.write_idx(config.paths.raw / f"{prefix}-labels-idx1-ubyte.gz", numbers % 10)
    assert found == converted(config)


def test_an_emptied_class_is_an_error_and_nothing_is_written(pictures):
    download(pictures)
    convert(pictures)
    before = files.digests(pictures.paths.records)
    exclude(*(digest(file.read_bytes()) for file in Path("own/dog").iterdir()))
    with pytest.raises(DataError, match="leaves out all 12 images of class dog in train; nothing was written"):
        convert(pictures)
    assert files.digests(pictures.paths.records) == before


def test_a_damaged_file_is_an_error_that_names_it(workspace):
    unsorted = json.dumps({"digests": ["b" * 64, "a" * 64]})
    Exclusions.FILE.parent.mkdir()
    for text in ('{"digests": ["12"]}', unsorted, '{"digests": {}}', "[]", "{"):
        Exclusions.FILE.write_text(text)
        with pytest.raises(DataError, match=r"exclusions\.json .*restores it"):
            Exclusions.read()


def test_a_reason_stays_the_first(workspace):
    one, other = (Reason(because=text, who="t", date="2026-11-23") for text in ("asked", "again"))
    found = Exclusions().with_reason({"b" * 64: one}).with_reason({"b" * 64: other, "a" * 64: other})
    assert (found.digests, found.reasons["b" * 64].because) == (["a" * 64, "b" * 64], "asked")


def test_forget_records_who_and_why_and_seen_says_so(workspace, monkeypatch):
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "Start")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Ann")
    raw.write_pictures(Path("own"))
    file, other = Path("own/cat/00.png"), "b" * 64
    run = CliRunner().invoke
    done = run(app, ["forget", str(file), f"sha256:{other}", "--because", " asked ", "--json"])
    assert {digest(file.read_bytes()), other} <= set(json.loads(done.stdout)["added"])
    reason = Exclusions.read().reasons[other]
    assert (reason.because, reason.who.split()[0]) == ("asked", "Ann")
    before = Exclusions.FILE.read_bytes()
    assert "0 digests are new" in run(app, ["forget", other, "--because", "again"]).stdout
    assert json.loads(run(app, ["seen", other, "--json"]).stdout)["excluded"]
    for wrong in ([other], [other, "--because", " "], ["c" * 63, "--because", "x"]):
        assert run(app, ["forget", *wrong]).exit_code == 2
    assert Exclusions.FILE.read_bytes() == before
