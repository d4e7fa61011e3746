"""TFRecords of one's own: which files are which split, and what their records must hold."""

import pickle

import numpy as np
import pytest
from support.raw import encoded, picture
from support.records import datum, record

from perennial.datasets.tfrecord import collect, read
from perennial.errors import DataError
from perennial.images import BadImage, png
from perennial.tfrecord import framing

JPEG = encoded(picture(0, 9), "JPEG")


def own(number, label=None):
    """A record as slim and `convert` write it."""
    return framing.frame(datum(np.full((2, 2), number, np.uint8), number % 3 if label is None else label))


SOUND = own(0) + own(1) + own(2)


@pytest.fixture
def source(tmp_path):
    """What is read from files."""

    def of(files):
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
        return read(tmp_path)

    return of


def images(source, split="train"):
    part = source.splits[split]
    return list(part.images(range(len(part.labels))))


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("mnist_train.tfrecord", "train"),
        ("mnist_test.tfrecord", "test"),
        ("flowers_validation_00000-of-00001.tfrecord", "validation"),
        ("mnist-test.tfrecord-00000-of-00001", "test"),
        ("validation-00000-of-00001", "validation"),
        ("val-00000-of-00001", "validation"),
        ("TRAIN.tfrecord", "train"),
        ("valid.tfrecords", "validation"),
        ("train_signs_test.tfrecord", "test"),
        ("test_drive_train-00000-of-00001", "train"),
        ("train_2024.tfrecord", "train"),
        ("pets.val.tfrecords", "validation"),
        *dict.fromkeys(
            (
                "training.tfrecord",
                "trainer-00000-of-00001",
                "latest.tfrecord",
                "train.txt",
                "signs_test.txt",
                "notes",
            )
        ).items(),
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


def test_images_come_in_the_order_asked_for(source):
    part = source({"train.tfrecord": SOUND}).splits["train"]
    first, second = part.images([2, 0])
    assert (first, second) == (*part.images([2]), *part.images([0]))


def test_a_file_is_opened_once_for_images_that_follow_each_other(source, tmp_path):
    found = source({f"train-{number:05}-of-00002": SOUND for number in range(2)}).splits["train"]
    images = found.images([0, 2, 1, 3])
    first = next(images)
    (tmp_path / "train-00000-of-00002").unlink()
    assert [first, *images] == [*found.images([3]), *found.images([5]), *found.images([4]), *found.images([3])]


@pytest.mark.parametrize(
    "features", [{"image": [JPEG], "label": [1]}, {"image__encoded": [JPEG], "image__class__label": [1]}]
)
def test_the_keys_are_slims_or_those_of_tensorflow_datasets(source, features):
    assert source({"train.tfrecord": record(**features)}).splits["train"].labels.tolist() == [1]


def test_an_image_that_is_neither_png_nor_jpeg_is_reported_with_its_place(source):
    found = source({"train.tfrecord": own(0) + record(image=[b"GIF89a"], label=[0])})
    assert images(found)[1] == BadImage(
        filename=f"train.tfrecord at byte {len(own(0))}", reason="neither PNG nor JPEG"
    )


@pytest.mark.parametrize(
    ("lists", "classes"),
    [
        ({}, ("0", "1", "2")),
        ({"labels.txt": "0:cat\n1:dog\n2:owl\n"}, ("cat", "dog", "owl")),
        ({"labels.txt": "1:dog\n0:cat\n2:owl\n"}, ("cat", "dog", "owl")),
        ({"labels.txt": "0:background\n1:cat\n2:dog\n3:a:b\n"}, ("background", "cat", "dog", "a:b")),
        ({"label.labels.txt": "cat\ndog\nowl\n"}, ("cat", "dog", "owl")),
        ({"labels.txt": "a\nb\nc\nd\n"}, ("a", "b", "c", "d")),
    ],
    ids=["no list", "ids", "ids decide", "background", "tfds", "more than have examples"],
)
def test_the_classes_are_those_of_the_list_of_labels(source, lists, classes):
    assert (
        source({"train.tfrecord": SOUND} | {name: text.encode() for name, text in lists.items()}).classes
        == classes
    )


def test_another_process_can_read_the_images(source):
    part = source({"train.tfrecord": SOUND}).splits["train"]
    again = pickle.loads(pickle.dumps(part))
    assert list(again.images([1])) == list(part.images([1]))


def test_without_a_train_split_there_is_nothing_to_train_on(source):
    with pytest.raises(
        DataError, match=r"holds no TFRecords of a train split: its files are .*own_test\.tfrecord"
    ):
        source({"own_test.tfrecord": SOUND})


