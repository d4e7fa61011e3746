"""Tables of labels beside images: what is read, and what is refused with the number of rows."""

import io
import json
import unicodedata

import PIL.Image
import pytest

from perennial.base.errors import DataError
from perennial.data import archives
from perennial.data.datasets.own import label_table, table_rows
from perennial.data.datasets.readers import class_folders


@pytest.fixture
def read(tmp_path):
    """What is read from files: the images of these names, and the contents of others."""

    def of(names, contents):
        for number, name in enumerate(names):
            (file := tmp_path / "own" / name).parent.mkdir(parents=True, exist_ok=True)
            stream = io.BytesIO()
            PIL.Image.new("L", (3, 3), number).save(stream, "PNG")
            file.write_bytes(stream.getvalue())
        for name, content in contents.items():
            (file := tmp_path / "own" / name).parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        archives.pack(tmp_path / "own", tmp_path / "images.tar")
        return class_folders.read(tmp_path / "images.tar")

    return of


def labels(source, split="train"):
    part = source.splits[split]
    return {name: source.classes[label] for name, label in zip(part.names, part.labels.tolist(), strict=True)}


IMAGES = ("images/1.png", "images/2.png", "images/3.png")
EXPECTED = {"images/1.png": "cat", "images/2.png": "dog", "images/3.png": "cat"}
ROWS = (("1.png", "cat"), ("2.png", "dog"), ("3.png", "cat"))


def table(header=("file", "label"), rows=ROWS, delimiter=",", end="\n"):
    return "".join(delimiter.join(row) + end for row in ((header, *rows) if header else rows))


TABLES = {
    "plain": table(),
    "other names": table(("Image ID", "Class Name")),
    "a byte order mark": "\ufeff" + table(),
    "UTF-16": table().encode("utf-16"),
    "semicolons": table(delimiter=";"),
    "tabs": table(delimiter="\t"),
    "CR LF, blanks and empty lines": table(end=" \r\n") + "\r\n,\r\n",
    "CR": table(end="\r"),
    "no header": table(None),
    "quotes": '"file","label"\n"1.png","cat"\n"2.png", "dog"\n3.png,cat\n',
    "the label first": table(("label", "filename"), [row[::-1] for row in ROWS]),
    "without endings": table(rows=[(name.removesuffix(".png"), label) for name, label in ROWS]),
    "with folders": table(rows=[(f"images/{name}", label) for name, label in ROWS]),
    "in other case": table(rows=[(name.upper(), label) for name, label in ROWS]),
    "with Excel's line": "sep=;\r\n" + table(delimiter=";", end="\r\n"),
    "with a long text": table(("file", "label", "text"), [(*row, "x" * 200_000) for row in ROWS]),
    "of Windows": table(rows=[(f".\\images\\{name}", label) for name, label in ROWS]),
    "two columns, one unknown": table(("file", "dx")),
    "rows twice": table(rows=ROWS * 2),
    "below a folder elsewhere": table(rows=[(f"/home/me/data/{name}", label) for name, label in ROWS]),
    "below a folder of Windows": table(rows=[(f"C:\\me\\images\\{name}", label) for name, label in ROWS]),
    "below another folder": table(rows=[(f"set/images/{name}", label) for name, label in ROWS]),
    "of spreadsheets of hospitals": table(("Image Index", "Diagnosis")),
    "of Label Studio": table(
        ("image", "id", "choice", "annotator"),
        [(f"/data/upload/1/{name}", str(row), label, "1") for row, (name, label) in enumerate(ROWS)],
    ),
    "of Vertex AI, without splits": table(
        None, [("UNASSIGNED", f"gs://bucket/flowers/images/{name}", label) for name, label in ROWS]
    ),
    "file names under any name": table(("x", "photograph", "label"), [("7", *row) for row in ROWS]),
    "a column for each class": table(
        ("id", "cat", "dog"), [("1", "1", "0"), ("2", "0.0", "1.0"), ("3", "1", "0")]
    ),
}


