"""Tables of labels beside images: what dataset.table reads, and what is refused with the number of rows."""

import json
import unicodedata

import numpy as np
import pytest
from support.raw import encoded, write_files

from perennial.base.config.data import TableConfig
from perennial.base.errors import DataError
from perennial.data import archives
from perennial.data.datasets import image_folder
from perennial.data.datasets.own import tables
from perennial.data.datasets.own.image_names import Images


@pytest.fixture
def read(tmp_path):
    """What is read from files: the images of these names, and the contents of others, with dataset.table."""

    def of(names, contents, **table):
        images = {name: encoded(np.full((3, 3), number, np.uint8)) for number, name in enumerate(names)}
        archives.pack(write_files(tmp_path / "own", images | contents), tmp_path / "images.tar")
        named = TableConfig(**{"path": next(iter(contents)), **table}) if table else None
        return image_folder.read_tar(tmp_path / "images.tar", table=named)

    return of


def labels(source, split="train"):
    part = source.splits[split]
    return {name: source.classes[label] for name, label in zip(part.names, part.labels.tolist(), strict=True)}


IMAGES = ("images/1.png", "images/2.png", "images/3.png")
EXPECTED = {"images/1.png": "cat", "images/2.png": "dog", "images/3.png": "cat"}
ROWS = (("1.png", "cat"), ("2.png", "dog"), ("3.png", "cat"))
PLAIN = {"file": "file", "label": "label"}
BARE = {"file": 1, "label": 2}


def table(header=("file", "label"), rows=ROWS, delimiter=",", end="\n"):
    return "".join(delimiter.join(row) + end for row in ((header, *rows) if header else rows))


def lines(columns, rows=ROWS):
    return "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)


TABLES = {
    "a byte order mark": "\ufeff" + table(),
    "UTF-16": table().encode("utf-16"),
    "semicolons": table(delimiter=";"),
    "tabs": table(delimiter="\t"),
    "commas in a quoted name": table(("file", '"a;b;c"', "label"), [(f, "1", each) for f, each in ROWS]),
    "CR LF, blanks and empty lines": table(end=" \r\n") + "\r\n,\r\n",
    "CR": table(end="\r"),
    "quotes": '"file","label"\n"1.png","cat"\n"2.png", "dog"\n3.png,cat\n',
    "the label first": table(("label", "file"), [row[::-1] for row in ROWS]),
    "without endings": table(rows=[(name.removesuffix(".png"), label) for name, label in ROWS]),
    "with folders": table(rows=[(f"images/{name}", label) for name, label in ROWS]),
    "in other case": table(rows=[(name.upper(), label) for name, label in ROWS]),
    "with Excel's line": "sep=;\r\n" + table(delimiter=";", end="\r\n"),
    "with a long text": table(("file", "label", "text"), [(*row, "x" * 200_000) for row in ROWS]),
    "of Windows": table(rows=[(f".\\images\\{name}", label) for name, label in ROWS]),
    "rows twice": table(rows=ROWS * 2),
    "below a folder elsewhere": table(rows=[(f"/home/me/data/{name}", label) for name, label in ROWS]),
    "below a folder of Windows": table(rows=[(f"C:\\me\\images\\{name}", label) for name, label in ROWS]),
    "below another folder": table(rows=[(f"set/images/{name}", label) for name, label in ROWS]),
    "in a bucket": table(rows=[(f"gs://bucket/flowers/images/{name}", label) for name, label in ROWS]),
}


COLUMNS = {
    "named": (table(("Image ID", "Class Name")), {"file": "Image ID", "label": "Class Name"}),
    "without a header": (table(None), BARE),
    "the label first": (table(None, [row[::-1] for row in ROWS]), {"file": 2, "label": 1}),
    "for each class": (
        table(("id", "cat", "dog"), [("1", "1", "0"), ("2", "0.0", "1.0"), ("3", "1", "0")]),
        {"file": "id", "label": ["cat", "dog"]},
    ),
}


