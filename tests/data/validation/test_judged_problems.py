"""What is a matter of judgement: what is found, where it is said to be, and how much of it is listed."""

import io
import re
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from data.validation.reports import config
from support.raw import encoded, picture
from support.records import datum, image, offsets_in, write_folder

from perennial.data.images import Image
from perennial.data.records import manifest
from perennial.data.tfrecord import example
from perennial.data.validation import integrity, judged_problems
from perennial.data.validation.drift import DataStatistics

CLASSES = ["cat", "dog"]
SPLITS = ("train", "validation", "test")
SHORT = {f"pets_{split}_00000-of-00001.tfrecord": split for split in SPLITS}
READING = [(split, record) for split in SPLITS for record in range(100)]


def pictures(numbers, side=40):
    """Records of these pictures; even numbers are cats."""
    return [datum(picture(number, side), number % 2) for number in numbers]


def squeezed(data, **options):
    """The record with its image compressed, its pixels the same."""
    fields, image = example.parse(data)
    pixels = np.array(decoded(image))
    packed = Image(
        encoded=encoded(pixels, "PNG", **options), format="png", height=fields.height, width=fields.width
    )
    return example.serialize(packed, fields.label)


def decoded(image):
    return PIL.Image.open(io.BytesIO(image))


@pytest.fixture
def judged(tmp_path):
    """What is said of the records of each split."""

    def judge(settings=None, classes=CLASSES, **splits):
        settings = settings or config()
        write_folder(tmp_path, {split: [data] for split, data in splits.items()}, classes)
        findings = integrity.check(tmp_path, decode=settings.decode, fingerprints=tmp_path)
        found = judged_problems.Policy(settings, tmp_path, manifest.load(tmp_path), findings)
        found.check_balance()
        found.check_duplicates()
        return found

    return judge


def reported(found):
    """The code of each problem, and the places of the two records that are alike, in reading order."""
    return [(one.code, *sorted(places(one), key=READING.index)) for one in found.findings.problems]


def places(problem):
    twin = re.search(r"record (\d+) of (\S+) \(", problem.message)
    both = [(problem.file, problem.record)] + ([(twin[2], int(twin[1]))] if twin else [])
    return [(SHORT[file], record) for file, record in both if file in SHORT]


def brighter(data):
    """The record with a picture that looks the same and is another."""
    fields, image = example.parse(data)
    pixels = np.clip(np.array(decoded(image)).astype(int) + 1, 0, 255).astype(np.uint8)
    return datum(pixels, fields.label)


