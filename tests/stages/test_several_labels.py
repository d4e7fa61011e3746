"""Several labels an image, from tables and TFRecords to checked records: what is read, said and refused."""

import csv
import hashlib
import json
import logging
from dataclasses import replace

import numpy as np
import pytest
from support import raw
from support.records import record

from perennial.base import documents, files
from perennial.base.errors import DataError
from perennial.data.datasets.readers import labelled
from perennial.data.preprocessing import ImageSpec
from perennial.data.records import columns, manifest, pipeline
from perennial.data.validation import drift
from perennial.stages.convert import convert
from perennial.stages.download import download
from perennial.stages.validate import validate

NAMES = ("cat", "dog", "grass", "sky")
SEVERAL = {"dataset.task": "multilabel", "train.stop_metric": "map", "gate.min_accuracy": None}
OWN = {"dataset.name": "image_folder", "dataset.path": "own", **SEVERAL}


def tags(number):
    """The labels of an image: `sky` on each sixth, `cat` and `dog` on halves and thirds, some have none."""
    found = (number % 2 == 0, number % 3 == 0, number % 4 == 1, number % 6 == 5)
    return [name for name, chosen in zip(NAMES, found, strict=True) if chosen]


def write_images(folder, count):
    for number in range(count):
        files.write_bytes(folder / "images" / f"{number:03}.png", raw.encoded(raw.picture(number)))


def rows(count, of=tags, join="|".join):
    return "".join(f"{number:03}.png,{join(of(number))}\n" for number in range(count))


@pytest.fixture
def own(load):
    """Parameters for 60 images and a table of labels, whose content and keys are given."""

    def of(name, content, count=60, **keys):
        table = {"path": name, "file": "file", "label": "labels", "separator": None} | keys
        config = load(**OWN, **{"dataset.table": table, "validate.near_duplicate_bits": None})
        write_images(config.dataset.path, count)
        files.write_bytes(config.dataset.path / name, content.encode())
        return config

    return of


def converted(config):
    download(config)
    convert(config)
    return manifest.load(config.paths.records)


def found_labels(config, data):
    """The names of the labels of each record, by its file name."""
    return {
        fields.filename.removeprefix("images/"): [data.classes[label] for label in fields.labels]
        for split in data.splits
        for fields, _ in columns.examples(config.paths.records, data, split)
    }


def quoted(names):
    return '"' + json.dumps(names).replace('"', '""') + '"'


