"""Images of one's own: what is collected and read back, what counts as a class, and what is refused."""

import bz2
import gzip
import hashlib
import lzma
import pickle
import shutil
import zipfile

import numpy as np
import PIL.Image
import pytest
from support.odd_images import saved
from support.raw import write_files

from perennial.base.errors import DataError
from perennial.data import archives
from perennial.data.datasets import image_folder
from perennial.data.datasets.image_folder import IMAGE_FOLDER, collect
from perennial.data.images import BadImage


def photo(number):
    return saved(PIL.Image.new("RGB", (number % 7 + 1, 5), (number % 256, 0, 0)), "PNG")


@pytest.fixture
def packed(tmp_path):
    """Packs files of these names, each an image of its own, into a plain tar file."""

    def make(*names, **contents):
        for number, name in enumerate(names):
            path = tmp_path / "tree" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name.endswith("/"):
                path.mkdir()
            else:
                path.write_bytes(contents.get(path.stem, photo(number)))
        archives.pack(tmp_path / "tree", tmp_path / "images.tar")
        return tmp_path / "images.tar"

    return make


TWO = ("tulip/1.png", "rose/1.png", "rose/2.png")


def files(source, split="train"):
    return sorted(source.splits[split].names)


def test_folders_of_splits_are_splits(packed):
    splits = ("train", "validation", "test")
    source = image_folder.read_tar(packed(*(f"{split}/{name}" for split in splits for name in TWO)))
    assert {split: files(source, split) for split in source.splits} == {split: sorted(TWO) for split in splits}


@pytest.mark.parametrize(
    "layout",
    ["{}", "photos/{}", "train/{}", "photos/train/{}", "a/b/{}", "train/train/{}", "training/Train/{}"],
)
def test_one_folder_around_all_is_passed_over(packed, layout):
    source = image_folder.read_tar(packed(*(layout.format(name) for name in TWO)))
    assert files(source) == ["rose/1.png", "rose/2.png", "tulip/1.png"]


def test_documents_and_hidden_files_are_passed_over(packed):
    documents = ("LICENSE.txt", "photos/LICENSE", "photos/README.md", "photos/labels.csv", "photos/~$a.xlsx")
    hidden = ("photos/rose/.DS_Store", "__MACOSX/photos/rose/1.png", ".git/config", "photos/.~lock.labels.csv#",
              "$RECYCLE.BIN/rose.png")  # fmt: skip
    assert (
        len(files(image_folder.read_tar(packed(*documents, *hidden, *(f"photos/{name}" for name in TWO))))) == 3
    )


def test_a_folder_of_documents_is_left_out_with_a_line(packed, caplog):
    caplog.set_level("INFO")
    beside = ("docs/notes.md", "docs/more.txt", "README.md")
    assert image_folder.read_tar(packed(*TWO, *beside)).classes == ("rose", "tulip")
    assert "left out 2 files beside the images: 'docs/more.txt', 'docs/notes.md'" in caplog.text


def test_what_phones_and_albums_keep_beside_photos_is_left_out_with_a_line(packed, caplog):
    beside = (
        "IMG_1.AAE", "IMG_1.MOV", "2024/IMG_1.jpg.supplemental-metadata.json", "Thumbs.db", ".DS_Store",
        ".nomedia",
    )  # fmt: skip
    names = ["cat/IMG_1.jpg", "cat/2024/IMG_1(1).jpg", "dog/IMG_2.jpg", *(f"cat/{name}" for name in beside)]
    with caplog.at_level("INFO"):
        source = image_folder.read_tar(packed(*names))
    assert sorted(source.splits["train"].names) == ["cat/2024/IMG_1(1).jpg", "cat/IMG_1.jpg", "dog/IMG_2.jpg"]
    assert "left out 3 files beside the images: 'cat/2024/IMG_1.jpg.supplemental" in caplog.text


def test_of_many_files_beside_photos_their_kinds_are_counted(packed, caplog):
    caplog.set_level("INFO")
    photos = [f"{kind}/IMG_{number}.jpg" for kind in ("cat", "dog") for number in range(4)]
    packed(*photos, *(f"{name}.json" for name in photos), "cat/IMG_1.AAE")
    root = packed().parent / "tree"
    for name in photos:  # one document for each photo, as Google Takeout writes it
        (root / f"{name}.json").write_text(f'{{"title": "{name[4:]}", "url": "https://photos.google.com/1"}}')
    assert len(files(image_folder.read_tar(packed()))) == 8
    assert "left out 9 files beside the images: 8 .json, 1 .AAE" in caplog.text
    assert "not used" not in caplog.text


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        (("train/1.png", "bus/1.png", "tram/1.png"), ("bus", "train", "tram")),
        (("train/1.png", "test/1.png", "bus/1.png"), ("bus", "test", "train")),
        (("train/train/1.png", "train/bus/1.png", "val/bus/1.png"), ("bus", "train")),
    ],
)
def test_a_class_may_be_named_like_a_split(packed, names, classes):
    assert image_folder.read_tar(packed(*names)).classes == classes


