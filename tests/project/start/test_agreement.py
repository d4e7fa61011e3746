"""`perennial start` accepts a folder or archive exactly if download and convert do, with the same result."""

import os
import shutil
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from support import raw

from perennial.base import config, documents, files
from perennial.base.choices import SPLITS
from perennial.base.config.data import DatasetConfig
from perennial.base.errors import DataError
from perennial.data.records import manifest
from perennial.project.start import survey
from perennial.stages.convert import convert
from perennial.stages.download import download
from perennial.stages.validate import validate

OWN, PARAMS = Path("own"), Path("params.yaml")
PHOTO = raw.encoded(raw.picture(1))
HEIC = b"\0\0\0\x18ftypheic" + bytes(20)
TINY = raw.encoded(raw.picture(2, 4))
CUT = raw.encoded(raw.picture(1, 200), "JPEG")[:1500] + b"\xff\xd9"


def tree(
    *folders: str, each: int = 4, ending: str = ".png", content: bytes | None = None, **texts: str
) -> Callable[[], None]:
    """Makes folders with images, and files with a text; `_` in their names stands for a dot."""

    def make() -> None:
        for number, folder in enumerate(folders):
            for image in range(each):
                name = f"{number}{image}{ending}"
                made = raw.encoded(raw.picture(100 * number + image)) if content is None else content
                files.write_bytes(OWN / folder / name, made)
        for name, text in texts.items():
            files.write_bytes(OWN / name.replace("_", "."), text.encode())

    return make


def one(name: str, content: bytes = PHOTO) -> Callable[[], None]:
    """Makes two class folders and one file more."""

    def make() -> None:
        tree("cat", "dog")()
        Path(OWN, name).parent.mkdir(parents=True, exist_ok=True)
        Path(OWN, name).write_bytes(content)

    return make


def link(name: str, target: str) -> Callable[[], None]:
    def make() -> None:
        tree("cat", "dog")()
        (OWN / name).symlink_to(target)

    return make


def splits(*names: str) -> Callable[[], None]:
    return tree(*(f"{name}/{kind}" for name in names for kind in ("cat", "dog")))


