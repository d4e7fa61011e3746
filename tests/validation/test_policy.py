"""What is a matter of judgement: what is found, where it is said to be, and how much of it is listed."""

import io
import re
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from support.raw import encoded, picture
from support.records import datum, image, offsets_in, write_folder

from perennial.config.data import SeverityConfig, ValidateConfig
from perennial.images import Image
from perennial.records import manifest
from perennial.tfrecord import example
from perennial.validation import integrity
from perennial.validation.baseline import DataStatistics
from perennial.validation.policy import Policy
from perennial.validation.problems import JUDGED_CODES

CLASSES = ["cat", "dog"]
SPLITS = ("train", "validation", "test")
SHORT = {f"pets_{split}_00000-of-00001.tfrecord": split for split in SPLITS}
READING = [(split, record) for split in SPLITS for record in range(100)]


def config(severity="warn", **changes):
    values = {
        "decode": "all",
        "near_duplicate_bits": 2,
        "max_class_ratio": 10,
        "max_label_drift": 0.05,
        "max_brightness_drift": 0.1,
        "severity": SeverityConfig(**dict.fromkeys(JUDGED_CODES, severity)),
    }
    return ValidateConfig(**(values | changes))


def pictures(numbers, side=40):
    """Records of these pictures, the classes in turn."""
    return [datum(picture(number, side), place % 2) for place, number in enumerate(numbers)]


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

    def judge(settings=None, listed=200, **splits):
        settings = settings or config()
        write_folder(tmp_path, {split: [data] for split, data in splits.items()}, CLASSES)
        findings = integrity.check(tmp_path, decode=settings.decode, fingerprints=True)
        found = Policy(settings, tmp_path, manifest.load(tmp_path), findings, listed)
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


def test_different_pictures_are_no_duplicates(judged):
    found = judged(train=pictures(range(20)), validation=pictures([20, 21]), test=pictures([22, 23]))
    assert reported(found) == []


def test_ten_planted_duplicates_across_splits_are_ten_problems(judged):
    found = judged(
        train=pictures(range(30)), validation=pictures([90, 91]), test=pictures([*range(40, 60), *range(5, 15)])
    )
    assert reported(found) == [
        ("duplicate_across_splits", ("train", 5 + number), ("test", 20 + number)) for number in range(10)
    ]


def test_a_duplicate_names_both_its_places(judged):
    found = judged(train=pictures(range(8)), validation=pictures([90, 91]), test=pictures([40, 5]))
    assert reported(found) == [("duplicate_across_splits", ("train", 5), ("test", 1))]


def test_a_duplicate_has_the_offset_of_its_record(judged, tmp_path):
    found = judged(train=pictures(range(8)), validation=pictures([90, 91]), test=pictures([40, 5]))
    (problem,) = found.findings.problems
    assert problem.offset == offsets_in((tmp_path / problem.file).read_bytes())[problem.record]


@pytest.mark.parametrize("level", [0, 9])
def test_the_same_pixels_in_other_bytes_are_found(judged, level):
    train = pictures(range(8))
    test = [datum(picture(41), 0), squeezed(train[3], compress_level=level)]
    found = judged(train=train, validation=pictures([90, 91]), test=test)
    assert reported(found) == [("duplicate_across_splits", ("train", 3), ("test", 1))]


def test_the_same_bytes_are_found_where_not_all_images_are_decoded(judged):
    settings = config(decode="sample")
    found = judged(settings, train=pictures(range(8)), validation=pictures([90, 91]), test=pictures([40, 5]))
    assert reported(found) == [("duplicate_across_splits", ("train", 5), ("test", 1))]


def test_the_same_picture_with_another_label_is_a_duplicate(judged):
    test = [datum(picture(2), 1), datum(picture(40), 0)]
    found = judged(train=pictures(range(8)), validation=pictures([90, 91]), test=test)
    assert reported(found) == [("duplicate_across_splits", ("train", 2), ("test", 0))]


