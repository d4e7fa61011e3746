"""Labelled images of traffic in a folder of images: who may reach which split."""

import hashlib
import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from support.raw import encoded, write_files

from perennial.base.config.data import DatasetConfig
from perennial.base.errors import DataError
from perennial.data import datasets
from perennial.data.datasets.image_folder import collect
from perennial.data.datasets.readers import labelled
from perennial.data.datasets.readers.labelled import Label
from perennial.data.images import Image
from perennial.data.records import sharding

CLASSES = ("rose", "tulip")


def picture(number):
    return encoded(np.full((4, 4, 3), (number % 256, number // 256, 7), np.uint8))


def label(content, name, reason="random"):
    return Label(sha256=hashlib.sha256(content).hexdigest(), class_=name, reason=reason)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A pipeline's folder with 40 images of its own."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path / "own", {f"{CLASSES[n % 2]}/{n}.png": picture(n) for n in range(40)})
    (tmp_path / "raw").mkdir()
    return tmp_path


def add(rows):
    write_files(labelled.IMAGES, {f"{each.sha256}.png": content for content, each in rows})
    labelled.TABLE.write_text(labelled.text_of(each for _, each in rows))


def rows(count, reason, name="rose", first=1000):
    images = [picture(first + number) for number in range(count)]
    return [(content, label(content, name, reason)) for content in images]


def read(project):
    collect(project / "own", project / "raw")
    labelled.pack(project / "raw")
    return joined(project, DatasetConfig(name="image_folder"))


def joined(project, options):
    """What the raw folder holds, read into a new folder."""
    shutil.rmtree(project / "scratch", ignore_errors=True)
    (project / "scratch").mkdir()
    return datasets.read(options, project / "raw", project / "scratch")


def split_of(source):
    """The split of each labelled image, by its digest."""
    return {
        name.removeprefix("labels/").removesuffix(".png"): shard.split
        for shard in sharding.plan("pets", source, shards="auto", fraction=0.2, seed=1, test_fraction=0.2)
        for name in map(source.splits[shard.source].names.__getitem__, shard.indices)
        if name.startswith("labels/")
    }


def test_drawn_images_measure_only_and_the_others_train_only(project):
    mine = rows(200, "random")
    add(mine)
    found = split_of(read(project))
    for _, each in mine:
        assert (found[each.sha256] != "train") is labelled.may_be_drawn(each.sha256)
    counts = Counter(found.values())
    assert min(counts["test"], counts["validation"]) > 30


def test_the_first_drawn_images_go_to_test_and_none_moves_as_labels_grow_and_are_forgotten(
    project, monkeypatch
):
    """The first of four batches has no recorded splits; after each, some images are forgotten."""
    monkeypatch.setattr(labelled, "FIRST", 70)
    table, images, seen, tested = {}, {}, {}, []
    for number in range(4):
        batch = rows(80, "random", first=1000 + 100 * number)
        images |= {each.sha256: content for content, each in batch}
        new = {each.sha256: each for _, each in batch}
        table |= labelled.with_splits(new, table, first=number > 0)
        shutil.rmtree(labelled.FOLDER, ignore_errors=True)
        shutil.rmtree(project / "raw")
        (project / "raw").mkdir()
        add([(images[name], each) for name, each in table.items()])
        assert labelled.read(labelled.TABLE) == table
        found = split_of(read(project))
        assert {name: found[name] for name in seen if name in found} == {
            name: split for name, split in seen.items() if name in table
        }
        seen |= found
        measures = [each.sha256 for _, each in batch if each.measures]
        tested.append(sum(found[name] == "test" for name in measures) / len(measures))
        for name in sorted(found)[number::5]:
            del table[name]
    assert tested[1] == 1  # test lacks labels
    assert 0.2 < min(tested[0], tested[3]) <= max(tested[0], tested[3]) < 0.8  # by the hash


def test_a_label_that_is_corrected_keeps_its_split():
    drawn = [each for _, each in rows(40, "random") if each.measures]
    first, second = drawn[0], replace(drawn[1], split="test")
    known = {first.sha256: first, second.sha256: second}
    again = {each.sha256: replace(each, class_="tulip", split="") for each in (first, second)}
    found = labelled.with_splits(again, known, first=True)
    assert [each.split for each in found.values()] == ["", "test"]


def test_only_random_labels_of_a_class_go_to_test_first():
    chosen, none = rows(9, "margin"), rows(20, "random", "", 2000)
    new = {each.sha256: each for _, each in (*chosen, *none)}
    assert labelled.with_splits(new, {}, first=True) == new
    assert labelled.lacking(new.values()) == labelled.FIRST


def test_of_two_rows_of_an_image_one_of_test_counts():
    mine = label(b"x", "rose")
    for both in ((mine, replace(mine, split="test", time="2")), (replace(mine, split="test"), mine)):
        assert labelled.parse(labelled.text_of(both))[mine.sha256].split == "test"


def test_drawn_images_reach_test_also_where_the_source_has_one(project):
    (project / "own").rename(project / "train")
    write_files(project / "own" / "test", {f"{name}/1.png": picture(500) for name in CLASSES})
    (project / "train").rename(project / "own" / "train")
    mine = rows(60, "random")
    add(mine)
    found = split_of(read(project))
    drawn = {each.sha256 for _, each in mine if each.measures}
    assert {name for name, split in found.items() if split == "train"} == found.keys() - drawn


def test_the_images_are_read_by_their_index(project):
    mine = rows(3, "random")
    add(mine)
    train = read(project).splits["train"]
    images = list(train.images([0, 41, 2, 42]))
    assert [hashlib.sha256(each.encoded).hexdigest() in train.names[index]
            for each, index in zip(images, [0, 41, 2, 42], strict=True) if isinstance(each, Image)] == [
        False, True, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ros\u00e9", ""),
        ("ro\u200bse", "one class or two"),
        ("nan", "'nan' is a word for no class"),
        ("rose, tulip", "'rose, tulip' holds several labels"),
    ],
    ids=repr,
)
def test_a_new_class_that_is_another_spelling_or_no_name_is_refused(project, name, message):
    add(rows(4, "margin", name))
    if not message:
        assert read(project).classes == (*CLASSES, name)
        return
    with pytest.raises(DataError, match=message):
        read(project)


def test_a_class_that_only_drawn_images_have_reaches_test_and_validation_and_not_train(project):
    drawn = [each for each in rows(200, "random", "iris") if each[1].measures]
    add(drawn)
    planned = sharding.plan("pets", read(project), shards="auto", fraction=0.2, seed=1, test_fraction=0.2)
    source = read(project)
    labels = {split: Counter[int]() for split in ("train", "validation", "test")}
    for shard in planned:
        labels[shard.split].update(source.splits[shard.source].labels[shard.indices].tolist())
    assert labels["train"][2] == 0
    assert min(labels["validation"][2], labels["test"][2]) > 0


def test_an_image_of_none_of_the_classes_is_left_out(project):
    add(rows(5, "random", ""))
    assert len(read(project).splits["train"].labels) == 40


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
        ("sha256,class\n", "expected reason in one column"),
        (f"sha256,class,reason\n{'a' * 64},a\\qb,random\n", r"line 2 is not CSV: \\q means nothing"),
        (f"sha256,class,reason\n{'a' * 64},a\rb,random\n", "line 2 is not CSV"),
        (f'sha256,class,reason\n{"a" * 64},"rose,random\n', "line 2 is not CSV"),
        (f"sha256,class,reason\n{'a' * 64},rose,random,red\n", "line 2: it has 4 cells"),
        (f"sha256,class,reason\n{'a' * 64},rose,mood\n", "line 2: the reason 'mood'"),
        (
            f"sha256,class,reason,split\n{'a' * 64},rose,random,train\n",
            "line 2: the split 'train' is not test or",
        ),
        ("sha256;class;reason\n", "line 1: expected sha256 in one column"),
        (f"sha256,class,reason,class\n{'a' * 64},a,random,b\n", "line 1: expected class in one column"),
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


TEXTS = [
    'roses, "red"', "a\rb", "a\nb", "a\r\nb", "\r", "\n", "a\\nb", "a\\", "\\\\u000a", " cat", "cat ", "   ",
    "\tcat", "\u00a0cat\u3000", "\u2028", "\x85", "\x00", "\x1c", "\ufeffcat", "\udcff", '"', '""', "'", ",",
    ";", "=1+1", "#", "-", "\u00e9", "e\u0301", "\u732b", "\U0001f408", "\u202etac", "c" * 1000,
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS, ids=map(repr, range(len(TEXTS))))
def test_any_class_and_name_comes_back_as_it_was_from_a_row_of_one_line(text, tmp_path):
    mine = replace(label(b"x", text), who=text)
    (tmp_path / "labels.csv").write_bytes(labelled.text_of([mine]).encode())
    assert labelled.read(tmp_path / "labels.csv") == {mine.sha256: mine}
    assert len(labelled.text_of([mine]).splitlines()) == 2
    assert "\0" not in labelled.text_of([mine])  # git would take it for a binary file, and not merge it


def test_a_text_that_no_table_could_hold_is_refused_before_it_is_written():
    with pytest.raises(DataError, match="has 200,000 characters, expected at most 10,000"):
        labelled.text_of([label(b"x", "c" * 200_000)])


def test_a_table_that_a_spreadsheet_saved_is_read(tmp_path):
    mine = label(b"x", "caf\u00e9")
    text = f"sha256,class,reason,\r\n{mine.sha256},caf\u00e9,random,\r\n"
    (tmp_path / "labels.csv").write_bytes(text.encode("utf-8-sig"))
    assert labelled.read(tmp_path / "labels.csv") == {mine.sha256: mine}
