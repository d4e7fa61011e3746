"""Several labels an image, from tables and TFRecords to checked records: what is read, said and refused."""

import json
import logging

import pytest
from support import raw

from perennial.base import files
from perennial.data.records import columns, manifest
from perennial.stages.convert import convert
from perennial.stages.download import download

NAMES = ("cat", "dog", "grass", "sky")
OWN = {"dataset.name": "image_folder", "dataset.path": "own", "dataset.task": "multilabel"}


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
    assert "000.png -> cat, dog, train" in caplog.text
    for split, part in data.splits.items():
        assert sum(part.per_class) != part.examples > 0, split
    assert sum(part.unlabelled for part in data.splits.values()) == none
