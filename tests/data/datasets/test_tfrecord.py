"""TFRecords of one's own: which files are which split, and what their records must hold."""

import gzip
import shutil
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.raw import encoded, picture, write_files
from support.records import datum, record

from perennial.base.errors import DataError
from perennial.data.datasets.tfrecord import collect, read
from perennial.data.images import BadImage, png
from perennial.data.images.accept import accepted
from perennial.data.tfrecord import framing

JPEG = encoded(picture(0, 9), "JPEG")


def own(number, label=None):
    """A record as slim and `convert` write it."""
    return framing.frame(datum(np.full((2, 2), number, np.uint8), number % 3 if label is None else label))


SOUND = own(0) + own(1) + own(2)


@pytest.fixture
def source(tmp_path):
    """What is read from files."""

    def of(files):
        return read(write_files(tmp_path, files))

    return of


def images(source, split="train"):
    part = source.splits[split]
    return list(part.images(range(len(part.labels))))


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("mnist_train.tfrecord", "train"),
        ("flowers_validation_00000-of-00001.tfrecord", "validation"),
        ("validation-00000-of-00001", "validation"),
        ("train_signs_test.tfrecord", "test"),
        ("test_drive_train-00000-of-00001", "train"),
        ("train_2024.tfrecord", "train"),
        ("pets.val.tfrecords", "validation"),
        ("test-v2-00000-of-00001", "test"),
        ("flowers_val_224x224_images.tfrec", "validation"),
        ("training.tfrecord", "train"),
        ("eval.tfrecord", "validation"),
        ("dev-00000-of-00001", "validation"),
        ("valid.tfrec", "validation"),
        ("TESTING.record", "test"),
        ("flowers_test.record-00000-of-00001", "test"),
        *dict.fromkeys(("train.txt", "signs_test.txt", "notes", "train.tfrecord.idx")).items(),
    ],
)
def test_the_last_field_of_a_name_is_the_split_and_other_files_are_passed_over(source, name, split):
    content = own(7) * 2 if split else b"something else"
    found = source({"own_train.tfrecord": SOUND, name: content})
    seven = png.encode(np.full((2, 2), 7, np.uint8))
    with_seven = [each for each in found.splits if any(image.encoded == seven for image in images(found, each))]
    assert (with_seven, set(found.splits)) == ([split] if split else [], {"train", split or "train"})


def test_records_come_in_the_order_of_file_names(source):
    files = {f"own_train_{number:05}-of-00003.tfrecord": own(number) for number in (2, 0, 1)}
    assert source(files).splits["train"].labels.tolist() == [0, 1, 2]


def test_images_are_kept_byte_for_byte(source):
    found = source({"train.tfrecord": record(image=[JPEG], label=[0])})
    (image,) = images(found)
    assert (image.encoded, image.format, image.height, image.width) == (JPEG, "jpg", 9, 9)


def test_an_image_that_is_damaged_or_of_another_format_is_reported_with_its_place(source):
    found = source(
        {"train.tfrecord": own(0) + record(image=[b"GIF89a"], label=[0]) + record(image=[b"?"], label=[0])}
    )
    (_, gif, other), at = images(found), len(own(0))
    reason = "it is a GIF; `magick mogrify -format png FILE` converts it"
    assert gif == BadImage(filename=f"train.tfrecord at byte {at}", reason=reason)
    assert "not a JPEG, HEIC, PNG, WebP, AVIF or BMP" in other.reason


@pytest.mark.parametrize("kind", ["WEBP", "BMP"])
def test_other_formats_of_folders_become_png_in_records_too(source, kind):
    content = encoded(picture(1, 9), kind, **({"lossless": True} if kind == "WEBP" else {}))
    (image,) = images(source({"train.tfrecord": record(image=[content], label=[0])}))
    assert (image.encoded, image.filename) == (accepted(content, "").encoded, None)