TRAIN, VALIDATION, OTHER = pictures(range(8)), pictures([90, 91]), datum(picture(41), 1)
CAT, DOG = datum(picture(41), 0), datum(picture(2), 1)
THIRD = [("duplicate_across_splits", ("train", 3), ("test", 1))]
TINY = {"train": pictures(range(8), 20), "validation": pictures([90, 91], 20)}
ACROSS, WITHIN, NEAR = "duplicate_across_splits", "duplicate_in_split", "near_duplicate"
# Changed parameters, records that differ from TRAIN, VALIDATION and two others to test on; what is reported.
CONFLICT = "label_conflict"
DUPLICATES = {
    "none": ({}, {}, []),
    "ten planted ones": (
        {},
        {"train": pictures(range(30)), "test": pictures([*range(40, 60), *range(5, 15)])},
        [(ACROSS, ("train", 5 + number), ("test", 20 + number)) for number in range(10)],
    ),
    "not compressed": ({}, {"test": [CAT, squeezed(TRAIN[3], compress_level=0)]}, THIRD),
    "compressed": ({}, {"test": [CAT, squeezed(TRAIN[3], compress_level=9)]}, THIRD),
    "equal bytes, few decoded": (
        {"decode": "sample"}, {"test": pictures([40, 5])}, [(ACROSS, ("train", 5), ("test", 1))]
    ),
    "another label across splits": (
        {"severity": "error"}, {"test": [DOG, CAT]}, [(CONFLICT, ("train", 2), ("test", 0))]
    ),
    "another label in a split": (
        {"severity": "error"}, {"train": [*TRAIN, DOG]}, [(CONFLICT, ("train", 2), ("train", 8))]
    ),
    "another label, no error": (
        {}, {"test": [DOG, CAT]}, [(CONFLICT, ("train", 2), ("test", 0)), (ACROSS, ("train", 2), ("test", 0))]
    ),
    "another label, equal bytes": (
        {"decode": "sample", "severity": "error"}, {"test": [DOG, CAT]}, [(CONFLICT, ("train", 2), ("test", 0))]
    ),
    "another label, other bytes": (
        {"severity": "error"},
        {"test": [squeezed(DOG, compress_level=9), CAT]},
        [(CONFLICT, ("train", 2), ("test", 0))],
    ),
    "both labels twice": (
        {"severity": "error"},
        {"train": [*TRAIN, TRAIN[2], DOG]},
        [(WITHIN, ("train", 2), ("train", 8)), (CONFLICT, ("train", 2), ("train", 9))],
    ),
    "three in a split": (
        {},
        {"train": pictures([*range(8), 3, 3])},
        [(WITHIN, ("train", 3), ("train", 8)), (WITHIN, ("train", 3), ("train", 9))],
    ),
    "one in each split": (
        {},
        {"validation": pictures([90, 3]), "test": pictures([40, 3])},
        [(ACROSS, ("train", 3), ("validation", 1)), (ACROSS, ("train", 3), ("test", 1))],
    ),
    "ignored": ({"severity": "ignore"}, {"test": pictures(range(4))}, []),
    "near": ({}, {"test": [brighter(TRAIN[2]), OTHER]}, [(NEAR, ("train", 2), ("test", 0))]),
    "near within a split": ({}, {"train": [*TRAIN, brighter(TRAIN[2])]}, []),
    "near, switched off": ({"near_duplicate_bits": None}, {"test": [brighter(TRAIN[2]), OTHER]}, []),
    "tiny": ({}, {**TINY, "test": [brighter(TINY["train"][2]), datum(picture(41, 20), 1)]}, []),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "splits", "expected"), DUPLICATES.values(), ids=DUPLICATES)
def test_duplicates_are_reported_with_both_places(judged, tmp_path, settings, splits, expected):
    records = {"train": TRAIN, "validation": VALIDATION, "test": pictures([40, 41])} | splits
    found = judged(config(**settings), **records)
    assert reported(found) == expected
    assert sum(found.findings.codes.values()) == len(expected)  # what is ignored is not even counted
    for problem in found.findings.problems:
        assert problem.offset == offsets_in((tmp_path / problem.file).read_bytes())[problem.record]


def test_of_many_duplicates_only_the_first_are_listed_but_all_are_counted(judged, monkeypatch):
    monkeypatch.setattr(judged_problems, "LISTED", 4)
    found = judged(train=pictures(range(10)), validation=VALIDATION, test=pictures(range(10)))
    assert (len(reported(found)), found.findings.codes[ACROSS]) == (4, 10)


def test_tiny_images_among_larger_ones_are_left_out_one_by_one_and_counted(judged):
    tiny = pictures(range(20, 24), side=31)
    test = [brighter(TRAIN[2]), brighter(tiny[1]), brighter(tiny[2]), OTHER]
    found = judged(train=[*tiny, *TRAIN], validation=VALIDATION, test=test)
    assert reported(found) == [(NEAR, ("train", 6), ("test", 0))]
    assert found.duplicates["tiny_images_not_compared"] == 6
    assert "tiny_images_not_compared" not in judged(config(decode="sample"), train=tiny).duplicates


def named(number, label, name):
    pixels = picture(number, 40)
    return example.serialize(image(pixels)._replace(filename=name), label)


PLACE = "record 2 of pets_train_00000-of-00001.tfrecord (train); images dog/\\x1bcopy.jpg and cat/2.jpg"


@pytest.mark.parametrize(
    ("label", "code", "message"),
    [
        (0, ACROSS, f"the same image as {PLACE}"),
        (1, CONFLICT, f"labelled 'dog', but the same image is labelled 'cat' in {PLACE}"),
    ],
)
def test_duplicates_are_reported_with_their_file_names_and_labels(judged, label, code, message):
    train = [named(number, number % 2, f"cat/{number}.jpg") for number in range(4)]
    test = [named(2, label, "dog/\x1bcopy.jpg"), datum(picture(41), 1 - label)]
    found = judged(config(severity="error"), train=train, validation=pictures([90, 91]), test=test)
    (problem,) = found.findings.problems
    assert (problem.code, problem.severity, problem.message) == (code, "error", message)