@pytest.mark.parametrize("text", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("around", ["", "top/"])
def test_a_table_beside_the_folder_of_images_gives_the_labels(read, text, around):
    source = read([around + name for name in IMAGES], {f"{around}labels.csv": text})
    assert labels(source) == EXPECTED
    assert source.classes == ("cat", "dog")


BOX = "0 .5 .5 1 1"
PETS = ("a_dog_1.png", "a_dog_2.png", "Cat-1.png", "Cat-2.png")
LISTS = {
    "lines.txt": table(None, delimiter=" "),
    "names.txt": table(None, [(f"images/{name}", label) for name, label in ROWS], delimiter="\t"),
    "labels.txt": table(None, delimiter=" "),
    "commas.txt": table(),
    "labels.json": json.dumps(dict(ROWS)),
    "objects.json": json.dumps([{"file": name, "label": label} for name, label in ROWS]),
    "metadata.jsonl": "".join(json.dumps({"file_name": name, "label": label}) + "\n" for name, label in ROWS),
    "labels.JSON": json.dumps({"classes": ["cat", "dog"], "labels": {"1": 0, "2": 1, "3": 0}}),
    "list.lst": table(None, [(name[0], label, f"images/{name}") for name, label in ROWS], "\t"),
    "images/metadata.csv": table(("file_name", "label")),
    "images/metadata.jsonl": "".join(
        json.dumps({"label": label, "file_name": name}) + "\r\n" for name, label in ROWS
    ),
}


@pytest.mark.parametrize("place", LISTS)
def test_lists_of_other_programs_give_the_labels(read, place):
    source = read(IMAGES, {place: LISTS[place]})
    assert (labels(source), source.columns) == (EXPECTED, ("column 1",) if place == "list.lst" else ())


def test_a_table_for_vertex_ai_gives_labels_and_splits(read):
    sets = ("TRAINING", "TRAINING", "VALIDATION")
    rows = [(part, f"gs://bucket/images/{name}", label) for part, (name, label) in zip(sets, ROWS, strict=True)]
    source = read(IMAGES, {"data.csv": table(None, rows)})
    assert labels(source) == dict(list(EXPECTED.items())[:2])
    assert labels(source, "validation") == {"images/3.png": "cat"}


def test_three_columns_that_mean_nothing_known_are_refused(read):
    with pytest.raises(DataError, match="a table of labels needs a header with file and label"):
        read(IMAGES, {"data.csv": table(None, [("x", *row) for row in ROWS])})


def test_lists_of_splits_beside_class_folders_give_the_splits(read):
    names = [f"{kind}/{number}{kind[0]}.png" for kind in ("cat", "dog") for number in range(3)]
    lines = [f"top/{name} {int(name.startswith('dog'))}\n" for name in names]
    lists = {"real_train.txt": "".join(lines[:2] + lines[3:5]), "real_test.txt": lines[2] + lines[5]}
    source = read(names, lists)
    assert source.classes == ("cat", "dog")
    assert labels(source, "test") == {"cat/2c.png": "cat", "dog/2d.png": "dog"}
    assert len(labels(source)) == 4


def test_lists_of_splits_with_ids_take_the_names_of_a_list_of_classes(read):
    names = ("train/1.png", "train/2.png", "val/1.png", "val/2.png")
    lines = "1.png 0\n2.png 1\n"
    source = read(names, {"train.txt": lines, "val.txt": lines, "classes.txt": "cat\ndog\n"})
    assert {split: set(labels(source, split).values()) for split in source.splits} == {
        "train": {"cat", "dog"},
        "validation": {"cat", "dog"},
    }


def test_a_list_of_classes_with_ids_is_no_table_of_images_with_such_names(read):
    rows = [("1.png", "1"), ("2.png", "2"), ("3.png", "1")]
    source = read(IMAGES, {"labels.csv": table(rows=rows), "labels.txt": "1 cat\n2 dog\n"})
    assert labels(source) == EXPECTED


def test_lists_of_something_else_beside_class_folders_are_left_out(read, caplog):
    lists = {
        "meta/train.txt": "cat/1\n",
        "meta/test.json": "{}",
        "images.txt": "1 cat/1.png\n2 dog/2.png\n3 cat/3.png\n",
    }
    source = read(("images/cat/1.png", "images/dog/2.png", "images/cat/3.png"), lists)
    assert labels(source) == {"cat/1.png": "cat", "dog/2.png": "dog", "cat/3.png": "cat"}
    assert "images.txt has other labels" in caplog.text


@pytest.mark.parametrize(
    "flag", [("is_valid", "True", "False"), ("is_test", "1", "0"), ("is_train", "no", "yes")]
)
def test_a_column_of_yes_and_no_gives_the_split(read, flag):
    name, held_out, other = flag
    rows = [(*row, held_out if row[0] == "3.png" else other) for row in ROWS]
    source = read(IMAGES, {"labels.csv": table(("file", "label", name), rows)})
    (split,) = source.splits.keys() - {"train"}
    assert labels(source, split) == {"images/3.png": "cat"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,cat,dog\n1,1,1\n2,0,1\n3,1,0\n", "1 rows have a 1 in several columns of classes, such as line 2"),
        ("id,cat,dog\n1,0,0\n2,0,1\n3,1,0\n", "1 rows without a label: labels.csv line 2"),
        ("id,cat,dog\n1,.5,.5\n2,0,1\n3,1,0\n", "a column of 0 and 1 for each class"),
        ("id,label\n1,cat|dog\n2,dog\n3,cat\n", r"1 labels of several classes; an image has one: 'cat\|dog'"),
    ],
    ids=["two", "none", "probabilities", "in a text"],
)  # fmt: skip
def test_images_of_several_classes_or_none_are_refused(read, text, message):
    with pytest.raises(DataError, match=message):
        read(IMAGES, {"labels.csv": text})


