"""Lists of classes in the forms of other programs, and text as other systems write it."""

import json

import pytest

from perennial.base.errors import DataError
from perennial.data.datasets.own import class_lists


@pytest.fixture
def classes(tmp_path):
    """The classes in lists of these names and contents."""

    def of(lists, used=(0, 1, 2)):
        for name, content in lists.items():
            (tmp_path / name).write_bytes(content)
        return class_lists.classes([tmp_path / name for name in sorted(lists)], {}, used)

    return of


LISTS = {
    "labels.txt": "cat\r\ndog \r\nowl\r\n\r\n",
    "classes.txt": "cat\rdog\rowl\r",
    "class_names.txt": "0 cat\n1 dog\n2 owl\n",
    "own_labels.txt": "2:\towl\n0: cat\n1:dog\n\n",
    "label_map.json": '{"0": "cat", "1": "dog", "2": "owl"}',
    "class_indices.json": '{"owl": 2, "cat": 0, "dog": 1}',
    "classes.json": '["cat", "dog", "owl"]',
    "pets_label_map.pbtxt": "".join(
        f"item {{\n  id: {number}\n  name: '/m/{number}' # known\n  display_name: \"{name}\"\n}}\n"
        for number, name in enumerate(("cat", "dog", "owl"))
    ),
    "image.labels.txt": "cat\ndog\nowl\n",
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_lists_of_classes_of_other_programs_are_read_as_meant(classes, name, encoding):
    assert classes({name: LISTS[name].encode(encoding)}) == ("cat", "dog", "owl")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("labels.txt", "café\nb\nc\n".encode("latin-1"), "is not UTF-8: byte 0xe9 in line 1.*save it as UTF-8"),
        ("labels.txt", "a\nb\nc".encode("utf-16-le"), "holds zero bytes; save it as UTF-8"),
        ("label_map.pbtxt", b"item { id: 1 ", "is not a label map"),
        ("label_map.pbtxt", b"item { id: 1 }", "an item without an id or a name"),
        ("labels.json", b'{"a": "b"}', "is not a list of classes: expected"),
        ("labels.json", b"{", "is not valid JSON"),
        ("labels.json", b"[" * 100_000, "is not valid JSON"),
        ("labels.txt", b"x" * (16 << 20) + b"x", "more than 16777216 bytes"),
        ("labels.txt", b"\n".join(b"%d" % n for n in range(3000)) + b"\n7", "names the class '7' twice"),
        ("labels.txt", b"a\nb\n", "lists 2 classes, but there are labels up to 2"),
        ("labels.txt", b"\xff\xfea\0", ""),
        ("labels.txt", b"0:cat\n1:dog\n2:cat\n", "'cat'"),
        ("labels.txt", b"0:cat\n2:dog\n", r"\b1\b"),
        ("labels.txt", b"1:cat\n2:dog\n3:owl\n", r"\b0\b"),
        ("labels.txt", b"0:cat\n1:dog\n1:owl\n2:eel\n", r"\b1\b"),
        ("labels.txt", b"0:cat\n1:dog\nowl\n", "owl"),
        ("labels.txt", b"0:cat\n1:\n2:owl\n", r"\b1\b"),
        ("labels.txt", b"99999999999999999999:cat\n0:a\n1:b\n", "99999999999999999999"),
    ],
)
def test_a_list_of_classes_that_cannot_be_read_is_refused_by_name(classes, name, content, message):
    with pytest.raises(DataError, match=rf"{name}.*{message}"):
        classes({name: content})


OTHERS = ("notes.txt", "train.txt", "dataset_info.json", "features.json")


@pytest.mark.parametrize(
    "name", [*LISTS, "Labels.TXT", "obj.names", "id2label.json", "flower-classes.txt", *OTHERS]
)
def test_lists_of_classes_are_known_by_their_names(name):
    assert class_lists.is_class_list(name) == (name not in OTHERS)


def test_control_characters_in_a_name_become_escapes():
    assert class_lists.class_name("a\nb\u202e é C:\\n") == "a\\nb\\u202e é C:\\n"
    assert class_lists.class_name(json.loads('"a\\ud800"')) == "a\\ud800"


NAMES = b"cat\ndog\nowl\n"


@pytest.mark.parametrize(
    ("lists", "used", "expected"),
    [
        ({"labels.txt": NAMES}, [0, 2], ("cat", "dog", "owl")),
        ({"labels.txt": b"0:cat\n1:dog\n2:owl\n"}, [1, 2], ("cat", "dog", "owl")),
        ({"labels.txt": b"background\ncat\ndog\n"}, [1, 2], ("background", "cat", "dog")),
        ({"label.labels.txt": NAMES}, [1, 2], ("cat", "dog", "owl")),
        ({"labels.json": b'{"cat": 0, "dog": 1, "owl": 2}'}, [1, 2], ("cat", "dog", "owl")),
        ({"labels.txt": b"3 of clubs\n4 of hearts\nace\n"}, [0, 1, 2], ("3 of clubs", "4 of hearts", "ace")),
    ],
)
def test_a_list_says_which_class_label_0_is(classes, lists, used, expected):
    assert classes(lists, used=used) == expected


@pytest.mark.parametrize(
    ("name", "content"), [("labels.txt", NAMES), ("classes.json", b'["cat", "dog", "owl"]')]
)
def test_a_list_without_ids_for_labels_from_1_may_be_shifted_and_is_refused(classes, name, content):
    with pytest.raises(DataError, match=r"'cat' may be label 0 or 1; write ids, as in 0:cat, or background"):
        classes({name: content}, used=[1, 2])
