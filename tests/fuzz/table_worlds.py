"""Random folders of images with tables, as people have them, and what their owners mean.

The generator knows nothing of the rules of perennial: it writes a table from the truth, and what surrounds it.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import PIL.Image
from support.odd_images import saved
from support.raw import write_files

Truth = dict[str, tuple[str, str | None]]  # class and split (none: not said) of each image with a label

CLASSES = (
    ("cat", "dog"), ("red fox", "grey wolf", "lynx"), ("0", "1", "2"), ("Ca", "ca"), ("A+", "B-"),
    ("yes", "no"),
    ("café", "thé", "eau"), ("benign", "malignant"), ("1. oak", "2. ash"), ("n01440764", "n01443537"),
    ("red car", "blue car", "red bus"), ("True", "False"), ("3", "7", "10"), ("猫", "犬"), ("not a cat", "cat"),
)  # fmt: skip
FILE_HEADERS = (
    "file", "filename", "image", "Image ID", "path", "img", "photo", "fichier", "bild", "x", "name", "id",
    "key",
)  # fmt: skip
LABEL_HEADERS = (
    "label", "class", "species", "Category", "target", "dx", "gt", "y", "Klasse", "kind", "Finding Labels",
)  # fmt: skip
SPLIT_HEADERS = (
    "split", "set", "dataset", "phase", "Usage", "ml_use", "data_split", "purpose", "fold", "bucket",
)  # fmt: skip
SPLITS = (
    ("train", "val", "test"), ("Training", "Validation", "Test"), ("TRAIN", "VALID", "TEST"),
    ("train", "dev", "test"),
)  # fmt: skip
CODES = (("0", "1", "2"), ("a", "b", "c"), ("Training", "PublicTest", "PrivateTest"))
FLAGS = (("is_valid", 1), ("is_validation_set", 1), ("is_test", 2), ("Is Test", 2))
UNLABELLED = ("nan", "None", "NA", "#N/A", "?", "", "NULL")


@dataclass
class World:
    """A folder, and what its owner means."""

    images: list[str]
    truth: Truth
    files: dict[str, bytes] = field(default_factory=dict)
    meaningful: bool = True  # whether a person could read it without a question

    def write(self, folder: Path, image: Callable[[int], bytes]) -> None:
        write_files(folder, {name: image(number) for number, name in enumerate(self.images)} | self.files)


@dataclass
class Table:
    """The columns of a table, in order."""

    columns: list[tuple[str, list[str]]] = field(default_factory=list)

    def add(self, name: str, values: Sequence[str]) -> None:
        """Add a column, under another name where it is taken."""
        names = {each for each, _ in self.columns}
        self.columns.append((name if name not in names else f"{name}_{len(names)}", list(values)))


def _names(draw: random.Random, count: int) -> list[str]:
    numbers = list(range(1, count + 1))
    ending = draw.choice((".png", ".jpg", ".JPG", ".jpeg"))
    form: Callable[[int], str] = draw.choice((
        str, "img_{:04}".format, "IMG {}".format, "photo-{:03}".format, "{:08x}".format, "é{}".format,
        "a.b.{}".format,
    ))  # fmt: skip
    return [form(number) + ending for number in numbers]


def _places(draw: random.Random, names: list[str], splits: list[str | None]) -> tuple[list[str], str]:
    """Paths of images, and the way they lie."""
    way = draw.choice(("flat", "images", "nested", "shards", "by split"))
    if way == "by split" and None in splits:
        way = "flat"
    folders = {
        "flat": lambda _: "", "images": lambda _: "images/", "nested": lambda _: "data/images/",
        "shards": lambda n: f"part_{n % 3}/", "by split": lambda n: f"{splits[n]}/",
    }  # fmt: skip
    return [folders[way](number) + name for number, name in enumerate(names)], way


def world(seed: int) -> World:
    """A table without class folders that a person could read, by a seed."""
    draw = random.Random(seed)
    count, classes = draw.randint(14, 40), draw.choice(CLASSES)
    labels = [*classes, *classes, *(draw.choice(classes) for _ in range(count - 2 * len(classes)))]
    draw.shuffle(labels)
    way_of_split = draw.choice(("none", "none", "column", "column", "flag", "codes", "tables", "folders"))
    splits: list[str | None] = [None] * count
    if way_of_split != "none":
        words = ["train"] * 3 + (["validation", "test"] if way_of_split not in {"flag", "tables"} else ["test"])
        splits = [words[number % len(words)] for number in range(count)]
        for each in classes:  # each class is in the train split
            splits[labels.index(each)] = "train"
    names = _names(draw, count)
    images, way = _places(draw, names, splits if way_of_split == "folders" else [None] * count)
    if way_of_split == "folders" and way != "by split":
        splits = [None] * count
    truth: Truth = {image: (label, split) for image, label, split in zip(images, labels, splits, strict=True)}
    found = World(images, truth)
    rows = list(range(count))
    draw.shuffle(rows)
    unlabelled = draw.sample(rows, draw.randint(1, 3)) if draw.random() < 0.25 else []
    unlabelled = [row for row in unlabelled if labels.count(labels[row]) > 2]
    cells = [draw.choice(UNLABELLED) if row in unlabelled else labels[row] for row in range(count)]
    for row in unlabelled:
        labels[row] = ""
        truth.pop(images[row])
    found.meaningful = set(classes) <= set(labels)
    table = Table()
    exact = draw.random() < 0.3
    table.add("file" if exact else draw.choice(FILE_HEADERS), _references(draw, images, way))
    _add_labels(draw, table, cells, classes, found, exact=exact and not unlabelled)
    _add_splits(draw, table, splits, way_of_split, found)
    _add_extras(draw, table, images, found)
    if not exact or draw.random() < 0.5:
        draw.shuffle(table.columns)
    _write(draw, table, rows, found, splits if way_of_split == "tables" else None)
    return found


def _references(draw: random.Random, images: list[str], way: str) -> list[str]:
    """How a table names images."""
    names = [image.rpartition("/")[2] for image in images]
    forms: list[Callable[[str, str], str]] = [
        lambda image, name: image, lambda image, name: name, lambda image, name: name.rpartition(".")[0],
        lambda image, name: f"./{image}", lambda image, name: f"/home/me/set 1/{image}",
        lambda image, name: f"C:\\Users\\me\\{image}".replace("/", "\\"), lambda image, name: f"gs://bucket/a/{image}",
        lambda image, name: f"https://example.org/{name}", lambda image, name: image.upper(),
    ]  # fmt: skip
    form = draw.choice(forms)
    return [form(image, name) for image, name in zip(images, names, strict=True)]


def _add_labels(
    draw: random.Random, table: Table, cells: list[str], classes: Sequence[str], found: World, *, exact: bool
) -> None:
    header = "label" if exact else draw.choice(LABEL_HEADERS)
    forms = ("text", "text", "text", "one-hot", "ids and names", "ids")
    form = "text" if exact or "" in cells else draw.choice(forms)
    unlabelled = [cell not in classes for cell in cells]
    if form == "one-hot" and not any(unlabelled):
        for name in classes:
            table.add(name, [str(int(cell == name)) for cell in cells])
    elif form == "ids" and not any(unlabelled):
        ids = {name: str(number) for number, name in enumerate(classes)}
        table.add(header, [ids[cell] for cell in cells])
        if draw.random() < 0.5:
            found.files["classes.txt"] = "".join(f"{number}:{name}\n" for name, number in ids.items()).encode()
        else:
            for image, (label, split) in found.truth.items():
                found.truth[image] = ids[label], split
    else:
        table.add(header, cells)
        if form == "ids and names":
            table.add(f"{header}_id", [str(classes.index(cell)) if cell in classes else "" for cell in cells])


def _add_splits(draw: random.Random, table: Table, splits: list[str | None], way: str, found: World) -> None:
    order = ("train", "validation", "test")
    if way in {"column", "codes"}:
        words = dict(zip(order, draw.choice(SPLITS if way == "column" else CODES), strict=True))
        header = draw.choice(SPLIT_HEADERS if way == "column" else ("split", "subset", "Usage", "phase"))
        table.add(header, [words[split or ""] for split in splits])
        found.meaningful &= way == "column"
    elif way == "flag":
        header, place = draw.choice(FLAGS)
        yes, no = draw.choice((("1", "0"), ("True", "False"), ("yes", "no")))
        table.add(header, [yes if split != "train" else no for split in splits])
        for image, (label, split) in found.truth.items():
            found.truth[image] = label, order[place] if split != "train" else "train"


def _add_extras(draw: random.Random, table: Table, images: list[str], found: World) -> None:
    """Columns that are neither files nor labels nor splits, though some look like them."""
    count = len(images)
    extras: dict[str, Callable[[], list[str]]] = {
        "": lambda: [str(number) for number in range(count)],
        "row": lambda: [str(number + 1) for number in range(count)],
        "age": lambda: [str(draw.randint(20, 60)) for _ in range(count)],
        "site": lambda: [draw.choice(("north", "south")) for _ in range(count)],
        "license": lambda: [draw.choice(("CC0", "BY")) for _ in range(count)],
        "score": lambda: [f"{draw.random():.3f}" for _ in range(count)],
        "taken": lambda: [f"2024-05-{draw.randint(1, 28):02}" for _ in range(count)],
        "blurry": lambda: [str(draw.randint(0, 1)) for _ in range(count)],
        "note": lambda: [f"note {number}, with a comma" for number in range(count)],
        "sha": lambda: [f"{draw.getrandbits(128):032x}" for _ in range(count)],
        "empty": lambda: [""] * count,
        "url": lambda: [f"https://example.org/{image}" for image in images],
        "similar_to": lambda: [images[(number + 1) % count] for number in range(count)],
        "old_name": lambda: draw.sample([image.rpartition("/")[2] for image in images], count),
        "old_id": lambda: draw.sample([str(number + 1) for number in range(count)], count),
    }
    for name in draw.sample(sorted(extras), draw.choice((0, 0, 0, 1, 1, 2, 3))):
        table.add(name, extras[name]())
        if name in {"similar_to", "old_name", "old_id", "row", ""}:
            found.meaningful = False  # a person would ask
        if name in {"site", "license", "blurry", "age", "taken"} and not any(
            header.casefold() in {"label", "class", "species", "category", "target"}
            for header, _ in table.columns
        ):
            found.meaningful = False  # two columns may be labels


def _write(
    draw: random.Random, table: Table, rows: Sequence[int], found: World, splits: Sequence[str | None] | None
) -> None:
    """Write the rows in one of the forms of spreadsheets and programs."""
    apart = any(image.startswith("part_") for image in found.images) and draw.random() < 0.3
    place = "annotations/" if apart else ""
    name, form = draw.choice(("labels", "meta", "data", "index")), draw.choice(("csv",) * 6 + ("jsonl", "json"))
    if splits is None:
        found.files[f"{place}{name}.{form}"] = _text(draw, table, rows, form, found, header=draw.random() < 0.9)
        return
    state = draw.getstate()
    for split, word in (("train", "train"), ("test", "test")):
        draw.setstate(state)  # both in one form
        part = [row for row in rows if splits[row] == split]
        found.files[f"{word}.{form}"] = _text(draw, table, part, form, found, header=True)


def _text(
    draw: random.Random, table: Table, rows: Sequence[int], form: str, found: World, *, header: bool
) -> bytes:
    names = [name for name, _ in table.columns]
    body = [[values[row] for _, values in table.columns] for row in rows]
    if form != "csv":
        objects = [dict(zip(names, row, strict=True)) for row in body]
        text = json.dumps(objects) if form == "json" else "".join(json.dumps(each) + "\n" for each in objects)
        return text.encode()
    if not header and len(names) > 3:
        header = True
    found.meaningful &= header or len(names) == 2
    delimiter, end = draw.choice(",,,;\t|"), draw.choice(("\n", "\n", "\r\n", "\r"))
    always = draw.random() < 0.3

    def quoted(value: str) -> str:
        needed = always or any(mark in value for mark in ',;\t|"\n') or value != value.strip()
        return '"' + value.replace('"', '""') + '"' if needed else value

    lines = [delimiter.join(map(quoted, row)) for row in ([names, *body] if header else body)]
    first = f"sep={delimiter}{end}" if draw.random() < 0.05 else ""
    encoding = draw.choice(("utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16"))
    return (first + end.join(lines) + end).encode(encoding)


def picture(number: int) -> bytes:
    """An image that no other has."""
    return saved(PIL.Image.new("RGB", (8, 8), (number % 256, number // 256, 7)), "PNG")


def meant(found: Mapping[str, tuple[str, str]], truth: Truth) -> bool:
    """Whether what was read is the truth; where it says no splits, all images are for training."""
    return {name: (label, split or "train") for name, (label, split) in truth.items()} == dict(found)