@pytest.mark.parametrize(
    ("names", "contents", "message"),
    [
        (("images/train/1.png", "images/val/2.png"), {f"labels/train/{n}.txt": BOX for n in "12"}, "YOLO"),
        (("train/images/1.png", "valid/images/2.png"), {f"train/labels/{n}.txt": BOX for n in "12"}, "YOLO"),
        (("train/0.png", "train/1.png"), {f"train/{n}.txt": BOX for n in "01"}, "YOLO"),
        (("JPEGImages/1.png",), {"Annotations/1.xml": "<a/>"}, "object detection"),
        (("images/1.png",), {"all.json": '{"images": [], "annotations": []}'}, "objects, as in COCO"),
        (PETS, {}, "begin like 2 classes, 'Cat' to 'a_dog'; move the images"),
        ([f"train/{name}" for name in PETS], {}, "begin like 2 classes"),
        (("train/1.png", "test1/2.png"), {}, "'test1' beside 'train'; name splits train, training"),
        (("images/1.png",), {"labels.xlsx": b"PK"}, "save 'labels.xlsx' as CSV if it holds the labels"),
    ],
)  # fmt: skip
def test_what_gives_no_class_of_an_image_is_refused_with_the_way_to_write_it(read, names, contents, message):
    with pytest.raises(DataError, match=message):
        read(names, contents)


@pytest.mark.parametrize(
    ("names", "place"),
    [
        (("1.png", "2.png", "3.png"), "labels.csv"),
        (("a/1.png", "b/2.png", "b/3.png"), "labels.tsv"),
        (("images/1.png", "images/2.png", "images/3.png"), "images/labels.csv"),
        (("part_1/1.png", "part_1/2.png", "part_2/3.png"), "annotations/labels.csv"),
    ],
)
def test_a_table_is_found_beside_images_or_beside_their_folders(read, names, place):
    source = read(names, {place: table(delimiter="\t" if place.endswith("tsv") else ",")})
    assert labels(source) == dict(zip(names, ("cat", "dog", "cat"), strict=True))