def test_examples_are_in_the_order_of_the_digests_of_their_names_which_mixes_classes(packed):
    source = image_folder.read_tar(packed(*(f"{kind}/{n}.png" for kind in "ab" for n in range(50))))
    examples = source.splits["train"]
    digests = [hashlib.sha256(name.encode()).hexdigest() for name in examples.names]
    assert digests == sorted(digests)
    assert ["ab"[label] for label in examples.labels] == [name[0] for name in examples.names]
    assert 30 < np.count_nonzero(np.diff(examples.labels)) < 70


def test_images_come_in_the_order_asked_for_here_and_in_another_process(packed):
    examples = image_folder.read_tar(packed(*TWO)).splits["train"]
    contents = dict(zip(TWO, map(photo, range(3)), strict=True))
    found = list(examples.images([2, 0, 1, 0]))
    assert [image.filename for image in found] == [examples.names[number] for number in (2, 0, 1, 0)]
    assert {image.filename: image.encoded for image in found} == contents
    assert list(pickle.loads(pickle.dumps(examples)).images([2, 0, 1, 0])) == found
    assert examples.image_bytes.sum() == sum(map(len, contents.values()))


@pytest.mark.parametrize(
    ("layout", "named"),
    [("{}", "{}"), ("photos/{}", "{}"), ("train/{}", "train/{}"), ("p/train/{}", "train/{}")],
)
def test_what_is_no_image_is_named_whatever_its_ending_with_the_folder_of_its_split(packed, layout, named):
    odd = ("rose/notes.jpg", "rose/list.bin")
    names = [layout.format(name) for name in (*TWO, *odd)]
    examples = image_folder.read_tar(packed(*names, notes=b"hello", list=b"")).splits["train"]
    bad = {image.filename for image in examples.images(range(5)) if isinstance(image, BadImage)}
    assert bad == {named.format(name) for name in odd}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("2024-05/1.png", "2024-06/2.png"), "'2024-05', '2024-06' are named like dates, not like classes"),
        ((*TWO, "cat/IMG_1.MOV", "cat/IMG_2.MOV"), "no images of 'cat'"),  # videos alone are not left out
        (("train.tfrecord", "rose/1.png"), r"for TFRecords, set dataset\.name to tfrecord"),
        (("rose/1.png", "rose/2.png"), "images of one class, 'rose'"),
        (("1.png", "2.png"), "outside of class folders: '1.png', '2.png'"),
        ((*TWO, "extra.bin"), "outside of class folders: 'extra.bin'"),
        (("top/3.png", *(f"top/{name}" for name in TWO)), "outside of class folders: '3.png'"),
        ((*TWO, "lily/"), "train: no images of 'lily'"),
        ((*TWO, "rose/test/1.png"), "split folders inside a class folder: 'rose/test/1.png'; expected train/"),
        (("day/a/1.png", "day/b/1.png", "night/a/1.png"), "'day', 'night' may be the classes, or .* 'a'; put"),
        (("day/A/1.png", "night/a/1.png", "night/b/1.png"), "'day', 'night' may be the classes"),
        (("2023/a/1.png", "2024/b/1.png"), "'2023', '2024' may be the classes, or folders in them, 'a', 'b'"),
        ((*TWO, "old/rose/1.png"), "'old' may be the classes, or folders in them, 'rose'"),
        (("images/a/1.png", "other/b/1.png"), "folders inside 'images', not a name of a class"),
        (("set_test/a/1.png", "other/b/1.png"), "folders inside 'set_test', .* if 'set_test' is a split, name"),
        (("train/rose/1.png", "rose/1.png", "tulip/1.png"), "'rose', 'tulip' beside split folders"),
        (("train/a/1.png", "train/b/1.png", "held/a/1.png"), "'held' beside split folders, 'train'; "),
        (("test/rose/1.png", "test/tulip/1.png"), "no folder 'train' beside 'test'"),
        (("train/a/1.png", "train/b/1.png", "test/c/1.png"), "test: no images of 'c' in the training split"),
        (("train/a/1.png", "train/b/1.png", "test/a/"), "test: no images of 'a', 'b'"),
        (("train/a/1.png", "train/b/1.png", "train/1.png"), "train: files outside of class folders: '1.png'"),
    ],
)
def test_other_trees_are_refused_by_name(packed, names, message):
    with pytest.raises(DataError, match=f"images.tar.*{message}"):
        image_folder.read_tar(packed(*names))


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        (("cat/2024/May/1.png", "cat/2024/June/1.png", "dog/2024/May/1.png"), ("cat", "dog")),
        (("cat/1.png", "cat/blurry/2.png", "dog/1.png", "dog/blurry/1.png", "dog/dark/1.png"), ("cat", "dog")),
        (("cat/raw/1.png", "dog/raw/1.png"), ("cat", "dog")),
        (("cat/DCIM/100CANON/1.png", "dog/DCIM/100CANON/1.png"), ("cat", "dog")),
        (("cat/images/1.png", "cat/batch 1/1.png", "dog/images/2.png"), ("cat", "dog")),
        (("data/train/cat/a/b/c/1.png", "data/train/dog/1.png", "data/test/dog/x/1.png"), ("cat", "dog")),
        ((*TWO, "rose/red/"), ("rose", "tulip")),
    ],
)
def test_images_at_any_depth_below_a_class_folder_are_of_its_class_and_a_line_says_so(
    packed, caplog, names, classes
):
    caplog.set_level("INFO")
    source = image_folder.read_tar(packed(*names))
    assert source.classes == classes
    parts = [zip(each.names, each.labels.tolist(), strict=True) for each in source.splits.values()]
    found = {name: classes[label] for part in parts for name, label in part}
    assert found == {name: name.partition("/")[0] for name in found}
    deep = [name for name in found if name.count("/") > 1]
    assert (f"{len(deep)} images in folders below their class folder" in caplog.text) == bool(deep)


