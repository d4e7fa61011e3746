"""Conversion: what becomes of the raw files, and what is kept when it fails."""

import gzip
import io
import os
import random
import resource
import signal
import subprocess
import sys
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.raw import TEST_FROM, encoded, picture, write_idx
from support.records import data_in, datum

from perennial import files
from perennial.config.choices import SPLITS
from perennial.datasets import DATASETS
from perennial.errors import ConfigError, DataError, PerennialError
from perennial.images import png
from perennial.records import manifest, write
from perennial.stages.convert import convert
from perennial.stages.download import download
from perennial.tfrecord import example, framing
from perennial.validation import integrity

LAST_PIXEL = -21  # before the checksums and the final chunk of a PNG file
SOURCE = Path(files.__file__).parents[1]
KILLED_IN_THE_MIDDLE = """
import os, signal
from pathlib import Path
from perennial import config
from perennial.records import write
from perennial.stages import convert
records, left = write.bulk.frame_images, iter(range(2))
def records_of_some(images, labels):
    if next(left, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
    return records(images, labels)
write.bulk.frame_images = records_of_some
convert.convert(config.load(Path("params.yaml")))
"""


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


def test_the_records_are_sound(converted):
    assert integrity.check(converted).problems == []


def test_a_folder_holds_shards_labels_and_manifest(converted):
    assert sorted(content(converted)) == [
        ".perennial",
        "labels.txt",
        "manifest.json",
        "mnist_test_00000-of-00001.tfrecord",
        "mnist_train_00000-of-00001.tfrecord",
        "mnist_validation_00000-of-00001.tfrecord",
        "rejected.json",
    ]


def test_the_manifest_counts_the_examples_of_each_class(converted):
    splits = manifest.load(converted).splits
    assert {split: (part.examples, part.per_class) for split, part in splits.items()} == {
        "train": (30, [3] * 10),
        "validation": (10, [1] * 10),
        "test": (20, [2] * 10),
    }


def test_the_manifest_names_the_raw_files_with_their_digests(small, converted):
    raw = {file.name: files.sha256(file) for file in small.paths.raw.iterdir()}
    assert manifest.load(converted).source == raw


def test_labels_are_those_of_the_data_set(converted):
    assert (converted / "labels.txt").read_text().splitlines()[::9] == ["0:zero", "9:nine"]


def test_the_test_split_is_the_original_one_in_its_order(converted):
    assert images(converted, "test") == [(number, number % 10) for number in range(TEST_FROM, TEST_FROM + 20)]


def test_train_and_validation_share_the_training_examples_without_overlap(converted):
    together = images(converted, "train") + images(converted, "validation")
    assert sorted(together) == [(number, number % 10) for number in range(40)]


@pytest.mark.parametrize("split", ["train", "validation"])
def test_examples_stay_in_the_order_of_their_source(converted, split):
    assert images(converted, split) == sorted(images(converted, split))


def test_the_validation_split_has_its_share_of_every_class(converted):
    assert Counter(label for _, label in images(converted, "validation")) == dict.fromkeys(range(10), 1)


def test_another_seed_holds_others_out(load, small, converted):
    before = images(converted, "validation")
    convert(load(**{"dataset.seed": 1}))
    assert images(converted, "validation") != before


def test_the_same_files_give_the_same_bytes(small, converted):
    before = content(converted)
    convert(small)
    assert content(converted) == before


def test_each_split_has_as_many_shards_as_asked_for(load, small):
    config = load(**{"dataset.shards": 3})
    convert(config)
    splits = manifest.load(config.paths.records).splits
    assert {split: [shard.examples for shard in part.shards] for split, part in splits.items()} == {
        "train": [10, 10, 10],
        "validation": [3, 3, 4],
        "test": [6, 7, 7],
    }


def test_shard_names_say_which_of_how_many(load, small):
    config = load(**{"dataset.shards": 2})
    convert(config)
    assert [shard.file for shard in manifest.load(config.paths.records).splits["train"].shards] == [
        "mnist_train_00000-of-00002.tfrecord",
        "mnist_train_00001-of-00002.tfrecord",
    ]


@pytest.mark.parametrize("split", SPLITS)
def test_the_number_of_shards_does_not_change_the_examples(load, small, converted, split):
    before = images(converted, split)
    convert(load(**{"dataset.shards": 4}))
    assert images(converted, split) == before


def test_records_of_another_number_of_shards_are_sound(load, small):
    config = load(**{"dataset.shards": 7})
    convert(config)
    assert integrity.check(config.paths.records).problems == []