LISTS = {
    "lines.txt": (table(None, delimiter=" "), BARE),
    "names.txt": (table(None, [(f"images/{name}", label) for name, label in ROWS], delimiter="\t"), BARE),
    "commas.txt": (table(), PLAIN),
    "labels.json": (json.dumps(dict(ROWS)), {}),
    "objects.json": (json.dumps([{"file": name, "label": label} for name, label in ROWS]), {}),
    "metadata.jsonl": (lines(("file_name", "label")), {"file": "file_name", "label": "label"}),
    "list.lst": (
        table(None, [(name[0], label, f"images/{name}") for name, label in ROWS], "\t"), {"file": 3, "label": 2}
    ),
    "images/metadata.csv": (table(("file_name", "label")), {"file": "file_name", "label": "label"}),
}  # fmt: skip


READ = {
    **{what: ("labels.csv", text, {}) for what, text in TABLES.items()},
    **{f"columns {what}": ("table.csv", *row) for what, row in COLUMNS.items()},
    **{place: (place, *row) for place, row in LISTS.items()},
}


@pytest.mark.parametrize(("place", "text", "columns"), READ.values(), ids=READ)
@pytest.mark.parametrize("around", ["", "top/"])
def test_a_table_gives_the_labels_and_needs_no_naming_with_the_columns_file_and_label(
    read, place, text, columns, around
):
    source = read([around + name for name in IMAGES], {around + place: text}, **columns)
    assert (labels(source), source.classes) == (EXPECTED, ("cat", "dog"))


FOLDERS = [f"{kind}/{number}{kind[0]}.png" for kind in ("cat", "dog") for number in range(3)]
LINES = [f"top/{name} {int(name.startswith('dog'))}\n" for name in FOLDERS]
SPLITS = {"real_train.txt": "".join(LINES[:2] + LINES[3:5]), "real_test.txt": LINES[2] + LINES[5]}


