"""Labelled images of traffic join every source: which split they reach, and what stays as it was."""

import csv
import hashlib
import shutil
from dataclasses import dataclass, field

import numpy as np
import pytest
from support import raw
from support.records import data_in, record

from perennial.base import files
from perennial.base.errors import DataError
from perennial.base.project.pins import Exclusions, Reason, SourcePin
from perennial.data.datasets import cifar10
from perennial.data.datasets.readers import labelled
from perennial.data.images.decode import header
from perennial.data.records import columns, manifest
from perennial.data.sources import pin
from perennial.data.tfrecord import example
from perennial.data.validation import integrity
from perennial.stages.convert import convert
from perennial.stages.download import download

SEVERAL = {"dataset.task": "multilabel", "train.stop_metric": "map", "gate.min_accuracy": None}


def digits(load):
    """The real ones, of scikit-learn."""
    return load(**{"dataset.name": "digits"})


def mnist(load):
    config = load(**{"dataset.name": "mnist"})
    raw.write_mnist(config)
    return config


def cifar(load):
    config, random = load(**{"dataset.name": "cifar10"}), np.random.default_rng(0)
    batches = {
        f"cifar-10-batches-bin/{name}.bin": b"".join(
            bytes([number % 10]) + random.bytes(3072) for number in range(20)
        )
        for name in (*cifar10.TRAIN, *cifar10.TEST)
    }
    files.write_bytes(config.paths.raw / "cifar-10-binary.tar.gz", raw.tar(batches, "w:gz"))
    return config


def tfrecords(load, **more):
    config = load(**{"dataset.name": "tfrecord", "dataset.path": "own", **more})
    for number in range(40):
        several = [number % 2, 2] if more else [number % 2]
        shard = config.dataset.path / f"pets_{'test' if number % 4 == 3 else 'train'}.tfrecord"
        shard.parent.mkdir(exist_ok=True)
        with shard.open("ab") as stream:
            stream.write(record(image=[raw.encoded(raw.picture(number))], label=several))
    files.write_bytes(config.dataset.path / "labels.txt", b"0:cat\n1:dog\n2:owl\n")
    return config


def several_labels(load):
    return tfrecords(load, **SEVERAL)


def table(load):
    keys = {"path": "labels.csv", "file": "file", "label": "label"}
    config = load(**{"dataset.name": "image_folder", "dataset.path": "own", "dataset.table": keys})
    rows = "".join(f"{number}.png,{('cat', 'dog')[number % 2]},here\n" for number in range(40))
    files.write_bytes(config.dataset.path / "labels.csv", f"file,label,site\n{rows}".encode())
    for number in range(40):
        files.write_bytes(config.dataset.path / f"{number}.png", raw.encoded(raw.picture(number)))
    return config


SOURCES = {
    digits: ("seven", (8, 8, 1)), mnist: ("seven", (3, 4, 1)), cifar: ("frog", (32, 32, 3)),
    tfrecords: ("dog", None), several_labels: ('["dog", "owl"]', None), table: ("dog", None),
}  # fmt: skip
BUILT_IN = [digits, mnist, cifar]


@dataclass
class Converted:
    """What the records hold."""

    own: dict[str, bytes]  # the shards of a split without labelled images, and what others begin with
    split: dict[str, str] = field(default_factory=dict)  # of each labelled image
    shape: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    label: dict[str, tuple[int, ...]] = field(default_factory=dict)
    digest: dict[str, str] = field(default_factory=dict)  # of the image in the record


def read(config):
    """Convert, check and read the records."""
    if config.dataset.name in {"mnist", "cifar10"}:  # no network
        (config.paths.raw / labelled.TAR).unlink(missing_ok=True)
        if labelled.TABLE.exists():
            pin.collect_labels(config.paths.raw)
    else:
        download(config)
    convert(config)
    folder, found = config.paths.records, Converted({})
    for split, part in manifest.load(folder).splits.items():
        for shard in part.shards:
            for data in data_in(content := (folder / shard.file).read_bytes()):
                fields, encoded = example.parse(data)
                if (name := fields.filename or "").startswith("labels/"):
                    found.split[name], found.shape[name] = split, header(encoded).size
                    found.label[name] = fields.labels
                    found.digest[name] = hashlib.sha256(encoded).hexdigest()
            found.own[split] = found.own.get(split, b"") + content
    assert integrity.check(folder).problems == []
    return found