def raw_files(content, tmp_path):
    """What is collected from a folder of these files."""
    (tmp_path / "raw").mkdir(exist_ok=True)
    collect(write_files(tmp_path / "mine", {name: name for name in content}), tmp_path / "raw")
    return {path.name: path.read_text() for path in (tmp_path / "raw").iterdir()}


def test_a_folder_without_records_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"holds no TFRecords: no file is named like mnist_train\.tfrecord"):
        raw_files(["labels.txt", "notes.md"], tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", r"is not a folder or an archive; dataset\.path must name one of TFRecords"),
        ("a_train.tfrecord", r"a_train\.tfrecord is not a folder or an archive"),
        ("labels.txt", "is not a tar, tar.gz"),
    ],
)
def test_what_is_no_folder_and_no_archive_is_refused(tmp_path, name, message):
    write_files(tmp_path, dict.fromkeys(("a_train.tfrecord", "labels.txt"), b"?"))
    with pytest.raises(DataError, match=message):
        collect(tmp_path / name, tmp_path)


@pytest.mark.parametrize("around", ["", "flowers/", "flowers/1.0.0/"])
def test_shards_in_the_folders_of_splits_are_collected_with_the_split_in_their_names(tmp_path, around):
    names = {
        "train/part-00000": "part-00000_train.tfrecord",
        "Valid/00-224x224-798.tfrec": "00-224x224-798.tfrec_validation.tfrecord",
        "test/flowers_test.tfrecord": "flowers_test.tfrecord_test.tfrecord",
        "label_map.pbtxt": "label_map.pbtxt",
    }
    found = raw_files([around + name for name in names], tmp_path)
    assert found == {target: around + name for name, target in names.items()}


def test_what_is_left_out_is_named_once_with_its_number(tmp_path, caplog):
    left_out = ["dataset_info.json", "old/train.tfrecord", "train/_SUCCESS"]
    raw_files(["train.tfrecord", *left_out, ".DS_Store"], tmp_path)
    (line,) = [each.getMessage() for each in caplog.records if "left out" in each.getMessage()]
    assert "left out 3 files" in line
    assert ", ".join(map(repr, left_out)) in line


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *dict.fromkeys(
            ("latest.tfrecord", "trainer-00000-of-00001", "holdout.record"), "is named like TF"
        ).items(),
        ("test/own_train.tfrecord", "lies in the folder"),
        ("a-train.array_record-00000-of-00001", "is no file of TFRecords, but in the format ArrayRecord"),
    ],
)
def test_a_file_of_no_split_or_another_format_is_refused_by_name(tmp_path, name, message):
    with pytest.raises(DataError, match=f"mine: '{name}' {message}"):
        raw_files(["train.tfrecord", name], tmp_path)


@pytest.mark.parametrize("names", [("a_val.tfrecord", "a_valid.tfrecord"), ("eval/part-01", "val/part-00")])
def test_two_words_for_one_split_are_refused(tmp_path, names):
    with pytest.raises(DataError, match=f"'{names[0]}' and '{names[1]}' are both named like the valid"):
        raw_files(["train.tfrecord", *names], tmp_path)


def test_an_archive_of_records_is_collected_as_its_folder(tmp_path):
    found = raw_files(["top/train.tfrecord", "top/labels.txt", "top/val/part-00001"], tmp_path)
    for path in (tmp_path / "raw").iterdir():
        path.unlink()
    collect(Path(shutil.make_archive(tmp_path / "packed", "zip", tmp_path / "mine")), tmp_path / "raw")
    assert {path.name: path.read_text() for path in (tmp_path / "raw").iterdir()} == found


@pytest.mark.parametrize("name", ["train.tfrecord", "train.tfrecords.gzip"])
@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress, partial(zlib.compress, level=1)])
def test_compressed_records_are_read(source, compress, name):
    assert images(source({name: compress(SOUND)})) == images(source({name: SOUND}))


