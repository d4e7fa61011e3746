"""Conversion: what becomes of the raw files, and what is kept when it fails."""

import os
import random
import resource
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from support.raw import TEST_FROM, encoded
from support.records import data_in

from perennial.base import documents, files
from perennial.base.choices import SPLITS
from perennial.base.errors import DataError
from perennial.data.datasets import DATASETS
from perennial.data.images import decode
from perennial.data.records import manifest
from perennial.data.tfrecord import example
from perennial.data.validation import integrity
from perennial.stages import convert as stage
from perennial.stages.convert import convert
from perennial.stages.download import download

SOURCE = Path(files.__file__).parents[2]
KILLED_IN_THE_MIDDLE = """
import resource, signal
from pathlib import Path
from perennial.base import config
from perennial.stages import convert
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))  # larger than a raw file, smaller than a shard
convert.convert(config.load(Path("params.yaml")))
"""
LAST_PIXEL = -21  # before the checksums and the final chunk of a PNG file


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def images(folder, split):
    """The number that fills each image of a split, and its label, in record order."""
    shards = manifest.load(folder).splits[split].shards
    parsed = [example.parse(data) for shard in shards for data in data_in((folder / shard.file).read_bytes())]
    return [(encoded[LAST_PIXEL], fields.label) for fields, encoded in parsed]


@pytest.fixture
def converted(small):
    convert(small)
    return small.paths.records


def test_a_folder_holds_shards_labels_and_manifest(converted):
    shards = [f"mnist_{split}_00000-of-00001.tfrecord" for split in ("test", "train", "validation")]
    assert sorted(content(converted)) == [".perennial", "labels.txt", "manifest.json", *shards, "rejected.json"]
    assert integrity.check(converted).problems == []


def test_the_manifest_counts_the_examples_and_names_classes_and_raw_files(small, converted):
    described = manifest.load(converted)
    assert {split: (part.examples, part.per_class) for split, part in described.splits.items()} == {
        "train": (30, [3] * 10), "validation": (10, [1] * 10), "test": (20, [2] * 10)
    }  # fmt: skip
    assert described.source == {file.name: files.sha256(file) for file in small.paths.raw.iterdir()}
    assert (converted / "labels.txt").read_text().splitlines()[::9] == ["0:zero", "9:nine"]
    assert documents.read_json(converted / "rejected.json") == {"examples": 60, "rejected": []}


def test_every_example_is_in_one_split_in_the_order_of_its_source(converted):
    train, validation, test = (images(converted, split) for split in SPLITS)
    assert test == [(number, number % 10) for number in range(TEST_FROM, TEST_FROM + 20)]
    assert sorted(train + validation) == [(number, number % 10) for number in range(40)]
    assert train == sorted(train)
    assert validation == sorted(validation)
    assert Counter(label for _, label in validation) == dict.fromkeys(range(10), 1)


def test_another_seed_holds_others_out(load, small, converted):
    before = images(converted, "validation")
    convert(load(**{"dataset.seed": 1}))
    assert images(converted, "validation") != before


@pytest.mark.parametrize(
    ("shards", "sizes"),
    [
        (3, {"train": [10, 10, 10], "validation": [3, 3, 4], "test": [6, 7, 7]}),
        ("auto", {"train": [30], "validation": [10], "test": [20]}),
        (7, None),
    ],
)
def test_the_examples_are_the_same_in_any_number_of_shards(load, small, converted, shards, sizes):
    before = {split: images(converted, split) for split in SPLITS}
    convert(load(**{"dataset.shards": shards}))
    splits = manifest.load(converted).splits
    found = {split: [shard.examples for shard in part.shards] for split, part in splits.items()}
    assert sizes is None or found == sizes
    names = [shard.file for shard in splits["train"].shards]
    assert names == [f"mnist_train_{n:05}-of-{len(names):05}.tfrecord" for n in range(len(names))]
    assert {split: images(converted, split) for split in SPLITS} == before
    assert integrity.check(converted).problems == []


def test_a_full_disk_in_the_middle_leaves_the_old_records_and_nothing_else(small, converted):
    before, (soft, hard) = content(converted), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))  # larger than a raw file, smaller than a shard
    try:
        with pytest.raises(OSError, match="tfrecord"):
            convert(small)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert content(converted) == before
    assert len(list(converted.parent.iterdir())) == 2  # with the raw files
    convert(small)
    assert content(converted) == before