def add(number, class_, reason="random"):
    """Label the pictures up to a number, some of them transparent or grey, and pin the table."""
    shutil.rmtree(labelled.FOLDER, ignore_errors=True)
    rows = []
    for each in range(number):
        pixels = raw.picture(10_000 + each, side=20)
        content = raw.encoded(pixels if each % 3 else pixels[..., 0], "PNG" if each % 2 else "JPEG")
        rows.append(labelled.Label(sha256=hashlib.sha256(content).hexdigest(), class_=class_, reason=reason))
        files.write_bytes(labelled.IMAGES / f"{rows[-1].sha256}.{'png' if each % 2 else 'jpg'}", content)
    files.write_bytes(labelled.TABLE, labelled.text_of(rows).encode())
    SourcePin(labels_sha256=files.sha256(labelled.TABLE)).write()
    return {f"labels/{each.name}": each for each in labelled.IMAGES.iterdir()}, rows


@pytest.fixture(params=SOURCES, ids=lambda each: each.__name__)
def source(request, load):
    return request.param(load), *SOURCES[request.param]


def test_labelled_images_reach_the_split_of_their_reason_and_the_others_stay_byte_for_byte(source):
    config, name, shape = source
    before = read(config)
    images, rows = add(40, name)
    drawn = {each.sha256 for each in rows if each.measures}
    after = read(config)
    assert after.split.keys() == images.keys()
    assert {name for name, split in after.split.items() if split != "train"} == {
        name for name, file in images.items() if file.stem in drawn
    }
    assert set(after.split.values()) == {"train", "validation", "test"}
    for split, content in before.own.items():
        assert after.own[split].startswith(content)
    if shape:
        assert set(after.shape.values()) == {shape}
    classes = manifest.load(config.paths.records).classes
    expected = sorted(map(classes.index, rows[0].labels))
    assert {*after.label.values()} == {tuple(expected)}
    reasons = [row[-1] for row in columns.read(config.paths.records, "test").rows]
    assert set(reasons) == {"", "random"}
    assert reasons.count("random") == list(after.split.values()).count("test")


@pytest.mark.fast_rows("digits-record", "cifar-file", "tfrecords-record", "several_labels-file", "table-record")
@pytest.mark.parametrize("named", ["file", "record"])
def test_a_forgotten_image_is_left_out_even_if_its_row_is_merged_later(source, named):
    config, name, _ = source
    images, _ = add(12, name, "margin")
    gone = next(iter(images))
    digest = images[gone].stem if named == "file" else read(config).digest[gone]
    reason = Reason(because="asked", who="me", date="2026-01-01")
    Exclusions().with_reason({digest: reason}).write()
    assert read(config).split == dict.fromkeys(images.keys() - {gone}, "train")


@pytest.mark.parametrize("make", BUILT_IN, ids=lambda each: each.__name__)
def test_a_class_that_a_built_in_data_set_does_not_have_is_refused(load, make):
    config = make(load)
    add(3, "gnu")
    with pytest.raises(DataError, match=r"labels/labels.csv: 'gnu' is none of the 10 classes of \w+; correct"):
        read(config)


def test_several_labels_are_refused_where_an_image_has_one(load):
    config = digits(load)
    add(3, '["one", "two"]')
    with pytest.raises(DataError, match="holds several labels, but an image has one; correct its rows"):
        read(config)


def test_a_file_that_is_no_image_is_refused_by_its_name(load):
    config = digits(load)
    add(3, "one")
    digest = hashlib.sha256(b"no image").hexdigest()
    files.write_bytes(labelled.IMAGES / f"{digest}.png", b"no image")
    with labelled.TABLE.open("a") as stream:
        csv.writer(stream).writerow((digest, "one", "margin"))
    SourcePin(labels_sha256=files.sha256(labelled.TABLE)).write()
    with pytest.raises(DataError, match=f"labels/{digest}.png: not a JPEG"):
        read(config)
