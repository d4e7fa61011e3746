"""The new examples of sources that are no bucket of images: TFRecords, and an archive of folders."""

import gzip
import shutil
from pathlib import Path
from typing import Any

import pytest
from support import raw
from support.records import record

from perennial.base import files
from perennial.data import archives
from perennial.data.sources.pin import listed_source
from perennial.live.monitor import newest
from perennial.live.monitor.newest import Newest

SEVERAL_LABELS = {"dataset.task": "multilabel", "train.stop_metric": "map", "gate.min_accuracy": None}
PICTURES = [raw.encoded(raw.picture(number)) for number in range(6)]


def found(config: Any, folder: Path) -> Newest:
    """The new examples of a source, whose `old` folder the champion was trained on."""
    newest.note(config, folder / "old", folder / "old.sqlite")
    known = newest.TrainedOn(folder / "old.sqlite")
    (scratch := folder / "newest").mkdir()
    with listed_source(config) as (listing, origin):
        return newest.collect(config, listing, origin, known, scratch)


def shard(*numbers: int) -> bytes:
    """Records with these pictures; the label is the number."""
    return b"".join(record(image__encoded=[PICTURES[n]], image__class__label=[n]) for n in numbers)


@pytest.mark.parametrize("lists", [{}, {"labels.txt": "".join(f"{n}:class {n}\n" for n in range(6))}])
def test_records_that_were_only_moved_to_another_shard_are_not_new(load, tmp_path, lists) -> None:
    for name, shards in {"old": {"own-train-00000-of-00001": (0, 1)}, "now": {
        "own-train-00000-of-00002": (0, 4), "own-train-00001-of-00002": (1, 5), "own_test.tfrecord": (3,)
    }}.items():  # fmt: skip
        (tmp_path / name).mkdir()
        for file, numbers in shards.items():
            (tmp_path / name / file).write_bytes(shard(*numbers))
        for file, text in lists.items():
            (tmp_path / name / file).write_text(text)
    new = found(load(**{"dataset.name": "tfrecord", "dataset.url": str(tmp_path / "now")}), tmp_path)
    prefix = "class " if lists else ""
    assert (new.objects, sorted(new.labels)) == (3, [(f"{prefix}{n}",) for n in (3, 4, 5)])
    content = new.file.read_bytes()
    images = {content[start : start + size] for start, size in new.spans}
    assert (images, new.brightness.sum()) == ({PICTURES[n] for n in (3, 4, 5)}, 3)


def test_of_an_archive_only_images_that_it_did_not_hold_before_are_new(load: Any, tmp_path: Path) -> None:
    folder = tmp_path / "pets"
    for number in range(4):
        file = folder / ("cat", "dog")[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(PICTURES[number])
    (folder / "README.md").write_text("Cats and dogs")
    (tmp_path / "old").mkdir()
    archives.pack(folder, tmp_path / "old" / "images.tar")
    (folder / "dog" / "4.png").write_bytes(PICTURES[4])
    (folder / "dog" / "0.png").write_bytes(PICTURES[0])
    (folder / "cat" / "5.png").write_bytes(PICTURES[5][:50])
    archives.pack(folder, tmp_path / "pets.tar")
    new = found(load(**{"dataset.name": "image_folder", "dataset.url": str(tmp_path / "pets.tar")}), tmp_path)
    assert (new.objects, new.labels, new.unreadable, new.per_class) == (1, [("dog",)], 1, {"dog": 1})


@pytest.mark.parametrize("place", ["pets", "pets.zip"])
def test_a_table_gives_the_labels_of_new_images(load: Any, tmp_path: Path, place: str) -> None:
    folder = tmp_path / "pets"
    (tmp_path / "old").mkdir()
    for name, numbers in {"old": range(4), "now": range(4, 6)}.items():
        for number in numbers:
            files.write_bytes(folder / "images" / f"{name} {number}.PNG", PICTURES[number])
        listed_files = sorted((folder / "images").iterdir())
        kinds = (f"kind {file.stem[-1]}" for file in listed_files)
        rows = (f"{file.name},{kind}" for file, kind in zip(listed_files, kinds, strict=True))
        (folder / "labels.csv").write_text("\n".join(rows))
        if name == "old":
            archives.pack(folder, tmp_path / "old" / "images.tar")
    shutil.make_archive(str(folder), "zip", folder)
    table = {"path": "labels.csv", "file": 1, "label": 2, "split": None}
    values = {"dataset.name": "image_folder", "dataset.url": str(tmp_path / place), "dataset.table": table}
    new = found(load(**values), tmp_path)
    assert sorted(new.labels) == [("kind 4",), ("kind 5",)]


@pytest.mark.parametrize("place", ["records", "records.zip"])
def test_records_in_folders_of_splits_or_an_archive_are_found(load: Any, tmp_path: Path, place: str) -> None:
    files.write_bytes(tmp_path / "old" / "part-00000_train.tfrecord", shard(0, 1))
    files.write_bytes(tmp_path / "records" / "train" / "part-00000", shard(0, 1))
    files.write_bytes(tmp_path / "records" / "val" / "part-00000", gzip.compress(shard(2, 3)))
    shutil.make_archive(str(tmp_path / "records"), "zip", tmp_path / "records")
    new = found(load(**{"dataset.name": "tfrecord", "dataset.url": str(tmp_path / place)}), tmp_path)
    assert (new.objects, sorted(new.labels)) == (1, [("2",), ("3",)])


@pytest.mark.parametrize("place", ["pets", "pets.zip", "records"])
def test_new_images_have_all_their_labels(load: Any, tmp_path: Path, place: str) -> None:
    labels = [("a", "b"), ("b",), (), ("a", "c")]
    folder, own = tmp_path / place.removesuffix(".zip"), tmp_path / "old" / "own-train-00000-of-00001"
    if place == "records":
        ids = [["abc".index(name) for name in each] for each in labels]
        parts = [record(image__encoded=[PICTURES[n]], image__class__label=each) for n, each in enumerate(ids)]
        for file, content in {own: parts[0], folder / own.name: b"".join(parts)}.items():
            files.write_bytes(file, content)
        files.write_bytes(folder / "labels.txt", b"0:a\n1:b\n2:c\n")
    else:
        for number in range(4):
            files.write_bytes(folder / f"{number}.png", PICTURES[number])
        rows = "".join(f"{number}.png,{'|'.join(each)}\n" for number, each in enumerate(labels))
        files.write_bytes(folder / "tags.csv", f"file,tags\n{rows}".encode())
        shutil.make_archive(str(folder), "zip", folder)
        files.copy(folder / "0.png", tmp_path / "old" / "0.png")
    table = {"path": "tags.csv", "file": "file", "label": "tags", "split": None, "separator": "|"}
    own_form = {"dataset.name": "tfrecord"} if place == "records" else {"dataset.name": "image_folder"}
    own_form |= {"dataset.table": None if place == "records" else table, "dataset.url": str(tmp_path / place)}
    new = found(load(**SEVERAL_LABELS | own_form), tmp_path)
    assert sorted(new.labels) == sorted(labels[1:])
    assert new.per_class == {"a": 1, "b": 1, "c": 1}