def test_a_column_gives_the_split(read):
    rows = [
        (*row, split)
        for row, split in zip((*ROWS, ("4.png", "dog")), ("Train", "train", "val", "TEST"), strict=True)
    ]
    source = read([*IMAGES, "images/4.png"], {"labels.csv": table(("file", "label", "split"), rows)})
    assert {split: list(labels(source, split)) for split in ("validation", "test")} == {
        "validation": ["images/3.png"],
        "test": ["images/4.png"],
    }


def test_the_names_of_tables_or_folders_give_the_split(read):
    names = [f"{split}/{name}.png" for split in ("train", "test") for name in "12"]
    rows = [("1", "cat"), ("2", "dog")]
    source = read(
        names, {"train.csv": table(rows=rows), "test_labels.csv": table(rows=rows[::-1][:1] + rows[:1])}
    )
    assert labels(source) == {"train/1.png": "cat", "train/2.png": "dog"}
    assert labels(source, "test") == {"test/1.png": "cat", "test/2.png": "dog"}


def test_one_table_of_the_folders_of_splits_gives_their_labels(read):
    names = [f"{split}/{split}{name}.png" for split in ("train", "valid") for name in "12"]
    rows = [(name.partition("/")[2], "cd"[number % 2]) for number, name in enumerate(names)]
    source = read(names, {"labels.csv": table(rows=rows)})
    assert {split: len(labels(source, split)) for split in source.splits} == {"train": 2, "validation": 2}


def test_numbers_are_classes_in_their_order_and_a_list_beside_the_table_names_them(read):
    rows = [("1.png", "10"), ("2.png", "2"), ("3.png", "2")]
    assert read(IMAGES, {"labels.csv": table(rows=rows)}).classes == ("2", "10")
    names = "".join(f"{number}:class {number}\n" for number in range(11))
    assert read(IMAGES, {"classes.txt": names}).classes == ("class 2", "class 10")


def test_further_columns_are_kept_with_the_examples(read):
    rows = [(*row, f"site {row[0]}", "7") for row in ROWS]
    source = read(IMAGES, {"labels.csv": table(("file", "label", "site", "age"), rows)})
    part = source.splits["train"]
    assert source.columns == ("site", "age")
    assert dict(zip(part.names, part.further, strict=True))["images/2.png"] == ("site 2.png", "7")


def test_a_table_that_means_the_folders_leaves_their_names(read):
    names = ("cat/1.png", "dog/2.png", "cat/3.png")
    rows = [("1.png", "0", "north"), ("2.png", "1", "south")]
    source = read(names, {"labels.csv": table(("file", "label", "site"), rows)})
    assert labels(source) == {"cat/1.png": "cat", "dog/2.png": "dog", "cat/3.png": "cat"}
    assert set(source.splits["train"].further) == {("north",), ("south",), ("",)}