def test_a_killed_conversion_leaves_the_old_records_and_the_next_one_gives_the_same(small, converted):
    before, environment = content(converted), {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", KILLED_IN_THE_MIDDLE], env=environment, check=False)
    assert done.returncode == -signal.SIGXFSZ
    assert content(converted) == before
    convert(small)
    assert content(converted) == before
    assert len(list(converted.parent.iterdir())) == 2


def test_the_raw_files_are_not_touched_and_nothing_unpacked_is_left(small):
    before = content(small.paths.raw)
    convert(small)
    assert content(small.paths.raw) == before
    assert list(small.paths.work.rglob("*")) == []


@pytest.fixture
def large_pictures(pictures):
    """36 noisy pictures, enough bytes for several processes and several parts of a shard."""
    random_pixels = np.random.default_rng(0)
    for file in pictures.dataset.path.rglob("*.png"):
        file.write_bytes(encoded(random_pixels.integers(0, 256, (560, 560, 3), np.uint8)))
    download(pictures)
    assert sum(file.stat().st_size for file in pictures.paths.raw.iterdir()) > stage.SMALL_BYTES
    return pictures


def test_any_number_of_processes_gives_the_same_bytes(load, large_pictures):
    found = []
    for processes in (1, 2, 3):
        config = load(**{"compute.processes": processes, "dataset.shards": 3})
        convert(config)
        found.append(files.digests(config.paths.records))
    assert found == found[:1] * 3


def test_the_order_in_which_a_folder_is_listed_does_not_matter(pictures, monkeypatch):
    download(pictures)
    convert(pictures)
    before, listing, shuffle = files.digests(pictures.paths.records), Path.iterdir, random.Random(0).shuffle

    def shuffled(path):
        found = list(listing(path))
        shuffle(found)
        return iter(found)

    monkeypatch.setattr(Path, "iterdir", shuffled)
    download(pictures)
    convert(pictures)
    assert files.digests(pictures.paths.records) == before


@pytest.fixture
def spoilt(pictures):
    """Parameters with a folder of 36 pictures of which three are none."""
    own = pictures.dataset.path
    (own / "cat" / "00.png").write_bytes(b"no picture")
    (own / "dog" / "01.jpeg").write_bytes((own / "dog" / "01.jpeg").read_bytes()[:200])
    (own / "owl" / "02.png").write_bytes(b"")
    download(pictures)
    return pictures


@pytest.fixture
def skipping(load, spoilt):
    """The same, with the files that are no pictures skipped; converted."""
    config = load(**{"dataset.on_bad_image": "skip"})
    convert(config)
    return config


BAD = ["cat/00.png", "dog/01.jpeg", "owl/02.png"]


def test_files_that_are_no_images_are_refused_by_name_and_nothing_is_written(spoilt):
    with pytest.raises(DataError) as refused:
        convert(spoilt)
    assert [name for name in BAD if name in str(refused.value)] == BAD
    assert "3 of 36 files" in str(refused.value)
    assert not spoilt.paths.records.exists()


def test_every_file_is_an_example_or_listed_as_rejected_with_its_reason(skipping):
    records = skipping.paths.records
    listed = documents.read_json(records / "rejected.json")
    assert listed["examples"] == 33
    assert [each["file"] for each in listed["rejected"]] == BAD
    reasons = [each["reason"] for each in listed["rejected"]]
    assert reasons[0].startswith("not a JPEG, HEIC, PNG")
    assert reasons[2] == "it is empty"
    per_class = [part.per_class for part in manifest.load(records).splits.values()]
    assert np.sum(per_class, axis=0).tolist() == [11, 11, 11]
    assert integrity.check(records).problems == []


@pytest.mark.parametrize(
    ("spoilt", "what"),
    [("dog", "skip leaves no image of dog in train"), (".", "skip leaves none of [0-9]+ images in train")],
)
def test_where_no_image_of_a_class_is_left_nothing_is_written(load, pictures, spoilt, what):
    for file in (pictures.dataset.path / spoilt).rglob("*.*"):
        file.write_bytes(b"no picture")
    download(pictures)
    with pytest.raises(DataError, match=what) as refused:
        convert(load(**{"dataset.on_bad_image": "skip"}))
    assert "dog/00.png: not a JPEG, HEIC, PNG" in str(refused.value)
    assert not pictures.paths.records.exists()


@pytest.fixture
def drawings(pictures):
    """Parameters with a folder of black images, with a circle in their alpha channels."""
    for file in pictures.dataset.path.rglob("*.*"):
        file.unlink()
    for label, name in enumerate(("cat", "dog", "owl")):
        for number in range(12):
            image = PIL.Image.new("RGBA", (32, 32))
            image.paste((0, 0, 0, 255), (number, 8 * label, 8 + number, 12 + 8 * label))
            image.save(pictures.dataset.path / name / f"{number:02}.png")
    download(pictures)
    return pictures


def brightness(records):
    shards = [records / shard.file for part in manifest.load(records).splits.values() for shard in part.shards]
    encoded = [example.parse(data)[1] for file in shards for data in data_in(file.read_bytes())]
    return [int(decode.array(decode.decoded(each)).max()) for each in encoded]


def test_pictures_that_are_lost_with_their_alpha_channel_are_counted(drawings, caplog):
    convert(drawings)
    assert "36 images are of one colour in the records: their picture is in the alpha channel" in caplog.text
    assert set(brightness(drawings.paths.records)) == {0}


def test_transparent_pixels_become_white_where_that_is_chosen(load, drawings, caplog):
    convert(load(**{"dataset.transparency": "white"}))
    assert "alpha channel" not in caplog.text
    assert set(brightness(drawings.paths.records)) == {255}
    assert integrity.check(drawings.paths.records).problems == []


def test_larger_images_are_reduced_where_that_is_chosen(load, pictures):
    noise = np.random.default_rng(0).integers(0, 255, (100, 200, 3), np.uint8)
    PIL.Image.fromarray(noise).save(pictures.dataset.path / "cat" / "00.png")
    download(pictures)
    convert(load(**{"dataset.max_side": 64}))
    sizes = [
        decode.header(image).size
        for shard in pictures.paths.records.glob("*.tfrecord")
        for _, image in map(example.parse, data_in(shard.read_bytes()))
    ]
    assert max(sizes, key=max) == (32, 64, 3)
    assert integrity.check(pictures.paths.records).problems == []


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_a_missing_raw_folder_is_reported_with_what_fetches_it(load, name):
    with pytest.raises(DataError, match=r"`dvc repro download` fetches (it|them)"):
        convert(load(**{"dataset.name": name}))


def test_a_raw_file_whose_name_is_not_utf8_is_refused(small):
    (small.paths.raw / os.fsdecode(b"\xff.gz")).write_bytes(b"x")
    with pytest.raises(DataError, match="UTF-8"):
        convert(small)