LINES = [json.dumps({"file": f"{n:03}.png", "labels": tags(n)}) for n in range(60)]
HOT = "".join(f"{n:03}.png,{','.join(str(int(name in tags(n))) for name in NAMES)}\n" for n in range(60))
FORMS = {
    "a separator": ("a.csv", "file,labels\n" + rows(60), {"separator": "|"}),
    "JSON lists in cells": ("a.csv", "file,labels\n" + rows(60, join=quoted), {}),
    "JSON lines": ("a.jsonl", "\n".join(LINES), {}),
    "a JSON mapping": ("a.json", json.dumps({f"{n:03}.png": tags(n) for n in range(60)}), {"label": "label"}),
    "columns of 0 and 1": ("a.csv", f"file,{','.join(NAMES)}\n{HOT}", {"label": list(NAMES)}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_several_labels_gives_the_same_records(own, form, caplog):
    name, content, keys = FORMS[form]
    caplog.set_level(logging.INFO)
    config = own(name, content, **keys)
    data = converted(config)
    assert found_labels(config, data) == {f"{number:03}.png": tags(number) for number in range(60)}
    assert (data.task, data.classes) == ("multilabel", list(NAMES))
    none = sum(not tags(number) for number in range(60))
    assert f"labels an image: 1.25 on average, at most 2; {none} images have none" in caplog.text
    assert "000.png -> cat, dog\n" in caplog.text
    for split, part in data.splits.items():
        assert sum(part.per_class) != part.examples > 0, split
    assert sum(part.unlabelled for part in data.splits.values()) == none


BROKEN = {
    "a separator that no cell holds": (
        rows(6, of=lambda n: tags(n)[:1]),
        {"separator": ";"},
        "no cell holds it",
    ),
    "no separator where cells hold several": (
        rows(12),
        {},
        r'values with several labels|set dataset\.task to multilabel and dataset\.table\.separator to "\|"',
    ),
    "another separator in some rows": (
        rows(12) + "012.png,cat;dog\n",
        {"separator": "|"},
        "1 labels that hold several ones: a.csv line 14: 'cat;dog'",
    ),
    "a label twice": ("000.png,cat|sky|cat\n" + rows(6), {"separator": "|"}, "1 cells that repeat a label"),
    "a row for each label": (
        rows(6) + "000.png,sky\n",
        {"separator": "|"},
        "write all labels of an image into one row: a.csv line 8: 'images/000.png' is 'sky' and 'cat, dog'",
    ),
    "JSON lists with a separator": (rows(6, join=quoted), {"separator": ","}, "JSON lists, but dataset.table"),
    "a column of a class without images": (
        "".join(f"{n:03}.png,{n % 2},0\n" for n in range(6)),
        {"label": ["labels", "set"]},
        "no image has a 1 in 'set'; leave it out of dataset.table.label",
    ),
    "lists in Python's form": (
        rows(6, join=lambda names: '"' + str(names) + '"'),
        {},
        r'no JSON lists of names, as in \["cat", "dog"\]: a.csv line 2',
    ),
    "objects": (
        rows(6, join=lambda names: f"{{'name': {' '.join(names)}}}"),
        {"separator": " "},
        r'6 cells that are no JSON lists of names, as in \["cat", "dog"\]: a.csv line 2',
    ),
    "a word for none": (
        rows(6) + "006.png,nan\n",
        {"separator": "|"},
        r'a class or a word for none; in dataset\.table, set "unlabelled": \["nan"\] to leave them out',
    ),
    "no label anywhere": (rows(6, of=lambda _: []), {}, "no image has a label; expected two or more classes"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_labels_with_two_meanings_are_refused_with_rows_and_the_option_that_settles_it(own, broken):
    content, keys, message = BROKEN[broken]
    head = "file,labels,set\n" if "set" in str(keys) else "file,labels\n"
    count = 13 if content.count("\n") > 12 else max(content.count("\n") - (broken in ONE_MORE), 6)
    config = own("a.csv", head + content, count, **keys)
    with pytest.raises(DataError, match=message) as refused:
        download(config)
    assert all(len(sentence.split()) <= 40 for sentence in str(refused.value).split("\n"))


ONE_MORE = ("a label twice", "a row for each label")  # rows for an image that has one


def test_cells_that_are_stated_as_unlabelled_leave_their_images_out(own):
    content = "file,labels\n" + rows(58) + "058.png,unknown\n059.png,\n"
    config = own("a.csv", content, separator="|", unlabelled=["unknown"])
    labels = found_labels(config, converted(config))
    assert (len(labels), labels["059.png"]) == (59, [])


@pytest.mark.parametrize("hint", ["a separator", "a list", "columns"])
def test_several_labels_are_refused_for_one_with_the_keys_that_allow_them(load, hint):
    forms = {
        "a separator": ("file,labels\n" + rows(12), "labels", '"|"'),
        "a list": ("file,labels\n" + rows(12, join=quoted), "labels", "null"),
        "columns": (f"file,{','.join(NAMES)}\n{HOT}", list(NAMES), "null"),
    }
    content, label, separator = forms[hint]
    table = {"path": "a.csv", "file": "file", "label": label, "split": None}
    config = load(**{"dataset.name": "image_folder", "dataset.path": "own", "dataset.table": table})
    write_images(config.dataset.path, content.count("\n") - 1)
    files.write_bytes(config.dataset.path / "a.csv", content.encode())
    with pytest.raises(DataError) as refused:
        download(config)
    option = f"set dataset.task to multilabel and dataset.table.separator to {separator}."
    assert f"\nFor several labels an image, {option}\n" in str(refused.value)


def test_further_columns_name_the_labels_as_a_json_list(own):
    content = "file,labels,site\n" + "".join(f"{n:03}.png,{'|'.join(tags(n))},s{n % 2}\n" for n in range(60))
    config = own("a.csv", content, separator="|")
    converted(config)
    with (config.paths.records / columns.FILE).open(newline="") as stream:
        found = {
            row["image/filename"]: (json.loads(row["class"]), row["site"]) for row in csv.DictReader(stream)
        }
    assert found == {f"images/{number:03}.png": (tags(number), f"s{number % 2}") for number in range(60)}


def test_labelled_images_of_traffic_join_with_their_json_lists(own):
    config = own("a.csv", "file,labels\n" + rows(60), separator="|")
    download(config)
    given = {'["fox", "dog"]': ["dog", "fox"], "[]": [], "sky": ["sky"]}
    labels = []
    for number, cell in enumerate(given):
        content = raw.encoded(raw.picture(1000 + number))
        digest = hashlib.sha256(content).hexdigest()
        files.write_bytes(labelled.IMAGES / f"{digest}.png", content)
        labels.append(labelled.Label(sha256=digest, class_=cell, reason="margin"))
    files.write_bytes(labelled.TABLE, labelled.text_of(labels).encode())
    labelled.pack(config.paths.raw)  # as download does, once the labels are pinned
    convert(config)
    data = manifest.load(config.paths.records)
    found = found_labels(config, data)
    assert data.classes == [*NAMES, "fox"]
    assert [found[f"labels/{each.sha256}.png"] for each in labels] == list(given.values())
    assert found["000.png"] == tags(0)
    labels[0] = replace(labels[0], class_="['fox']")
    files.write_bytes(labelled.TABLE, labelled.text_of(labels).encode())
    (config.paths.raw / labelled.TAR).unlink()
    labelled.pack(config.paths.raw)
    with pytest.raises(
        DataError, match=r"labels/labels.csv: the class .*\['fox'\].* is no JSON lists of names"
    ):
        convert(config)


@pytest.fixture
def tagged(own):
    """Converted records of 60 images, of which two are equal and have other labels."""
    config = own("a.csv", "file,labels\n" + rows(60) + "060.png,sky\n", separator="|")
    files.copy(config.dataset.path / "images" / "003.png", config.dataset.path / "images" / "060.png")
    converted(config)
    return config


def test_validation_counts_labels_pairs_and_images_without_any_and_finds_conflicts(tagged):
    with pytest.raises(DataError, match=r"labelled '(dog|sky)', but the same image is labelled '(dog|sky)'"):
        validate(tagged)
    found = documents.read_json(tagged.paths.validation)["statistics"]
    together = [set(tags(number)) for number in range(60)]
    expected = {
        (one, other): sum({one, other} <= each for each in together)
        for number, one in enumerate(NAMES)
        for other in NAMES[number + 1 :]
    }
    assert {(one, other): count for one, other, count in found["pairs"]} == {
        pair: count for pair, count in expected.items() if count
    }
    assert found["labels"] == {"mean": pytest.approx(76 / 61), "most": 2}
    assert sum(part["unlabelled"] for part in found["splits"].values()) == 5
    assert sum(part["examples"] for part in found["splits"].values()) == 61
    page = tagged.paths.validation_page.read_text(encoding="utf-8")
    assert "mean 1.25, at most 2" in page
    assert "cat, dog" in page


def test_a_label_of_every_example_or_of_none_is_a_problem_and_a_wrong_record_has_a_place(own):
    config = own("a.csv", "file,labels\n" + rows(60, of=lambda n: [*tags(n), "all"]), separator="|")
    converted(config)
    with pytest.raises(
        DataError, match=r"every example in test has the label all, none is without \[class_missing"
    ):
        validate(config)


def test_drift_of_several_labels_is_that_of_their_share_of_examples():
    found = drift.labels({"cat": 30, "dog": 20}, {"cat": 30, "dog": 30}, (60, 60))
    assert found == drift.Drift(10 / 60, "dog")


@pytest.mark.parametrize("same_size", [True, False])
def test_the_pipeline_gives_the_labels_of_records_as_columns_of_0_and_1(own, same_size):
    config = own("a.csv", "file,labels\n" + rows(60), separator="|")
    data = converted(config)
    expected = [set(names) for names in found_labels(config, data).values()]
    side = raw.picture(0).shape[0] if same_size else None
    pixels = ImageSpec(
        preprocessing="rescale", height=side, width=side, channels=3, image_size=8, grayscale=False, fast=True
    )
    got = []
    for split in data.splits:
        batches = pipeline.batches(
            config.paths.records, data, split, pixels, batch_size=7, label_map=pipeline.LabelMap(0)
        )
        for images, labels in batches.as_numpy_iterator():
            assert (labels.dtype, labels.shape) == (np.uint8, (len(images), 4))
            got += [{name for name, chosen in zip(data.classes, row, strict=True) if chosen} for row in labels]
    assert got == expected
    shard = data.splits["train"].shards[0]
    labels, _ = pipeline.encoded(config.paths.records, shard, data.label_columns)
    assert (labels.sum(axis=0).tolist(), labels.dtype) == (data.splits["train"].per_class, np.uint8)
    assert pipeline.LabelMap(1)(labels).tolist() == labels[:, 1:].tolist()


def example(labels, texts=(), number=0):
    """A record with a PNG, these labels and the texts beside them."""
    texts = {"image__class__text": [each.encode() for each in texts]} if texts else {}
    return record(image__encoded=[raw.encoded(raw.picture(number))], image__class__label=labels, **texts)


@pytest.fixture
def of_records(load):
    """The parameters for TFRecords of one's own with these records, and a list of the classes."""

    def of(records, names=NAMES, task="multilabel"):
        keys = SEVERAL if task == "multilabel" else {}
        config = load(**{"dataset.name": "tfrecord", "dataset.path": "own", **keys})
        files.write_bytes(config.dataset.path / "own_train.tfrecord", b"".join(records))
        files.write_bytes(config.dataset.path / "labels.txt", "\n".join(names).encode())
        return config

    return of


def numbers(count):
    return [[NAMES.index(name) for name in tags(number)][::-1] for number in range(count)]


def test_records_of_ones_own_keep_their_labels_in_ascending_order(of_records, caplog):
    caplog.set_level(logging.INFO)
    texts = [[NAMES[label] for label in labels] for labels in numbers(60)]
    config = of_records(
        example(labels, names, number)
        for number, (labels, names) in enumerate(zip(numbers(60), texts, strict=True))
    )
    data = converted(config)
    validate(config)
    found = sorted(
        fields.labels
        for split in data.splits
        for fields, _ in columns.examples(config.paths.records, data, split)
    )
    assert found == sorted(tuple(sorted(labels)) for labels in numbers(60))
    assert "60 records; labels an image: 1.25 on average, at most 2; 5 images have none" in caplog.text


@pytest.mark.parametrize(
    ("records", "task", "message"),
    [
        ([[0, 1], []], "multiclass", "has 2 values, expected 1; for several labels an image, set dataset.task"),
        ([[0, 1, 0], []], "multilabel", r"repeats a label: \[0, 1, 0\] \[schema\]"),
        ([[0, 1], ["cat", "sky"]], "multilabel", "label 1 is 'sky', but 'dog' in labels.txt"),
        ([[0, 1], ["cat", "dog", "sky"]], "multilabel", "image/class/text has 3 values beside 2 labels"),
        ([[0, 10_000], []], "multilabel", "label 10000, expected 0 to 9999"),
        ([[2**62], []], "multiclass", "label 4611686018427387904, expected 0 to 9999"),
        ([[0, 4], []], "multilabel", "labels.txt lists 4 classes, but there are labels up to 4"),
    ],
)
def test_labels_of_records_that_cannot_be_are_refused_with_their_place(of_records, records, task, message):
    config = of_records([example(*records)], task=task)
    download(config)
    with pytest.raises(DataError, match=message):
        convert(config)