@pytest.mark.parametrize(
    "text", ["a,b\n1,2\n", "file,size,label\nx.png,1,a\n", "id,label\n1,a\n2,b\n3,c\n", b"caf\xe9"],
    ids=["other columns", "other files", "a submission", "another encoding"],
)  # fmt: skip
def test_a_table_of_something_else_beside_class_folders_is_left_out(read, text):
    place = "sample_submission.csv" if str(text).startswith("id") else "notes.csv"
    assert read(("cat/1.png", "dog/2.png", "cat/3.png"), {place: text}).classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROWS[:2], r"1 of 3 images have no row in 'labels\.csv' .*: 'images/3\.png'; add rows"),
        ((*ROWS, ("4.png", "cat"), ("5.png", "cat")), "2 rows whose file does not exist: .* line 5: '4.png'"),
        ((*ROWS, ("1.png", "dog")), "1 images with two labels: .*'images/1.png' is 'dog' and 'cat'"),
        ((*ROWS, ("1.png", " ")), "1 rows without a label: labels.csv line 5"),
        ((*ROWS, ("", "cat")), "1 rows without a file: labels.csv line 5"),
        ((*ROWS, ("1.png",)), "1 rows without 2 columns: labels.csv line 5"),
        ((*ROWS, ("/etc/1.png", "cat")), "1 rows whose file is not named below the folder: .*'/etc/1.png'"),
        ((*ROWS, ("../1.png", "cat")), "1 rows whose file is not named below the folder"),
        ((*ROWS, ("C:\\1.png", "cat")), "1 rows whose file is not named below the folder"),
        ([(name, "cat") for name, _ in ROWS], "images of one class, 'cat'"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_used_are_refused_with_their_number(read, rows, message):
    with pytest.raises(DataError, match=rf"(?s)images\.tar.*{message}"):
        read(IMAGES, {"labels.csv": table(rows=rows)})


@pytest.mark.parametrize("text", [table(("file", "dx", "site"), [(*row, "x") for row in ROWS]), b"caf\xe9"])
def test_folders_of_images_beside_a_table_that_gives_no_labels_are_refused(read, text):
    with pytest.raises(DataError, match=r"'images', 'part_2' are named like .* not like classes.*labels\.csv"):
        read(["part_2/1.png", *IMAGES], {"labels.csv": text})


def test_columns_without_a_name_or_with_the_same_are_kept_apart(read):
    header = ("", "file", "label", "x", "x")
    source = read(IMAGES, {"labels.csv": table(header, [("0", *row, "1", "2") for row in ROWS])})
    assert source.columns == ("column 1", "x", "x column 5")


def test_a_name_that_several_files_have_is_refused(read):
    with pytest.raises(DataError, match=r"1 rows whose file is ambiguous: .*may be 'a/1.png', 'b/1.png'"):
        read(("a/1.png", "b/1.png", "b/2.png"), {"labels.csv": table(rows=[("1", "x"), ("2", "y")])})


@pytest.mark.parametrize("forms", [("NFD", "NFC"), ("NFC", "NFD")])
def test_a_name_in_another_unicode_form_is_the_same_file(read, forms):
    file, value = (unicodedata.normalize(form, "é.png") for form in forms)
    source = read([f"images/{file}", "images/2.png"], {"labels.csv": table(rows=[(value, "x"), ("2", "y")])})
    assert labels(source) == {f"images/{file}": "x", "images/2.png": "y"}


def test_a_name_in_the_same_case_is_preferred(tmp_path):
    images = {name: archives.Member(name, 0, 1) for name in ("a/1.PNG", "b/1.png")}
    assert label_table.Images(images).of("1.png", "labels.csv", None) == ["b/1.png"]


def test_an_unknown_split_is_refused(read):
    rows = [(*row, "holdout") for row in ROWS]
    with pytest.raises(DataError, match=r"3 rows whose split is none of train, .* line 2: 'holdout'"):
        read(IMAGES, {"labels.csv": table(("file", "label", "split"), rows)})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (table().replace("cat", "café").encode("latin-1"), r"labels\.csv is not UTF-8: byte 0xe9 in line 2"),
        (table(("image_id", "age", "dx"), [("1", "5", "a")]), "columns 'image_id', 'age', 'dx'; a table"),
        (table(rows=[("a", "b")]), r"labels\.csv: none of the 1 files in it exists"),
        ("", r"labels\.csv is empty"),
        (table() + '"x', r"labels\.csv line 5 is not CSV|1 rows without 2 columns|does not exist"),
    ],
    ids=["encoding", "columns", "files", "empty", "an open quote"],
)  # fmt: skip
def test_a_table_that_gives_no_labels_is_named_where_they_are_missing(read, text, message):
    with pytest.raises(DataError, match=message):
        read(IMAGES, {"labels.csv": text})


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
    monkeypatch.setattr(table_rows, "MOST_VALUES", 50)
    member = archives.Member(name, 0, len(text))
    with pytest.raises(DataError, match="so it is no table of labels"):
        table_rows.read(name, member, lambda _: text.encode())
