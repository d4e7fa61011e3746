"""Labelled images of traffic in a folder of images: who may reach which split."""

import hashlib
import io

import numpy as np
import PIL.Image
import pytest

from perennial.base.errors import DataError
from perennial.data.datasets.image_folder import IMAGE_FOLDER, collect
from perennial.data.datasets.readers import labelled
from perennial.data.datasets.readers.labelled import Label
from perennial.data.images import Image
from perennial.data.records import sharding

CLASSES = ("rose", "tulip")


def picture(number: int) -> bytes:
    stream = io.BytesIO()
    PIL.Image.fromarray(np.full((4, 4, 3), (number % 256, number // 256, 7), np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def label(content: bytes, name: str, reason: str = "random") -> Label:
    return Label(sha256=hashlib.sha256(content).hexdigest(), class_=name, reason=reason)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A pipeline's folder with 40 images of its own."""
    monkeypatch.chdir(tmp_path)
    for number in range(40):
        folder = tmp_path / "own" / CLASSES[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.png").write_bytes(picture(number))
    (tmp_path / "raw").mkdir()
    return tmp_path


def add(rows):
    labelled.IMAGES.mkdir(parents=True)
    for content, each in rows:
        (labelled.IMAGES / f"{each.sha256}.png").write_bytes(content)
    labelled.TABLE.write_text(labelled.text_of(each for _, each in rows))


def rows(count, reason, name="rose", first=1000):
    images = [picture(first + number) for number in range(count)]
    return [(content, label(content, name, reason)) for content in images]


def read(project):
    collect(project / "own", project / "raw")
    labelled.pack(project / "raw")
    return IMAGE_FOLDER.read(project / "raw")


def split_of(source):
    """The split of each labelled image, by its digest."""
    return {
        source.splits[shard.source].names[index].removeprefix("labels/").removesuffix(".png"): shard.split
        for shard in sharding.plan("pets", source, shards="auto", fraction=0.2, seed=1, test_fraction=0.2)
        for index in shard.indices
        if source.splits[shard.source].names[index].startswith("labels/")
    }


def test_chosen_images_reach_train_only(project):
    add([*rows(30, "disagreement"), *rows(30, "margin", "tulip", 2000)])
    assert set(split_of(read(project)).values()) == {"train"}


def test_random_images_reach_every_split(project):
    add(rows(60, "random"))
    assert set(split_of(read(project)).values()) == {"train", "validation", "test"}


def test_random_images_reach_test_also_where_the_source_has_one(project):
    (project / "own" / "test").mkdir()
    for name in CLASSES:
        (project / "own" / name).rename(project / "own" / f"{name}s")
        (project / "own" / "train").mkdir(exist_ok=True)
        (project / "own" / f"{name}s").rename(project / "own" / "train" / name)
        (project / "own" / "test" / name).mkdir()
        (project / "own" / "test" / name / "1.png").write_bytes(picture(500))
    add(rows(60, "random"))
    assert list(split_of(read(project)).values()).count("test") == 12


def test_other_images_keep_their_split_if_chosen_ones_join(project):
    add(rows(30, "margin"))
    collect(project / "own", project / "raw")
    before = sharding.plan("pets", IMAGE_FOLDER.read(project / "raw"), shards=1, fraction=0.2, seed=1)
    after = sharding.plan("pets", read(project), shards=1, fraction=0.2, seed=1)
    held = [{each.split: each.indices.tolist() for each in plan} for plan in (before, after)]
    assert held[0]["test"] == held[1]["test"]


def test_the_images_are_read_by_their_index(project):
    mine = rows(3, "random")
    add(mine)
    train = read(project).splits["train"]
    images = list(train.images([0, 41, 2, 42]))
    assert [hashlib.sha256(each.encoded).hexdigest() in train.names[index]
            for each, index in zip(images, [0, 41, 2, 42], strict=True) if isinstance(each, Image)] == [
        False, True, False, True,
    ]  # fmt: skip


def test_a_new_class_comes_after_those_of_the_source(project):
    add(rows(5, "random", "daisy"))
    assert read(project).classes == ("rose", "tulip", "daisy")


def test_an_image_of_none_of_the_classes_is_left_out(project):
    add(rows(5, "random", ""))
    assert len(read(project).splits["train"].labels) == 40


def test_records_say_which_images_are_of_the_traffic(project):
    add(rows(2, "margin"))
    source = read(project)
    assert (source.columns, sorted(source.splits["train"].further)[-3:]) == (
        ("traffic",), [("",), ("margin",), ("margin",)],
    )  # fmt: skip


def test_an_image_with_other_bytes_is_refused(project):
    mine = rows(1, "random")
    add(mine)
    (labelled.IMAGES / f"{mine[0][1].sha256}.png").write_bytes(b"other")
    with pytest.raises(DataError, match="is damaged"):
        labelled.pack(project / "raw")


def test_a_lost_image_is_named(project):
    add(rows(1, "random"))
    next(labelled.IMAGES.iterdir()).unlink()
    with pytest.raises(DataError, match="1 images that labels/images lacks"):
        labelled.pack(project / "raw")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sha256,class\n", "no column reason"),
        (f"sha256,class,reason\n{'a' * 64},rose,mood\n", "line 2: the reason 'mood'"),
        ("sha256,class,reason\n1.jpg,rose,random\n", "'1.jpg' is no SHA-256"),
        (
            f"sha256,class,reason\n{'a' * 64},a,random\n{'a' * 64},b,random\n",
            "line 3: a+ is b here and a in another row",
        ),
    ],
)
def test_a_wrong_row_is_named_with_its_line(text, message):
    with pytest.raises(DataError, match=message):
        labelled.parse(text)


def test_an_image_that_two_people_gave_the_same_class_counts_as_drawn_if_one_of_them_drew_it():
    chosen, drawn = (label(b"x", "rose", reason) for reason in ("margin", "random"))
    for both in ((chosen, drawn), (drawn, chosen)):
        assert labelled.parse(labelled.text_of(both)) == {drawn.sha256: drawn}


def test_a_table_is_read_as_it_was_written():
    mine = label(b"x", 'roses, "red"')
    assert labelled.parse(labelled.text_of([mine])) == {mine.sha256: mine}


def test_equal_labels_give_equal_raw_files(project):
    add(rows(3, "random"))
    written = project / "raw" / labelled.TAR
    labelled.pack(project / "raw")
    first = written.read_bytes()
    labelled.pack(project / "raw")
    assert written.read_bytes() == first