# Images, other files, dataset.table, and the labels of each split.
WITH_SPLITS = {
    "a table beside images": (
        ("1.png", "2.png", "3.png"), {"labels.csv": table()}, {}, {"train": dict(ROWS)},
    ),
    "a table in a folder beside folders of images": (
        ("part_1/1.png", "part_1/2.png", "part_2/3.png"), {"annotations/labels.csv": table()}, {},
        {"train": {"part_1/1.png": "cat", "part_1/2.png": "dog", "part_2/3.png": "cat"}},
    ),
    "a numbered column, without a header": (
        IMAGES, {"l.csv": "TRAINING,gs://b/1.png,cat\nTRAINING,gs://b/2.png,dog\nVALIDATION,gs://b/3.png,cat\n"},
        {"file": 2, "label": 3, "split": 1},
        {"train": {"images/1.png": "cat", "images/2.png": "dog"}, "validation": {"images/3.png": "cat"}},
    ),
    "a column": (
        ["1.png", "2.png", "3.png", "4.png"],
        {"l.csv": "file,label,split\n1.png,cat,Train\n2.png,dog,train\n3.png,cat,val\n4.png,dog,TEST\n"}, {},
        {"train": {"1.png": "cat", "2.png": "dog"}, "validation": {"3.png": "cat"}, "test": {"4.png": "dog"}},
    ),
    "a table for each split": (
        ["train/1.png", "train/2.png", "test/1.png"],
        {"a.csv": "file,label\n1,cat\n2,dog\n", "b.csv": "file,label\n1,dog\n"},
        {"path": {"train": "a.csv", "test": "b.csv"}, **PLAIN},
        {"train": {"train/1.png": "cat", "train/2.png": "dog"}, "test": {"test/1.png": "dog"}},
    ),
    "folders of splits": (
        ["train/1.png", "train/2.png", "valid/3.png"], {"labels.csv": table()}, {},
        {"train": {"train/1.png": "cat", "train/2.png": "dog"}, "validation": {"valid/3.png": "cat"}},
    ),
    "tables of splits beside class folders": (
        FOLDERS, SPLITS, {"path": {"train": "real_train.txt", "test": "real_test.txt"}, "file": 1},
        {"train": {name: name[:3] for name in FOLDERS if "2" not in name},
         "test": {"cat/2c.png": "cat", "dog/2d.png": "dog"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("names", "contents", "columns", "expected"), WITH_SPLITS.values(), ids=WITH_SPLITS)
def test_tables_give_splits(read, names, contents, columns, expected):
    source = read(names, contents, **columns)
    assert {split: labels(source, split) for split in source.splits} == expected


def bits(*rows):
    return {"l.csv": "\n".join(("id,cat,dog", *rows))}, {"file": "id", "label": ["cat", "dog"]}


ASKED = """'l.csv' has 'photo', 'species'; .*"file": "photo", "label": "species", "split": null"""
PHASES = table(("file", "phase"), [(name, "test" if "2" in name else "train") for name in FOLDERS])
TO_TRAIN, HELD = (
    table(("file", "label", "split"), [(*row, each) for row in ROWS]) for each in ("train", "hold")
)
LATIN = table().replace("cat", "caf\xe9").encode("latin-1")
BELOW = ("images/1.png", "images/2.png", "images/images/1.png", "images/images/2.png", "else/3.png")
# Images, other files, dataset.table, and what is said.
REFUSED = {
    "another table": (IMAGES, {"l.csv": table(("photo", "species"))}, {}, f"no class folders, .*{ASKED}"),
    "two columns to choose from": (
        IMAGES, {"l.csv": table(("id", "age", "dx"), [("1", "5", "a")])}, {}, "'l.csv' has 'id', 'age', 'dx'"
    ),
    "no such column": (
        IMAGES, {"l.csv": table()}, {"file": "x", "label": "label"}, "no columns 'x', .* are 'file', 'label'"
    ),
    "no third column": (IMAGES, {"l.csv": table()}, {"file": 1, "label": 3}, "2 columns, but .* column 3"),
    "no such table": (
        IMAGES, {"l.csv": table()}, {"path": "x.csv", **PLAIN}, r"path is 'x\.csv', but the tables are 'l\.csv'"
    ),
    "Latin-1": (IMAGES, {"l.csv": LATIN}, {}, r"l\.csv is not UTF-8: byte 0xe9 in line 2"),
    "an empty table": (IMAGES, {"l.csv": ""}, {}, r"l\.csv is empty"),
    "a key twice": (IMAGES, {"l.json": '{"1.png": "a", "1.png": "b"}'}, {}, "'1.png' occurs twice in"),
    "an open quote": (IMAGES, {"l.csv": table() + '"x'}, {}, "line 5 is not CSV|without 2 columns|not exist"),
    "tables named like splits": (FOLDERS, SPLITS, {}, 'like a split, which nothing uses; .*"train": "..."'),
    "a column of splits": (FOLDERS, {"l.csv": PHASES}, {}, "in 'phase', which nothing uses.*\"label\": null"),
    "two ones": (IMAGES, *bits("1,1,1", "2,0,1", "3,1,0"), "1 rows with several labels: a 1 in several col"),
    "no ones": (IMAGES, *bits("1,0,0", "2,0,1", "3,1,0"), "1 rows without a 1 in any column: l.csv line 2"),
    "no bits": (IMAGES, *bits("1,.5,.5", "2,0,1", "3,1,0"), "1 rows with other values than 0 and 1"),
    "folders of another split": (
        ("train/1.png", "train/2.png", "val/3.png"), {"l.csv": TO_TRAIN}, {},
        "1 images in the folder of another split: l.csv line 4: 'val/3.png'",
    ),
    "no word for a split": (IMAGES, {"l.csv": HELD}, {}, "3 rows whose value in 'split' is not a split"),
    "a name of two files": (
        ("a/1.png", "b/1.png", "b/2.png"), {"l.csv": table(rows=[("1", "x"), ("2", "y")])}, PLAIN,
        "1 rows whose file is ambiguous: .*may be 'a/1.png', 'b/1.png'",
    ),
    "paths below two folders": (
        BELOW, {"images/l.csv": table(rows=[("images/1.png", "x"), ("images/2.png", "y")])}, PLAIN,
        "names other images below the table's folder",
    ),
    "a numbered split": (("train/1.png", "test1/2.png"), {}, {}, "'test1' beside 'train'; name splits train"),
    "a sheet": (("images/1.png",), {"l.xlsx": b"PK"}, {}, "save 'l.xlsx' as CSV if it holds the labels"),
}  # fmt: skip
ROWS_REFUSED = [
    (ROWS[:2], r"1 of 3 images have no row in 'labels\.csv' .*: 'images/3\.png'; add rows"),
    ((*ROWS, ("4.png", "cat"), ("5.png", "cat")), "2 rows whose file does not exist: .* line 5: '4.png'"),
    ((("1.JPG", "cat"), *ROWS[1:]), "1 rows whose file has another ending: .* '1.JPG' for 'images/1.png'"),
    ([(f"{name[0]}.jpg", kind) for name, kind in ROWS],
     "labels.csv: 3 rows name files with another ending: '1.jpg' for 'images/1.png'; correct the endings"),
    ([(f"/data/upload/1/0af3-{name}", kind) for name, kind in ROWS],
     r"no column names most .*: a row is \['/data/upload/1/0af3-3.png', 'cat'\], an image 'images/1.png'"),
    ((*ROWS, ("1.png", "dog")), "1 images with several labels, .*'images/1.png' is 'dog' and 'cat'"),
    ((*ROWS, ("", "cat")), "1 rows without a file: labels.csv line 5"),
    ((*ROWS, ("1.png",)), "1 rows without 2 columns: labels.csv line 5"),
    ((*ROWS, ("../1.png", "cat")), "1 rows whose file does not exist: .* line 5"),
    ([(name, "cat") for name, _ in ROWS], "images of one class, 'cat'"),
]  # fmt: skip
REFUSED |= {f"rows {n}": (IMAGES, {"labels.csv": table(rows=rows)}, {}, said)
            for n, (rows, said) in enumerate(ROWS_REFUSED)}  # fmt: skip


@pytest.mark.parametrize(("names", "contents", "columns", "message"), REFUSED.values(), ids=REFUSED)
def test_what_gives_no_label_or_split_is_refused_with_its_rows_and_what_to_do(
    read, names, contents, columns, message
):
    with pytest.raises(DataError, match=f"(?s){message}"):
        read(names, contents, **columns)


def test_a_column_of_splits_is_used_or_stops_the_run(read):
    rows = [(*row, split) for row, split in zip(ROWS, ("train", "train", "test"), strict=True)]
    text = table(("file", "label", "Usage"), rows)
    message = r"(?s)has splits in 'Usage', which nothing uses.*\"split\": \"Usage\""
    with pytest.raises(DataError, match=message) as raised:
        read(IMAGES, {"labels.csv": text})
    assert "move it away" in str(raised.value)
    assert labels(read(IMAGES, {"labels.csv": text}, **PLAIN, split="Usage"), "test") == {"images/3.png": "cat"}
    assert set(read(IMAGES, {"labels.csv": text}, **PLAIN).splits) == {"train"}  # said so


@pytest.mark.parametrize(
    "name",
    ["credits.csv", "notes.txt", "more.json", "meta/more.csv", "labels.tsv", "list.lst", "metadata.jsonl"],
)
def test_a_table_of_something_else_beside_class_folders_is_named_as_not_used(read, name, caplog):
    caplog.set_level("INFO")
    rows = [("1.png", "CC0", "0"), ("2.png", "BY", "1"), ("3.png", "BY", "0")]
    texts = {
        "json": json.dumps([dict(zip(("file", "license", "blurry"), row, strict=True)) for row in rows]),
        "jsonl": lines(("file", "license"), [row[:2] for row in rows]),
    }
    text = texts.get(name.rpartition(".")[2], table(("file", "license", "blurry"), rows))
    source = read(("cat/1.png", "dog/2.png", "cat/3.png"), {name: text})
    assert labels(source) == {"cat/1.png": "cat", "dog/2.png": "dog", "cat/3.png": "cat"}
    assert source.columns == ()
    assert f"not used: '{name}'; the class folders give the labels" in caplog.text


PAIRS = [(f"{kind}/{number}.png", kind) for kind in ("cat", "dog") for number in range(20)]


@pytest.mark.parametrize("names", [("cat", "dog"), ("0", "1")], ids=["names", "ids"])
@pytest.mark.parametrize("named", [{}, {"file": "image", "label": "kind"}], ids=["beside", "named"])
def test_a_table_that_contradicts_class_folders_is_refused_with_rows(read, names, named):
    of = dict(zip(("cat", "dog"), names, strict=True))
    rows = [(name, of["dog" if name == "cat/7.png" else kind], "x") for name, kind in PAIRS]
    message = rf"contradicts the class folders in 1 of 40 rows: .*line 9: '{of['dog']}'"
    with pytest.raises(DataError, match=message):
        read([name for name, _ in PAIRS], {"l.csv": table(("image", "kind", "site"), rows)}, **named)


def test_predictions_beside_class_folders_are_not_used_and_may_err(read, caplog):
    caplog.set_level("INFO")
    rows = [
        (f"/home/me/own/{name}", "1", "dog" if name == "cat/7.png" else kind, "0", "0.93")
        for name, kind in PAIRS
    ]
    text = table(("file", "rank", "class", "index", "probability"), rows)
    assert read([name for name, _ in PAIRS], {"predictions.csv": text}).classes == ("cat", "dog")
    assert "not used: 'predictions.csv'" in caplog.text


def test_class_folders_and_a_plain_table_with_other_labels_are_two_answers(read):
    names, text = ("site a/1.png", "site b/2.png", "site b/3.png"), table()
    message = r"(?s)the class folders and 'labels.csv' give different labels; .*\"split\": null"
    with pytest.raises(DataError, match=message):
        read(names, {"labels.csv": text})
    assert read(names, {"labels.csv": text}, **PLAIN).classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("is_valid", {"True": "validation", "False": "train"}),
        ("is_test", {1: "test", 0: "train"}),
        ("usage", {"PublicTest": "validation", "Training": "train"}),
    ],
)
def test_values_of_a_column_mean_the_splits_that_are_stated(read, name, words):
    (held_out, split), (other, _) = words.items()
    rows = [(*row, str(held_out if row[0] == "3.png" else other)) for row in ROWS]
    text = table(("file", "label", name), rows)
    source = read(IMAGES, {"labels.csv": text}, **PLAIN, split={name: words})
    assert labels(source, split) == {"images/3.png": "cat"}


@pytest.mark.parametrize(
    "several",
    ['["cat"]', '["cat", "dog"]', "['cat', 'dog']", '{"choices": ["cat", "dog"]}', "cat|dog", "cat/dog",
     "cat, dog", "cat;dog", "cat dog", "cat+dog", "cat & dog", "cat and dog", "cat|tail", "tail;dog"],
)  # fmt: skip
def test_several_labels_of_an_image_are_refused_by_that_word(read, several):
    rows = [("1.png", "cat"), ("2.png", "dog"), ("3.png", several)]
    with pytest.raises(DataError, match="several labels"):
        read(IMAGES, {"l.jsonl": lines(PLAIN, rows)})


@pytest.mark.parametrize(
    "cell", ["nan", "None", "NA", "#N/A", "?", "-", "null", "", "n/a", "#REF!", "unlabeled"]
)
def test_a_cell_that_says_no_label_leaves_its_image_out_with_a_count(read, cell, caplog):
    caplog.set_level("INFO")
    rows = [*ROWS, ("4.png", cell), ("5.png", cell)]
    source = read([*IMAGES, "images/4.png", "images/5.png"], {"labels.csv": table(rows=rows)})
    assert labels(source) == EXPECTED
    assert f"left out 2 unlabelled images, by their cells: {cell!r} 2" in caplog.text


def test_a_class_that_is_called_none_is_kept_where_it_is_stated(read):
    rows = [("1.png", "none"), ("2.png", "dog"), ("3.png", "x")]
    source = read(IMAGES, {"labels.csv": table(rows=rows)}, **PLAIN, unlabelled=["x"])
    assert labels(source) == {"images/1.png": "none", "images/2.png": "dog"}


@pytest.mark.parametrize(
    ("one", "other"),
    [("0", "0.0"), ("01", "1"), ("True", "TRUE"), ("red fox", "red  fox"), ("red fox", "red\u00a0fox"),
     ("1,5", "1.50"), ("caf\u00e9", "cafe\u0301"), ("dog", "dog\u200b"), ("dog", "Dog"), ("dog", "dog (1)"),
     ("dog", "dog - Copy"), ("dog", "dog copy 2"), ("dog", "dog."), ("dog", "\uff44og"),
     ("x-ray", "x\u2013ray"), ("cat's", "cat\u2019s"), ("cat", "c\u0430t")],
)  # fmt: skip
def test_labels_that_differ_in_form_alone_are_one_class_or_two(read, one, other):
    rows = [("1.png", f'"{one}"'), ("2.png", f'"{other}"'), ("3.png", "bird")]
    message = r"one class or two\? .* \(1 images\) and .* \(1 images\) differ only in"
    with pytest.raises(DataError, match=message):
        read(IMAGES, {"labels.csv": table(rows=rows)})


@pytest.mark.parametrize(
    "names", [("A", "a", "b"), ("model (1)", "model (2)", "b"), ("red car", "blue car", "red bus")]
)
def test_letters_in_either_case_numbered_names_and_shared_words_are_classes(read, names):
    rows = [(f"{number}.png", name) for number, name in enumerate(names, 1)]
    assert set(read(IMAGES, {"labels.csv": table(rows=rows)}).classes) == set(names)


def test_numbers_are_classes_in_their_order_and_a_list_that_is_named_names_them(read):
    rows = [("1.png", "10"), ("2.png", "2"), ("3.png", "2")]
    names = "".join(f"{number}:class {number}\n" for number in range(11))
    contents = {"labels.csv": table(rows=rows), "classes.txt": names}
    message = r'(?s)are numbers, and \'classes.txt\' names .*"classes": "classes.txt"'
    with pytest.raises(DataError, match=message):
        read(IMAGES, contents)
    assert read(IMAGES, contents, **PLAIN).classes == ("2", "10")
    assert read(IMAGES, contents, **PLAIN, classes="classes.txt").classes == ("class 2", "class 10")


def test_further_columns_are_kept_with_the_examples_and_named(read, caplog):
    caplog.set_level("INFO")
    rows = [(*row, f"site {row[0]}", "7") for row in ROWS]
    source = read(IMAGES, {"labels.csv": table(("file", "label", "site", "age"), rows)})
    part = source.splits["train"]
    assert source.columns == ("site", "age")
    assert dict(zip(part.names, part.further, strict=True))["images/2.png"] == ("site 2.png", "7")
    assert "columns that give no label: 'site', 'age'" in caplog.text


def test_what_a_table_calls_classes_in_another_unicode_form_does_not_contradict_their_folders(read, caplog):
    caplog.set_level("INFO")
    names = [
        unicodedata.normalize("NFD", name) for name in ("K\u00e4se/1.png", "K\u00e4se/2.png", "Brot/3.png")
    ]
    rows = [(name, name.partition("/")[0]) for name in (unicodedata.normalize("NFC", each) for each in names)]
    assert set(labels(read(names, {"labels.csv": table(rows=rows)}))) == set(names)
    assert "not used: 'labels.csv'" in caplog.text


def test_folders_of_images_beside_a_table_are_no_classes(read):
    names, text = ["part_2/1.png", "images/2.png", "images/3.png"], table(("file", "dx"))
    with pytest.raises(DataError, match=r'(?s)no class folders, .*"file": "file", "label": "dx"'):
        read(names, {"labels.csv": text})
    assert set(read(names, {"labels.csv": text}, file="file", label="dx").classes) == {"cat", "dog"}


def test_columns_without_a_name_or_with_the_same_are_kept_apart(read):
    header = ("", "file", "label", "x", "x")
    source = read(IMAGES, {"labels.csv": table(header, [("0", *row, "1", "2") for row in ROWS])})
    assert source.columns == ("column 1", "x", "x column 5")


@pytest.mark.parametrize("forms", [("NFD", "NFC"), ("NFC", "NFD")])
def test_a_name_in_another_unicode_form_is_the_same_file(read, forms):
    file, value = (unicodedata.normalize(form, "é.png") for form in forms)
    source = read(
        [f"images/{file}", "images/2.png"], {"labels.csv": table(rows=[(value, "x"), ("2.png", "y")])}
    )
    assert labels(source) == {f"images/{file}": "x", "images/2.png": "y"}


def test_a_name_in_the_same_case_is_preferred(tmp_path):
    images = {name: archives.Member(name, 0, 1) for name in ("a/1.PNG", "b/1.png")}
    assert Images(images).named(["1.png"], "labels.csv").files == [["b/1.png"]]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.csv", "a," * 20_000),
        ("labels.csv", "a,b\n" * 30),
        ("labels.jsonl", "".join(f'{{"{number}": 1}}\n' for number in range(20_000))),
        ("labels.jsonl", '{"a": 1, "b": 2}\n' + "{}\n" * 30),
    ],
    ids=["columns", "values", "keys", "objects without most keys"],
)
def test_a_table_takes_no_memory_out_of_proportion(monkeypatch, name, text):
    monkeypatch.setattr(tables, "MOST_VALUES", 50)
    member = archives.Member(name, 0, len(text))
    with pytest.raises(DataError, match="so it is no table of labels"):
        tables.read(name, member, lambda _: text.encode())


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1.png,cat,test,ann\n2.png,dog,train,bob\n3.png,cat,train,ann\n",
         r"1 groups in two splits: .*line 4: 'images/3.png' of 'ann' is for train, .*line 2 for test"),
        ("1.png,cat,train,ann\n2.png,dog,train,\n3.png,cat,test,\n1.png,cat,train,bob\n",
         "1 images in two groups: .*line 5: 'images/1.png'"),
        ("1.png,cat,train,ann\n2.png,dog,train,\n", r"images have no row .* in 'split', 1 groups in 'owner'\)"),
        ("1.png,cat,test,nan\n2.png,dog,train,\n3.png,cat,train,N/A\n",
         r"2 groups that may be a word for none; .*line 2: 'nan', labels\.csv line 4: 'N/A'"),
    ],
)  # fmt: skip
def test_images_of_a_group_must_be_in_one_split(read, rows, message):
    columns = {"file": "file", "label": "label", "split": "split", "group": "owner"}
    with pytest.raises(DataError, match=message):
        read(IMAGES, {"labels.csv": "file,label,split,owner\n" + rows}, **columns)


def test_a_column_of_groups_is_one_of_the_further_columns_and_must_exist(read):
    text = "\n".join(f"{name},{label},ann" for name, label in ROWS)
    assert read(IMAGES, {"labels.csv": text}, **BARE, group=3).columns == ("column 3",)
    with pytest.raises(DataError, match=r"no columns 'owner', which dataset\.table names"):
        read((), {"labels.csv": table()}, **PLAIN, group="owner")