def test_plain_records_whose_first_length_looks_compressed_are_read(source):
    some = len(record(image=[JPEG + bytes(500_000)], label=[0])) - framing.OVERHEAD
    long = record(image=[JPEG + bytes(500_000 + 0x088B1F - some)], label=[0])
    assert long.startswith(b"\x1f\x8b\x08")
    assert len(images(source({"train.tfrecord": long}))) == 1


@pytest.mark.parametrize("cut", [5, 20, -4, -1])
@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_compressed_records_that_are_cut_are_bad_data(source, compress, cut):
    with pytest.raises(DataError, match=r"train\.tfrecord is (incomplete|damaged)|train\.tfrecord record 0"):
        source({"train.tfrecord": compress(SOUND)[:cut]})


def said(label, text, image=None):
    """A record with a label and the text beside it."""
    return record(
        image__encoded=[image or JPEG], image__class__label=[label], image__class__text=[text.encode()]
    )


MAP = b"item { id: 1 name: 'cat' }\nitem { id: 2 name: 'dog' }\n"
ROBOFLOW = {f"{split}/pets.tfrecord": own(0, 1) + own(1, 2) for split in ("train", "valid", "test")}


@pytest.fixture
def project(tmp_path):
    """What is read from a folder or an archive of one, once it is collected."""

    def of(files):
        (tmp_path / "raw").mkdir()
        collect(write_files(tmp_path / "own", files), tmp_path / "raw")
        return read(tmp_path / "raw")

    return of


@pytest.mark.parametrize(
    "lists",
    [
        [f"{split}/pets_label_map.pbtxt" for split in ("train", "valid", "test")],
        ["train/pets_label_map.pbtxt"],
        ["annotations/label_map.pbtxt"],
        ["pets_label_map.pbtxt", "train/pets_label_map.pbtxt"],
    ],
)
def test_lists_in_the_folders_of_splits_or_beside_them_name_the_classes(project, caplog, lists):
    caplog.set_level("INFO")
    found = project(ROBOFLOW | dict.fromkeys(lists, MAP))
    assert found.classes == ("background", "cat", "dog")
    assert set(found.splits) == {"train", "validation", "test"}
    assert "the classes are those of " in caplog.text
    assert "0:background, 1:cat, 2:dog" in caplog.text
    assert "left out" not in caplog.text


def test_lists_of_splits_that_differ_are_refused_by_name(project):
    other = MAP.replace(b"dog", b"owl")
    with pytest.raises(DataError, match=r"train--labels\.pbtxt lists other classes than test--labels\.pbtxt"):
        project(ROBOFLOW | {"train/labels.pbtxt": MAP, "test/labels.pbtxt": other})


def test_a_text_that_is_another_class_of_the_list_is_refused_with_file_and_record(source):
    files = {"labels.txt": b"0:cat\n1:dog\n", "train.tfrecord": said(0, "Cat") + said(1, "dog")}
    assert source(files).classes == ("cat", "dog")
    message = r"test\.tfrecord record 1 at byte \d+: label 1 is 'cat', but 'dog' in labels\.txt; correct"
    with pytest.raises(DataError, match=message):
        source(files | {"test.tfrecord": said(0, "cat") + said(1, "cat")})


def test_texts_that_are_no_names_of_the_list_are_said_and_not_used(source, caplog):
    caplog.set_level("INFO")
    files = {"labels.txt": b"n01\nn02\n", "train.tfrecord": said(0, "tench, Tinca tinca") + said(1, "goldfish")}
    assert source(files).classes == ("n01", "n02")
    assert "image/class/text has other words than labels.txt, such as 'tench, Tinca tinca'" in caplog.text


@pytest.mark.parametrize(
    ("records", "classes"),
    [
        (said(0, "cat") + said(1, "dog"), ("cat", "dog")),
        (said(1, "cat") + said(2, "dog"), ("background", "cat", "dog")),
        (said(0, "cat") + own(1, 1), ("cat", "1")),
        (said(0, "") + said(1, " "), ("0", "1")),
        (own(0) + own(1), ("0", "1")),
    ],
)
def test_without_a_list_texts_name_the_classes_and_else_the_labels(source, caplog, records, classes):
    caplog.set_level("INFO")
    assert source({"train.tfrecord": records}).classes == classes
    assert f"0:{classes[0]}" in caplog.text