def test_folders_of_numbers_are_classes_in_the_order_of_the_numbers(packed):
    names = [f"{number}/1.png" for number in range(12)]
    assert image_folder.read_tar(packed(*names)).classes == tuple(map(str, range(12)))


@pytest.fixture
def photos(tmp_path):
    (tmp_path / "raw").mkdir()
    return write_files(tmp_path / "photos", dict.fromkeys(("rose/1.jpg", "tulip/1.jpg"), b"\xff\xd8\xff"))


@pytest.fixture
def raw(tmp_path, photos):
    return tmp_path / "raw"


@pytest.mark.parametrize(
    ("name", "compress"),
    [
        ("images.tar", bytes),
        ("images.tar.gz", gzip.compress),
        ("images.tar.bz2", bz2.compress),
        ("images.tar.xz", lzma.compress),
    ],
)
def test_an_archive_is_collected_as_it_is_with_the_ending_of_its_content(tmp_path, photos, raw, name, compress):
    archives.pack(photos, tmp_path / "packed")
    (tmp_path / "packed").write_bytes(compress((tmp_path / "packed").read_bytes()))
    collect(tmp_path / "packed", raw)
    assert [(path.name, path.read_bytes()) for path in raw.iterdir()] == [
        (name, (tmp_path / "packed").read_bytes())
    ]


def test_a_zip_archive_is_collected_and_read(tmp_path, photos, raw):
    collect(shutil.make_archive(tmp_path / "x", "zip", photos) and tmp_path / "x.zip", raw)
    archives.expand(raw / "images.zip", raw / "images.tar")
    assert zipfile.is_zipfile(raw / "images.zip")
    assert IMAGE_FOLDER.read(raw).splits["train"].labels.tolist() in ([0, 1], [1, 0])


def test_what_a_person_owns_is_not_the_file_in_the_raw_folder(tmp_path, photos, raw):
    archives.pack(photos, tmp_path / "x.tar")
    collect(tmp_path / "x.tar", raw)
    assert not (raw / "images.tar").samefile(tmp_path / "x.tar")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "x does not exist; dataset.path names"), (b"", "x is empty"), (b"<html>", "x is not a tar")],
)
def test_what_is_no_archive_is_not_collected(tmp_path, raw, content, message):
    if content is not None:
        (tmp_path / "x").write_bytes(content)
    with pytest.raises(DataError, match=message):
        collect(tmp_path / "x", raw)
    assert list(raw.iterdir()) == []


@pytest.mark.parametrize("names", [[], ["a.tar", "b.tar"]])
def test_exactly_one_tar_file_is_read(raw, names):
    for name in names:
        (raw / name).touch()
    with pytest.raises(DataError, match=r"expected one \.tar file"):
        IMAGE_FOLDER.read(raw)