def test_a_missing_raw_file_is_told_with_what_fetches_it(small):
    (small.paths.raw / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte.*`dvc repro download`"):
        convert(small)


def test_a_damaged_raw_file_leaves_the_old_records(small, converted):
    before = content(converted)
    (small.paths.raw / "t10k-labels-idx1-ubyte.gz").write_bytes(b"damaged")
    with pytest.raises(DataError):
        convert(small)
    assert content(converted) == before


def test_a_class_of_one_example_is_a_data_error(small):
    numbers = np.arange(11, dtype=np.uint8)  # class 0 comes twice, every other once
    write_idx(small.paths.raw / "train-images-idx3-ubyte.gz", numbers[:, None, None])
    write_idx(small.paths.raw / "train-labels-idx1-ubyte.gz", numbers % 10)
    with pytest.raises(DataError, match="class 1 has 1 example, too few to hold one out"):
        convert(small)


def test_an_error_in_the_middle_leaves_the_old_records(small, converted, monkeypatch):
    before, left = content(converted), iter(range(2))

    def some(images, labels):
        next(left)
        return b""

    monkeypatch.setattr(write.bulk, "frame_images", some)
    with pytest.raises((StopIteration, RuntimeError)):
        convert(small)
    assert content(converted) == before


@pytest.fixture
def killed(small):
    """What a process that is killed in the middle of a conversion leaves of the old records."""
    convert(small)
    before = content(small.paths.records)
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", KILLED_IN_THE_MIDDLE], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    return before


def test_a_kill_in_the_middle_leaves_the_old_records(small, killed):
    assert content(small.paths.records) == killed


def test_a_conversion_after_a_kill_gives_the_same_bytes(small, killed):
    convert(small)
    assert (content(small.paths.records), len(list(small.paths.records.parent.iterdir()))) == (killed, 2)


def test_nothing_that_was_unpacked_is_left(small, converted):
    assert list(small.paths.work.rglob("*")) == []


def test_nothing_that_was_unpacked_is_left_after_an_error(small):
    (small.paths.raw / "t10k-labels-idx1-ubyte.gz").write_bytes(b"damaged")
    with pytest.raises(DataError):
        convert(small)
    assert list(small.paths.work.rglob("*")) == []


def test_the_raw_files_are_not_touched(small):
    before = content(small.paths.raw)
    convert(small)
    assert content(small.paths.raw) == before


def test_shards_are_left_to_the_size_of_the_data(load, small):
    config = load(**{"dataset.shards": "auto"})
    convert(config)
    assert len(list(config.paths.records.glob("*.tfrecord"))) == 3


def digests(folder):
    """The SHA-256 of every file."""
    return {path.name: files.sha256(path) for path in folder.iterdir()}


@pytest.fixture
def in_parts(monkeypatch):
    """Little is enough for other processes, which get a few examples at a time."""
    monkeypatch.setitem(DATASETS, "mnist", replace(DATASETS["mnist"], decoded=True))
    monkeypatch.setattr("perennial.stages.convert.SMALL_BYTES", 0)
    monkeypatch.setattr("perennial.stages.convert.CHUNK_BYTES", 1000)


@pytest.mark.parametrize("processes", [2, 4, "auto"])
def test_any_number_of_processes_gives_the_same_bytes(load, small, converted, in_parts, processes):
    before = digests(converted)
    convert(load(**{"compute.processes": processes}))
    assert digests(converted) == before


@pytest.mark.parametrize("processes", [2, 4])
def test_any_number_of_processes_gives_the_same_bytes_of_pictures(load, pictures, in_parts, processes):
    download(pictures)
    found = []
    for number in (1, processes):
        config = load(**{"compute.processes": number, "dataset.shards": 3})
        convert(config)
        found.append(digests(config.paths.records))
    assert found[0] == found[1]


def test_the_order_in_which_a_folder_is_listed_does_not_matter(pictures, monkeypatch):
    download(pictures)
    convert(pictures)
    before, listing, shuffle = digests(pictures.paths.records), Path.iterdir, random.Random(0).shuffle

    def shuffled(path):
        found = list(listing(path))
        shuffle(found)
        return iter(found)

    monkeypatch.setattr(Path, "iterdir", shuffled)
    download(pictures)
    convert(pictures)
    assert digests(pictures.paths.records) == before


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


def test_files_that_are_no_images_are_refused_by_name(spoilt):
    with pytest.raises(DataError) as refused:
        convert(spoilt)
    named = [name for name in ("cat/00.png", "dog/01.jpeg", "owl/02.png") if name in str(refused.value)]
    assert (named, "3 of 36 files" in str(refused.value)) == (["cat/00.png", "dog/01.jpeg", "owl/02.png"], True)


def test_nothing_is_written_where_a_file_is_no_image(spoilt):
    with pytest.raises(DataError):
        convert(spoilt)
    assert not spoilt.paths.records.exists()


def test_every_file_is_an_example_or_listed_as_rejected(skipping):
    told = files.read_json(skipping.paths.records / "rejected.json")
    assert (told["examples"], [each["file"] for each in told["rejected"]]) == (
        33,
        sorted(
            ["cat/00.png", "dog/01.jpeg", "owl/02.png"], key=[each["file"] for each in told["rejected"]].index
        ),
    )


def test_the_manifest_counts_what_was_written_and_not_what_was_rejected(skipping):
    splits = manifest.load(skipping.paths.records).splits
    assert np.sum([part.per_class for part in splits.values()], axis=0).tolist() == [11, 11, 11]


def test_records_without_the_rejected_files_are_sound(skipping):
    assert integrity.check(skipping.paths.records).problems == []


def test_a_rejected_file_is_told_with_the_reason(skipping):
    told = {
        each["file"]: each["reason"]
        for each in files.read_json(skipping.paths.records / "rejected.json")["rejected"]
    }
    assert (told["owl/02.png"], told["cat/00.png"].startswith("no JPEG, PNG")) == ("it is empty", True)


def test_where_no_file_is_rejected_the_list_is_empty(converted):
    assert files.read_json(converted / "rejected.json") == {"examples": 60, "rejected": []}


@pytest.mark.parametrize("processes", [1, 2])
def test_a_class_of_which_no_file_is_an_image_has_no_examples(load, pictures, in_parts, processes):
    for file in (pictures.dataset.path / "dog").iterdir():
        file.write_bytes(b"no picture")
    download(pictures)
    config = load(**{"dataset.on_bad_image": "skip", "compute.processes": processes})
    convert(config)
    splits = manifest.load(config.paths.records).splits
    assert [sum(part.per_class[1] for part in splits.values())] == [0]


def test_where_no_file_is_an_image_the_records_are_empty(load, pictures):
    for file in pictures.dataset.path.rglob("*.*"):
        file.write_bytes(b"no picture")
    download(pictures)
    convert(load(**{"dataset.on_bad_image": "skip"}))
    assert files.read_json(pictures.paths.records / "rejected.json")["examples"] == 0


def test_a_picture_is_kept_byte_for_byte(pictures):
    download(pictures)
    convert(pictures)
    kept = {
        fields.filename: image
        for shard in pictures.paths.records.glob("*.tfrecord")
        for fields, image in map(example.parse, data_in(shard.read_bytes()))
    }
    own = pictures.dataset.path
    assert kept == {str(path.relative_to(own)): path.read_bytes() for path in own.rglob("*.*")}


def test_the_test_split_stays_the_same_whatever_seed_cuts_validation(load, pictures):
    download(pictures)
    found = set()
    for seed in range(3):
        config = load(**{"dataset.seed": seed})
        convert(config)
        found.add(files.sha256(config.paths.records / "image_folder_test_00000-of-00001.tfrecord"))
    assert len(found) == 1


def test_slims_layout_has_slims_names_and_splits(load, small):
    config = load(**{"dataset.layout": "slim"})
    convert(config)
    assert sorted(path.name for path in config.paths.records.glob("*.tfrecord")) == [
        "mnist_test.tfrecord",
        "mnist_train.tfrecord",
    ]


def test_slims_layout_holds_nothing_out(load, small):
    config = load(**{"dataset.layout": "slim"})
    convert(config)
    assert [number for number, _ in images(config.paths.records, "train")] == list(range(40))


def test_a_data_set_that_slim_has_not_is_refused_before_anything_is_written(load, pictures):
    download(pictures)
    with pytest.raises(ConfigError, match=r"dataset\.layout: slim has no image_folder"):
        convert(load(**{"dataset.layout": "slim"}))


def refusal_or_none(config):
    """What escapes from the stage besides the errors that a person is told."""
    try:
        convert(config)
    except PerennialError:
        return None
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return error
    return None


def tar(**members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, body in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return stream.getvalue()


def record(**features):
    """A framed record of these features, each a list of bytes or of numbers."""
    message = example._Example()
    for key, values in features.items():
        feature = message.features.feature[key]
        kind = feature.bytes_list if isinstance(values[0], bytes) else feature.int64_list
        kind.value.extend(values)
    return framing.frame(message.SerializeToString())


def labelled(label, image=png.encode(np.zeros((2, 2), np.uint8))):  # noqa: B008
    return record(image=[image], label=[label])


SOUND = framing.frame(datum(np.zeros((2, 2), np.uint8), 0))
PNG = encoded(picture(0))
TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
HOSTILE = {
    "mnist, nothing": ("mnist", {}),
    "mnist, empty files": ("mnist", {TRAIN_IMAGES: b"", TRAIN_LABELS: b""}),
    "mnist, another file besides": ("mnist", {"notes.txt": b"hello"}),
    "digits, nothing in it": ("digits", {"digits.csv.gz": gzip.compress(b"")}),
    "digits, binary": ("digits", {"digits.csv.gz": gzip.compress(bytes(range(256)))}),
    "cifar10, no archive": ("cifar10", {"a": b"a"}),
    "cifar10, an archive of something else": ("cifar10", {"cifar-10-binary.tar": tar(a=b"a")}),
    "cifar10, empty batches": (
        "cifar10",
        {"cifar-10-binary.tar": tar(**{f"cifar-10-batches-bin/data_batch_{n}.bin": b"" for n in range(1, 6)})},
    ),
    "flowers, one photograph": ("flowers", {"flower_photos.tar": tar(**{"flower_photos/roses/a.jpg": PNG})}),
    "pictures, two archives": ("image_folder", {"images.tar": tar(a=b"a"), "more.tar": tar(b=b"b")}),
    "pictures, one a class": ("image_folder", {"images.tar": tar(**{"cat/a.png": PNG, "dog/b.png": PNG})}),
    "records, none": ("tfrecord", {"a.txt": b"a"}),
    "records, empty": ("tfrecord", {"train.tfrecord": b"", "test.tfrecord": b""}),
    "records, no test": ("tfrecord", {"train.tfrecord": SOUND * 4}),
    "records, cut": ("tfrecord", {"train.tfrecord": SOUND[:-1]}),
    "records, no example": ("tfrecord", {"train.tfrecord": framing.frame(b"\xff" * 9)}),
    "records, no image": ("tfrecord", {"train.tfrecord": record(label=[1])}),
    "records, a label below zero": ("tfrecord", {"train.tfrecord": labelled(-1) * 9 + labelled(0) * 9}),
    "records, a label below zero in test": (
        "tfrecord",
        {"train.tfrecord": SOUND * 9, "test.tfrecord": labelled(-5)},
    ),
    "records, a huge label": ("tfrecord", {"train.tfrecord": labelled(2**62) * 9}),
    "records, more labels than classes": (
        "tfrecord",
        {"train.tfrecord": labelled(3) * 9, "labels.txt": b"0:cat\n1:dog\n"},
    ),
    "records, labels in another encoding": (
        "tfrecord",
        {"train.tfrecord": SOUND * 9, "labels.txt": b"0:\xff\n"},
    ),
    "records, labels of two lines that are one": (
        "tfrecord",
        {"train.tfrecord": SOUND * 9, "labels.txt": "0:a\u2028b\n".encode()},
    ),
    "records, no image that is one": ("tfrecord", {"train.tfrecord": labelled(0, b"no image") * 9}),
    "records, two labels": ("tfrecord", {"train.tfrecord": record(image=[PNG], label=[0, 1])}),
}


@pytest.fixture
def little_memory():
    """Room for another GB, so that what asks for all there is harms nobody."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("on_bad_image", ["fail", "skip"])
@pytest.mark.usefixtures("little_memory")
def test_hostile_raw_files_are_converted_or_refused_with_a_message(load, name, on_bad_image):
    dataset, raw = HOSTILE[name]
    config = load(**{"dataset.name": dataset, "dataset.on_bad_image": on_bad_image})
    for file, body in raw.items():
        files.write_bytes(config.paths.raw / file, body)
    escaped = refusal_or_none(config)
    assert escaped is None


def test_a_folder_in_place_of_a_raw_file_is_refused_with_a_message(small):
    (small.paths.raw / TRAIN_IMAGES).unlink()
    (small.paths.raw / TRAIN_IMAGES).mkdir()
    with pytest.raises(DataError):
        convert(small)


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_a_missing_raw_folder_is_told_with_what_fetches_it(load, name):
    with pytest.raises(DataError, match=r"`dvc repro download` fetches (it|them)"):
        convert(load(**{"dataset.name": name}))