FLIPPED = bytearray(SOUND)
FLIPPED[len(own(0)) + 20] ^= 1
AT = len(own(0))
AT_1, LIST = f"train.tfrecord record 1 at byte {AT}: ", b"a\nb\nc\n"
# Contents of train.tfrecord, of other files, and what is said.
REFUSED = {
    "no train split": (None, {"own_test.tfrecord": SOUND}, "no TFRecords of a train .* own_test.tfrecord"),
    "cut": (SOUND[:-1], {}, f"record 2 at byte {2 * AT}: the last 1 bytes of the record are missing"),
    "flipped": (bytes(FLIPPED), {}, f"{AT_1}the checksum of the record's data"),
    "junk": (SOUND + b"junk", {}, f"record 3 at byte {3 * AT}: 4 bytes of a header of 12"),
    "a page": (b"<html>no records</html>", {}, "record 0 at byte 0: the checksum of the record's length"),
    "bzip2": (b"BZh91AY&SY no record", {}, "a TFRecord file does not start with b'BZh91AY&SY"),
    "no bytes": (own(0) + framing.frame(b""), {}, f"{AT_1}image/encoded is missing"),
    "no example": (own(0) + framing.frame(b"\xff" * 9), {}, f"{AT_1}not a tf.Example"),
    "two labels that differ": (
        record(image=[JPEG], label=[1], **{"image/class/label": [0]}), {}, "image/class/label and label differ",
    ),
    "no label": (record(image=[JPEG]), {}, "record 0 at byte 0: image/class/label is missing"),
    "a number as image": (record(image=[3], label=[1]), {}, "image is int64_list, expected bytes_list"),
    "two labels": (record(image=[JPEG], label=[1, 2]), {}, "label has 2 values, expected 1"),
    "below zero": (SOUND + own(0, -1), {}, "label -"),
    "far below zero": (SOUND + own(0, -(2**63)), {"labels.txt": LIST}, "label -"),
    "beyond the list": (
        SOUND, {"test.tfrecord": own(0, 9), "labels.txt": LIST}, "labels.txt lists 3 .*there are labels up to 9"
    ),
    "a bomb": (gzip.compress(bytes(70 << 20)), {}, r"train\.tfrecord expands to more than \d+ bytes"),
    "other keys": (
        record(picture=[JPEG], category=[0]), {},
        r"expected image/encoded or image as .*, got 'category' \(int64_list\), 'picture' \(bytes_list\)",
    ),
    "a shard is missing": (
        None, {f"pets-train.tfrecord-0000{n}-of-00003": SOUND for n in (0, 2)}, "but not .*-00001-of-00003"
    ),
    **{f"an ambiguous split {name}": (SOUND, {name: SOUND}, name)
       for name in ("train_signs.tfrecord", "test-signs-0-of-1", "train_test_all.tfrecord")},
    "two texts of a label": (
        said(0, "cat") + said(0, "dog"), {}, "label 0 is 'dog', but 'cat' in .* record 0.*write the classes"
    ),
    "two labels of a text": (
        said(0, "cat") + said(1, "cat"), {}, "'cat' is label 1, but label 0 in .* record 0.*write the classes"
    ),
    "object detection": (
        record(image__encoded=[JPEG], image__object__class__label=[1, 2]), {}, "records of object detection"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("train", "others", "message"), REFUSED.values(), ids=REFUSED)
def test_records_that_cannot_be_used_are_refused_with_file_number_and_byte(source, train, others, message):
    with pytest.raises(DataError, match=f"(?s){message}"):
        source(others if train is None else {"train.tfrecord": train, **others})