def test_a_picture_that_comes_twice_in_a_split_is_found_there(judged):
    found = judged(train=pictures([*range(8), 3]), validation=pictures([90, 91]), test=pictures([40, 41]))
    assert reported(found) == [("duplicate_in_split", ("train", 3), ("train", 8))]


def test_a_picture_that_comes_three_times_is_found_twice(judged):
    found = judged(train=pictures([*range(8), 3, 3]), validation=pictures([90, 91]), test=pictures([40, 41]))
    assert reported(found) == [
        ("duplicate_in_split", ("train", 3), ("train", 8)),
        ("duplicate_in_split", ("train", 3), ("train", 9)),
    ]


def test_a_picture_in_all_three_splits_is_found_twice(judged):
    found = judged(train=pictures(range(8)), validation=pictures([90, 3]), test=pictures([40, 3]))
    named = {place for _, *pair in reported(found) for place in pair}
    assert (len(reported(found)), named) == (2, {("train", 3), ("validation", 1), ("test", 1)})


def test_of_many_duplicates_only_the_first_are_listed_but_all_are_counted(judged):
    found = judged(listed=4, train=pictures(range(10)), validation=pictures([90, 91]), test=pictures(range(10)))
    assert (len(reported(found)), found.findings.codes["duplicate_across_splits"]) == (4, 10)


def test_what_is_ignored_is_not_even_counted(judged):
    settings = config(severity="ignore")
    found = judged(settings, train=pictures(range(8)), validation=pictures([90, 91]), test=pictures(range(4)))
    assert (reported(found), dict(found.findings.codes)) == ([], {})


def brighter(data):
    """The record with a picture that looks the same and is another."""
    fields, image = example.parse(data)
    pixels = np.clip(np.array(decoded(image)).astype(int) + 1, 0, 255).astype(np.uint8)
    return datum(pixels, fields.label)


def test_a_picture_that_looks_like_one_of_another_split_is_found(judged):
    train = pictures(range(8))
    found = judged(train=train, validation=pictures([90, 91]), test=[brighter(train[2]), datum(picture(41), 1)])
    assert reported(found) == [("near_duplicate", ("train", 2), ("test", 0))]


def test_near_duplicates_within_a_split_are_ignored(judged):
    train = pictures(range(8))
    found = judged(train=[*train, brighter(train[2])], validation=pictures([90, 91]), test=pictures([40, 41]))
    assert reported(found) == []


def test_the_search_for_near_duplicates_can_be_switched_off(judged):
    train, settings = pictures(range(8)), config(near_duplicate_bits=None)
    test = [brighter(train[2]), datum(picture(41), 1)]
    assert reported(judged(settings, train=train, validation=pictures([90, 91]), test=test)) == []


def test_tiny_images_are_no_near_duplicates(judged):
    train = pictures(range(8), side=20)
    test = [brighter(train[2]), datum(picture(41, 20), 1)]
    assert reported(judged(train=train, validation=pictures([90, 91], 20), test=test)) == []


def test_tiny_images_among_larger_ones_are_left_out_one_by_one_and_counted(judged):
    large, tiny = pictures(range(8)), pictures(range(20, 24), side=31)
    test = [brighter(large[2]), brighter(tiny[1]), brighter(tiny[2]), datum(picture(41), 1)]
    found = judged(train=[*tiny, *large], validation=pictures([90, 91]), test=test)
    assert reported(found) == [("near_duplicate", ("train", 6), ("test", 0))]
    assert found.duplicates["tiny_images_not_compared"] == 6


def test_images_that_were_not_decoded_are_not_called_tiny(judged):
    found = judged(config(decode="sample"), train=pictures(range(8), side=20))
    assert "tiny_images_not_compared" not in found.duplicates


def named(number, label, name):
    pixels = picture(number, 40)
    return example.serialize(image(pixels)._replace(filename=name), label)


