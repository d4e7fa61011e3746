"""Tables of labels from the raw folder to the records: further columns, and what is left out of them."""

import csv
import hashlib

import pytest
from support import raw

from perennial.base import files
from perennial.base.choices import SPLITS
from perennial.base.project.pins import Exclusions
from perennial.data.records import columns as further
from perennial.data.records import manifest
from perennial.stages.convert import convert
from perennial.stages.download import download
from perennial.stages.validate import validate


@pytest.fixture
def tabled(load):
    """Parameters with images of two classes, and a table with a split, a quoted text and a number."""
    config = load(
        **{"dataset.name": "image_folder", "dataset.path": "own", "dataset.on_bad_image": "skip",
           "dataset.table": {"path": "labels.csv", "file": "image", "label": "class", "split": "set"},
           "dataset.validation_fraction": 0.25, "validate.near_duplicate_bits": None}
    )  # fmt: skip
    rows = ["image;class;set;site;age"]
    for number in range(24):
        name, split = f"{number:02}.png", ("train", "test")[number % 3 == 2]
        files.write_bytes(config.dataset.path / "images" / name, raw.encoded(raw.picture(number)))
        rows.append(f'{name};{"ab"[number % 2]};{split};"north; {number}";{number}')
    files.write_bytes(config.dataset.path / "labels.csv", "\r\n".join(rows).encode("utf-8-sig"))
    return config


def columns(config):
    with (config.paths.records / further.FILE).open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_further_columns_are_written_for_every_record(tabled):
    download(tabled)
    convert(tabled)
    validate(tabled)
    found = columns(tabled)
    assert list(found[0]) == ["split", "image/filename", "class", "site", "age"]
    assert {row["image/filename"]: row["site"] for row in found} == {
        f"images/{number:02}.png": f"north; {number}" for number in range(24)
    }
    data = manifest.load(tabled.paths.records)
    assert [row["split"] for row in found] == [
        split for split in SPLITS for _ in range(data.splits[split].examples)
    ]
    read = further.read(tabled.paths.records, "test")  # in the order of the records
    names = [fields.filename for fields, _ in further.examples(tabled.paths.records, data, "test")]
    assert read.names == ("site", "age")
    assert [f"images/{int(age):02}.png" for _, age in read.rows] == names
    assert len(names) == 8


def test_images_that_are_rejected_or_excluded_have_no_row(tabled):
    own = tabled.dataset.path / "images"
    (own / "00.png").write_bytes(b"no image")
    excluded = hashlib.sha256((own / "01.png").read_bytes()).hexdigest()
    files.write_json(Exclusions.FILE, {"digests": [excluded], "reasons": {}})
    download(tabled)
    convert(tabled)
    assert {row["image/filename"] for row in columns(tabled)} == {f"images/{n:02}.png" for n in range(2, 24)}


def test_images_of_a_group_are_converted_into_one_split(load):
    named = {"path": "labels.csv", "file": "image", "label": "class", "group": "owner"}
    config = load(
        **{"dataset.name": "image_folder", "dataset.path": "own", "dataset.table": named,
           "dataset.validation_fraction": 0.25, "dataset.test_fraction": 0.25}
    )  # fmt: skip
    rows = ["image,class,owner"]
    for number in range(48):
        files.write_bytes(config.dataset.path / "images" / f"{number}.png", raw.encoded(raw.picture(number)))
        rows.append(f"{number}.png,{'ab'[number % 2]},owner {number // 4}")
    files.write_bytes(config.dataset.path / "labels.csv", "\n".join(rows).encode())
    download(config)
    convert(config)
    owners = [set(further.read(config.paths.records, split).values("owner")) for split in SPLITS]
    assert list(map(len, owners)) == [7, 2, 3]
    assert len(set.union(*owners)) == 12