FLIPPED = bytearray(SOUND)
FLIPPED[len(own(0)) + 20] ^= 1
AT = len(own(0))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (SOUND[:-1], f"train.tfrecord record 2 at byte {2 * AT}: the last 1 bytes of the record are missing"),
        (bytes(FLIPPED), f"train.tfrecord record 1 at byte {AT}: the checksum of the record's data"),
        (SOUND + b"junk", f"train.tfrecord record 3 at byte {3 * AT}: 4 bytes of a header of 12"),
        (b"<html>no records</html>", "train.tfrecord record 0 at byte 0: the checksum of the record's length"),
        (own(0) + framing.frame(b""), f"train.tfrecord record 1 at byte {AT}: image/encoded is missing"),
        (own(0) + framing.frame(b"\xff" * 9), f"train.tfrecord record 1 at byte {AT}: not a tf.Example"),
        (record(image=[JPEG]), "train.tfrecord record 0 at byte 0: image/class/label is missing"),
        (
            record(image=[3], label=[1]),
            "train.tfrecord record 0 at byte 0: image is int64_list, expected bytes_list",
        ),
        (
            record(image=[JPEG], label=[1, 2]),
            "train.tfrecord record 0 at byte 0: label has 2 values, expected 1",
        ),
    ],
)
def test_a_damaged_record_is_reported_with_file_number_and_byte(source, content, message):
    with pytest.raises(DataError) as refused:
        source({"train.tfrecord": content})
    assert message in str(refused.value)


def test_every_cut_within_a_record_is_refused(tmp_path):
    accepted = []
    for size in set(range(len(SOUND))) - {0, AT, 2 * AT}:
        (tmp_path / "train.tfrecord").write_bytes(SOUND[:size])
        try:
            read(tmp_path)
        except DataError:
            continue
        accepted.append(size)
    assert accepted == []


@pytest.mark.parametrize("label", [-1, -(2**63)])
@pytest.mark.parametrize("labels", [{}, {"labels.txt": b"a\nb\nc\n"}], ids=["no list", "a list"])
def test_a_label_below_zero_is_refused(source, label, labels):
    with pytest.raises(DataError, match=r"label -"):
        source({"train.tfrecord": SOUND + own(0, label)} | labels)


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        (b"a\nb\n", "lists 2 classes, but there are labels up to 2"),
        (b"\xff\xfea\0", ""),
        (b"0:cat\n1:dog\n2:cat\n", "'cat'"),
        (b"0:cat\n2:dog\n", r"\b1\b"),
        (b"1:cat\n2:dog\n3:owl\n", r"\b0\b"),
        (b"0:cat\n1:dog\n1:owl\n2:eel\n", r"\b1\b"),
        (b"0:cat\n1:dog\nowl\n", "owl"),
        (b"0:cat\n1:\n2:owl\n", r"\b1\b"),
        (b"99999999999999999999:cat\n0:a\n1:b\n", "99999999999999999999"),
    ],
    ids=["short", "encoding", "class twice", "gap", "no class 0", "id twice", "no id", "no name", "huge id"],
)
def test_a_wrong_list_of_labels_is_refused_by_name(source, labels, named):
    with pytest.raises(DataError, match=rf"labels\.txt.*{named}"):
        source({"train.tfrecord": SOUND, "labels.txt": labels})


def test_a_label_beyond_the_list_in_another_split_is_refused(source):
    with pytest.raises(DataError, match=r"labels\.txt lists 3 classes, but there are labels up to 9"):
        source({"train.tfrecord": SOUND, "test.tfrecord": own(0, 9), "labels.txt": b"a\nb\nc\n"})


def test_a_folder_of_a_files_name_is_refused_or_passed_over(source, tmp_path):
    (tmp_path / "test.tfrecord").mkdir()
    try:
        found = list(source({"train.tfrecord": SOUND}).splits)
    except DataError:
        found = ["train"]
    assert found == ["train"]


@pytest.fixture
def own_folder(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    (tmp_path / "raw").mkdir()
    for name in ("a_train.tfrecord", "labels.txt", "notes.md", "a_test.tfrecord"):
        (folder / name).write_bytes(name.encode())
    return folder


def test_records_and_labels_are_collected_and_nothing_else(own_folder, tmp_path):
    collect(own_folder, tmp_path / "raw")
    found = {path.name: path.read_text() for path in (tmp_path / "raw").iterdir()}
    assert found == {name: name for name in ("a_train.tfrecord", "labels.txt", "a_test.tfrecord")}


def test_a_folder_without_records_is_refused(own_folder, tmp_path):
    for path in own_folder.glob("*.tfrecord"):
        path.unlink()
    with pytest.raises(DataError, match=r"holds no TFRecords: no file is named like mnist_train\.tfrecord"):
        collect(own_folder, tmp_path / "raw")


@pytest.mark.parametrize("name", ["absent", "own/labels.txt"])
def test_what_is_no_folder_is_refused(own_folder, tmp_path, name):
    with pytest.raises(DataError, match=r"is not a folder; dataset\.path must name one with TFRecords"):
        collect(tmp_path / name, tmp_path / "raw")


def test_a_set_of_shards_without_one_of_them_is_refused(source):
    names = ("pets-train.tfrecord-00000-of-00003", "pets-train.tfrecord-00002-of-00003")
    with pytest.raises(DataError, match=r"but not pets-train\.tfrecord-00001-of-00003"):
        source(dict.fromkeys(names, SOUND))


@pytest.mark.parametrize("name", ["train_signs.tfrecord", "test-v2-00000-of-00001", "train_test_all.tfrecord"])
def test_a_name_whose_split_is_ambiguous_is_refused(source, name):
    with pytest.raises(DataError, match=name):
        source({"own_train.tfrecord": SOUND, name: SOUND})