def test_a_class_without_an_example_is_named_with_its_split(judged):
    found = judged(train=TRAIN, validation=VALIDATION, test=pictures([40]))
    (problem,) = found.findings.problems
    assert (problem.code, problem.message) == ("class_missing", "class dog has no example in test")


@pytest.mark.parametrize(("cats", "codes"), [(20, []), (21, ["class_imbalance"])])
def test_classes_may_differ_by_the_ratio_that_is_allowed(judged, cats, codes):
    train = [datum(picture(number), int(number >= cats)) for number in range(cats + 2)]
    found = judged(train=train, validation=VALIDATION, test=pictures([80, 81]))
    assert [one.code for one in found.findings.problems] == codes


def test_the_measurements_are_kept_whether_or_not_they_are_too_much(judged):
    found = judged(train=pictures([*range(8), 3]), validation=pictures([90, 91]), test=pictures([40, 5]))
    assert found.duplicates == {
        "groups_across_splits": 1, "groups_in_a_split": 1, "near_pairs": 0, "near_pairs_are_all": True,
        "tiny_images_not_compared": 0,
    }  # fmt: skip


def version(per_class, brightness=(10,) + (0,) * 31):
    return DataStatistics(manifest="ab" * 32, per_class=per_class, brightness=list(brightness))


def drift(settings, now, before):
    data = manifest.Manifest(dataset="pets", classes=CLASSES, source={}, splits={})
    found = judged_problems.Policy(settings, Path("records"), data, integrity.Findings())
    found.check_drift(now, before)
    return found


MOVED = (100, *[0] * 31)
EQUAL = {"cat": 50, "dog": 50}


@pytest.mark.parametrize(
    ("limits", "now", "before", "codes"),
    [
        ({}, version({"cat": 60, "dog": 40}), version(EQUAL), ["drift_labels"]),
        ({"max_label_drift": 0.0999}, version({"cat": 60, "dog": 40}), version(EQUAL), ["drift_labels"]),
        ({"max_label_drift": 0.1}, version({"cat": 60, "dog": 40}), version(EQUAL), []),
        ({}, version({"cat": 45, "dog": 45, "owl": 10}), version(EQUAL), ["drift_labels"]),
        ({}, version({"cat": 5, "dog": 5, "owl": 0}), version({"cat": 5, "dog": 5}), []),
        ({}, version({"cat": 1}, (90, 10, *[0] * 30)), version({"cat": 1}, MOVED), []),
        ({}, version({"cat": 1}, (89, 11, *[0] * 30)), version({"cat": 1}, MOVED), ["drift_brightness"]),
    ],
)
def test_labels_and_brightness_may_change_by_as_much_as_is_allowed(limits, now, before, codes):
    found = drift(config(**limits), now, before)
    assert [one.code for one in found.findings.problems] == codes


def test_label_drift_is_reported_with_class_change_and_version():
    found = drift(config(), version({"cat": 60, "dog": 40}), version(EQUAL))
    (problem,) = found.findings.problems
    assert problem.message == (
        "the share of class cat changed by 0.100 since the version with manifest abababababab; "
        "expected at most 0.05"
    )


def test_what_was_not_measured_has_not_drifted():
    found = drift(config(), version({"cat": 1}, [0] * 32), version({"cat": 1}, (0, 9, *[0] * 30)))
    assert (reported(found), list(found.drift)) == ([], ["since", "labels"])
    assert drift(config(), version({"cat": 1}), None).drift is None


@pytest.mark.parametrize(
    ("classes", "empty", "codes"),
    [
        (["background", "cat", "dog"], 0, []),
        (["sky", "cat", "dog"], 0, ["class_missing"]),
        (["cat", "background", "dog"], 1, ["class_missing"]),
    ],
)
def test_a_class_without_examples_is_missing_unless_it_is_a_leading_background(classes, empty, codes, judged):
    kept = [label for label in range(3) if label != empty]
    found = judged(classes=classes, train=[datum(picture(number), kept[number % 2]) for number in range(4)])
    assert [problem.code for problem in found.findings.problems] == codes