TABLE = "".join(f"0{number}.png,{'cat' if number % 2 else 'dog'}\n" for number in range(8))
LINES = [f"{number}.png {number % 2}" for number in range(4)]
ACCEPTED = {
    "class folders": tree("cat", "dog"),
    "capital and small letter": tree("A", "a"),
    "a line break": tree("red\nblue", "blue"),
    "a backslash, colon, dash and percent": tree("C:\\x", "-rf", "100%", "a:b"),
    "a long name": tree("x" * 255, "y"),
    "a file without an ending": one("cat/photo"),
    "a normalized and another form of a file": one(unicodedata.normalize("NFD", "cat/é.png")),
    "train/ valid/ test/": splits("train", "valid", "test"),
    "Train/ Test/": splits("Train", "Test"),
    "training/ testing/": splits("training", "testing"),
    "TRAIN/ dev/ TEST/": splits("TRAIN", "dev", "TEST"),
    "train/ eval/": splits("train", "eval"),
    "a folder around": splits("data/train", "data/val"),
    "documents": tree("cat", "dog", LICENSE="x", notes_md="x", script_py="x"),
    "an icon of macOS": one("Icon\r", b""),
    "notes in a class": one("cat/notes.txt", b"text"),
    "an empty file in a class": one("cat/empty.png", b""),
    "a link to a file": link("cat/again.png", "../dog/10.png"),
    "images/ and labels.csv": tree("images", each=8, labels_csv=TABLE),
    "a table with a split": tree("images", each=8, labels_csv="file,label,split\n" + "".join(
        f"0{number}.png,{number % 2},{'test' if number > 5 else 'train'}\n" for number in range(8)
    )),
    "lists of splits": tree("train", "val", train_txt="0" + "\n0".join(LINES), val_txt="1" + "\n1".join(LINES)),
    "classes with and without masks": tree("with_mask", "without_mask"),
    "metadata.jsonl": tree("images", each=8, metadata_jsonl="".join(
        f'{{"file_name": "images/0{number}.png", "label": {number % 2}}}\n' for number in range(8)
    )),
    "annotations beside images with labels": lambda: [
        tree("images", each=8, labels_csv=TABLE)(), files.write_bytes(OWN / "labels" / "00.txt", b"0 1 1 1 1")
    ],
    "leftovers of Windows": one("cat/desktop.ini", b"x"),
}  # fmt: skip
REFUSED = {
    "no images": lambda: (OWN / "cat").mkdir(parents=True),
    "one class": tree("cat"),
    "a class without images": lambda: [tree("cat", "dog")(), (OWN / "owl").mkdir()],
    "a class with few images": lambda: [tree("cat", "dog")(), files.write_bytes(OWN / "owl" / "1.png", PHOTO)],
    "few training images of a class": lambda: [
        splits("train", "test")(), *(path.unlink() for path in sorted((OWN / "train" / "cat").iterdir())[1:])
    ],
    "only texts": tree("cat", "dog", ending=".txt", content=b"text"),
    "only photos of a format that is not read": tree("cat", "dog", ending=".heic", content=HEIC),
    "one class without images": lambda: [tree("cat", "dog")(), tree("owl", ending=".heic", content=HEIC)()],
    "one class with few images that can be used": lambda: [
        tree("cat", "dog")(), *(path.write_bytes(b"") for path in sorted((OWN / "dog").iterdir())[2:])
    ],
    "one class of photos that were cut": lambda: [tree("cat", "dog")(), tree("owl", content=CUT)()],
    "a split without images": lambda: [
        splits("train")(), tree("test/cat", "test/dog", content=b"")()
    ],
    "rows of one label without images": lambda: [
        tree("images", each=8, labels_csv=TABLE)(),
        *((OWN / f"images/0{number}.png").write_bytes(b"") for number in (1, 3, 5)),
    ],
    "classes that look the same": tree(unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")),
    "classes up to blanks": tree("red", "red "),
    "classes up to a hyphen": tree("red-fox", "red_fox"),
    "classes up to what is not drawn": tree("\u2764", "\u2764\ufe0f"),
    "a folder of unlabelled images": tree("cat", "dog", "Not_labeled"),
    "splits by their names": tree("cat", "dog", meta_json='{"train": ["cat/00.png"], "test": ["dog/10.png"]}'),
    "splits in another form": one("train_test_split.pkl", b"?"),
    "a list that is named like a split": tree("cat", "dog", TestImages_txt="cat/00.png\ndog/10.png\n"),
    "labels by two columns beside folders of sites": lambda: [
        tree("a", "b")(), *(path.rename(path.with_stem(path.stem[1:])) for path in sorted(OWN.glob("*/*"))),
        files.write_bytes(OWN / "l.csv", b"site,file,label\na,0.png,x\na,1.png,y\nb,0.png,y\nb,1.png,x\n"),
    ],
    "val/ and valid/": splits("train", "val", "valid"),
    "images in train/": tree("train", "test"),
    "a hidden file": one("cat/.hidden.png"),
    "a hidden folder": one(".cat/1.png"),
    "a name that is not UTF-8": one(os.fsdecode(b"cat/\xff.png")),
    "a link to a folder": link("owl", "cat"),
    "a loop": link("cat/loop", "."),
    "a dangling link": link("cat/lost.png", "nowhere"),
    "a pipe": lambda: [tree("cat", "dog")(), os.mkfifo(OWN / "cat" / "pipe")],
    "rows without files": tree("images", each=8, labels_csv=TABLE + "99.png,cat\n"),
    "files without rows": tree("images", each=9, labels_csv=TABLE),
    "annotations of objects": lambda: [
        tree("train/images", "val/images")(),
        *(files.write_bytes(OWN / f"train/labels/0{number}.txt", b"0 1 1 1 1") for number in range(4)),
    ],
    "folders of images of splits": tree("train_images", "test_images"),
    "images and masks": tree("images", "masks"),
    "lists of splits beside class folders": tree(
        "cat", "dog", our_test_txt="cat/03.png 0\ndog/13.png 1\n",
        our_train_txt="".join(f"cat/0{image}.png 0\ndog/1{image}.png 1\n" for image in (0, 1, 2)),
    ),
    "a table that contradicts itself": tree("images", each=8, labels_csv=TABLE + "00.png,cat\n"),
}  # fmt: skip


def surveyed(path: Path) -> survey.Survey | None:
    with suppress(DataError):
        return survey.look(path, Path("scratch"))
    return None


def converted(path: Path, table: Mapping[str, object] | None, *, valid: bool) -> manifest.Manifest | None:
    """What the stages make; `valid`: and accept, although images are left out."""
    parameters = config.load(PARAMS)
    dataset = DatasetConfig(name="image_folder", path=path, on_bad_image="skip", table=table)
    parameters = parameters.model_copy(update={"dataset": dataset})
    with suppress(DataError):
        download(parameters)
        convert(parameters)
        if valid:
            validate(parameters)
        return manifest.load(parameters.paths.records)
    return None


def agree(path: Path) -> survey.Survey | None:
    """What start finds; it must be what the stages do."""
    images = surveyed(path)
    found = converted(path, None if images is None else images.block, valid=images is None)
    if images is None:
        assert found is None
        return None
    assert found is not None
    assert list(images.per_class) == found.classes
    records = config.load(PARAMS).paths.records
    rejected = documents.read_json(records / "rejected.json")["rejected"]
    assert sum(part.examples for part in found.splits.values()) + len(rejected) == images.images
    assert set(images.per_split) <= set(SPLITS) == set(found.splits)
    labels = (records / "labels.txt").read_bytes().decode().split("\n")
    assert labels == [*(f"{number}:{name}" for number, name in enumerate(found.classes)), ""]
    return images


@pytest.mark.fast_rows(
    "class folders",
    "a line break",
    "train/ valid/ test/",
    "a folder around",
    "images/ and labels.csv",
    "lists of splits",
    "metadata.jsonl",
    "an empty file in a class",
    "classes with and without masks",
)
@pytest.mark.parametrize("make", ACCEPTED.values(), ids=ACCEPTED)
def test_what_start_accepts_the_stages_accept(workspace: Path, make: Callable[[], object]) -> None:
    make()
    assert agree(OWN) is not None


@pytest.mark.fast_rows(
    "no images",
    "one class",
    "a class without images",
    "a split without images",
    "classes up to blanks",
    "val/ and valid/",
    "images in train/",
    "a name that is not UTF-8",
    "a loop",
    "rows without files",
    "annotations of objects",
    "a table that contradicts itself",
)
@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_what_start_refuses_the_stages_refuse(workspace: Path, make: Callable[[], object]) -> None:
    make()
    assert agree(OWN) is None


@pytest.mark.parametrize("bad", [b"", HEIC, CUT, PHOTO[:-20]], ids=["empty", "HEIC", "cut JPEG", "cut PNG"])
def test_start_finds_a_class_without_usable_images_beside_those_that_it_samples(
    workspace: Path, bad: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "SAMPLE", 8)
    tree("cat", "owl", content=TINY)()
    tree("dog", each=8, content=TINY)()
    for number in (1, 3):  # start samples every second file
        (OWN / "owl" / f"1{number}.png").write_bytes(bad)
    assert surveyed(OWN) is None  # of the stages, validate refuses it: a split lacks a class
    (OWN / "owl" / "11.png").write_bytes(TINY)
    images = agree(OWN)
    assert images is not None
    assert images.unreadable == {}


IN_ARCHIVES = ("train/ valid/ test/", "Train/ Test/", "a folder around", "images/ and labels.csv", "documents")
NOT_IN_ARCHIVES = (
    "val/ and valid/", "one class", "capital and small letter", "a line break", "files without rows",
)  # fmt: skip


@pytest.mark.fast_rows(
    "train/ valid/ test/-zip", "a folder around-gztar", "images/ and labels.csv-zip", "one class-gztar"
)
@pytest.mark.parametrize("kind", ["zip", "gztar"])
@pytest.mark.parametrize("name", [*IN_ARCHIVES, *NOT_IN_ARCHIVES])
def test_start_and_stages_agree_on_archives(workspace: Path, name: str, kind: str) -> None:
    (ACCEPTED | REFUSED)[name]()
    packed = Path(shutil.make_archive("packed", kind, ".", "own"))
    assert (agree(packed) is not None) == (name in IN_ARCHIVES)