def test_duplicates_are_reported_with_their_file_names(judged):
    train = [named(number, number % 2, f"cat/{number}.jpg") for number in range(4)]
    test = [named(2, 0, "dog/\x1bcopy.jpg"), datum(picture(41), 1)]
    found = judged(train=train, validation=pictures([90, 91]), test=test)
    (problem,) = found.findings.problems
    assert problem.message.endswith(
        "record 2 of pets_train_00000-of-00001.tfrecord (train); images dog/\\x1bcopy.jpg and cat/2.jpg"
    )


def test_a_class_without_an_example_is_named_with_its_split(judged):
    found = judged(train=pictures(range(8)), validation=pictures([90, 91]), test=pictures([40]))
    (problem,) = found.findings.problems
    assert (problem.code, problem.message) == ("class_missing", "class dog has no example in test")


@pytest.mark.parametrize(("cats", "codes"), [(20, []), (21, ["class_imbalance"])])
def test_classes_may_differ_by_the_ratio_that_is_allowed(judged, cats, codes):
    train = [datum(picture(number), 0) for number in range(cats)] + [
        datum(picture(100), 1),
        datum(picture(101), 1),
    ]
    found = judged(train=train, validation=pictures([90, 91]), test=pictures([80, 81]))
    assert [one.code for one in found.findings.problems] == codes


def test_the_measurements_are_kept_whether_or_not_they_are_too_much(judged):
    found = judged(train=pictures([*range(8), 3]), validation=pictures([90, 91]), test=pictures([40, 5]))
    assert found.duplicates == {
        "groups_across_splits": 1,
        "groups_in_a_split": 1,
        "near_pairs": 0,
        "near_pairs_are_all": True,
        "tiny_images_not_compared": 0,
    }


def version(per_class, brightness=(10,) + (0,) * 31):
    return DataStatistics(manifest="ab" * 32, per_class=per_class, brightness=list(brightness))


def drift(settings, now, before):
    data = manifest.Manifest(dataset="pets", classes=CLASSES, source={}, splits={})
    found = Policy(settings, Path("records"), data, integrity.Findings())
    found.check_drift(now, before)
    return found


@pytest.mark.parametrize(("limit", "codes"), [(0.05, ["drift_labels"]), (0.0999, ["drift_labels"]), (0.1, [])])
def test_labels_may_shift_by_as_much_as_is_allowed(limit, codes):
    found = drift(
        config(max_label_drift=limit), version({"cat": 60, "dog": 40}), version({"cat": 50, "dog": 50})
    )
    assert [one.code for one in found.findings.problems] == codes


def test_label_drift_is_reported_with_class_change_and_version():
    found = drift(config(), version({"cat": 60, "dog": 40}), version({"cat": 50, "dog": 50}))
    (problem,) = found.findings.problems
    assert problem.message == (
        "the share of class cat changed by 0.100 since the version with manifest abababababab; "
        "expected at most 0.05"
    )


def test_a_new_class_is_a_shift_of_labels():
    found = drift(config(), version({"cat": 45, "dog": 45, "owl": 10}), version({"cat": 50, "dog": 50}))
    assert [one.code for one in found.findings.problems] == ["drift_labels"]


def test_a_class_without_an_example_now_or_before_is_no_shift():
    found = drift(config(), version({"cat": 5, "dog": 5, "owl": 0}), version({"cat": 5, "dog": 5}))
    assert reported(found) == []


@pytest.mark.parametrize(("moved", "codes"), [(10, []), (11, ["drift_brightness"])])
def test_images_may_become_brighter_by_as_much_as_is_allowed(moved, codes):
    now, before = (100 - moved, moved, *[0] * 30), (100, *[0] * 31)
    found = drift(config(), version({"cat": 1}, now), version({"cat": 1}, before))
    assert [one.code for one in found.findings.problems] == codes


def test_where_no_image_was_decoded_brightness_is_not_compared():
    found = drift(config(), version({"cat": 1}, [0] * 32), version({"cat": 1}, (0, 9, *[0] * 30)))
    assert (reported(found), list(found.drift)) == ([], ["since", "labels"])


def test_without_a_version_before_nothing_has_drifted():
    assert drift(config(), version({"cat": 1}), None).drift is None
