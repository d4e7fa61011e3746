"""The validation report, and the images that are shown with it."""

import json

import numpy as np
import pytest
from support.raw import picture
from support.records import datum, write_folder

from perennial.config.data import SeverityConfig, ValidateConfig
from perennial.records import manifest
from perennial.validation import integrity, report
from perennial.validation.policy import Policy
from perennial.validation.problems import JUDGED_CODES, Problem

CLASSES = ["cat", "dog"]
CONFIG = ValidateConfig(
    decode="all",
    near_duplicate_bits=2,
    max_class_ratio=10,
    max_label_drift=0.05,
    max_brightness_drift=0.1,
    severity=SeverityConfig(**dict.fromkeys(JUDGED_CODES, "warn")),
)


def grey(value, label=0):
    return datum(np.full((4, 6), value, np.uint8), label)


def coloured(value, label=0):
    return datum(np.full((5, 3, 3), value, np.uint8), label)


@pytest.fixture
def reported(tmp_path):
    """The report on these training records."""

    def write(*train, problems=(), decode="all"):
        write_folder(tmp_path, {"train": [train]}, CLASSES)
        findings = integrity.check(tmp_path, decode=decode)
        for problem in problems:
            findings.problems.append(problem)
        data = manifest.load(tmp_path)
        policy = Policy(CONFIG, tmp_path, data, findings)
        return report.report(data, manifest.digest(tmp_path), findings, policy)

    return write


@pytest.mark.parametrize(
    ("severities", "ok"), [([], True), (["warn"], True), (["error"], False), (["warn", "error"], False)]
)
def test_a_report_is_ok_where_no_problem_is_an_error(reported, severities, ok):
    problems = [Problem(code="x", severity=severity, file="a", message="m") for severity in severities]
    assert reported(grey(1), problems=problems)["ok"] is ok


def test_a_report_is_json(reported):
    found = reported(grey(1), coloured(2))
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_sizes_are_those_of_the_smallest_and_largest(reported):
    found = reported(grey(1), coloured(2))["statistics"]
    assert [found[name] for name in ("height", "width", "channels")] == [[4, 5], [3, 6], [1, 3]]


def test_mean_and_deviation_are_those_of_all_pixels(reported):
    found = reported(grey(10), grey(30))["statistics"]
    assert (found["mean"], found["channel_mean"], found["channel_std"]) == (20.0, [20.0], [10.0])


def test_grey_images_among_coloured_ones_count_in_each_channel(reported):
    found = reported(datum(np.full((3, 5), 10, np.uint8), 0), coloured(30))["statistics"]
    assert found["channel_mean"] == [20.0] * 3


def test_images_are_counted_by_brightness(reported):
    found = reported(grey(0), grey(8), grey(255))["statistics"]["splits"]["train"]["brightness"]
    assert [place for place, count in enumerate(found) if count] == [0, 1, 31]


def test_where_no_image_is_decoded_there_is_no_mean(reported):
    found = reported(grey(1), decode="none")["statistics"]
    assert (found["mean"], found["height"]) == (None, [4, 4])


def test_the_first_images_of_each_class_are_samples(tmp_path):
    train = [datum(picture(number), number % 2) for number in range(40)]
    write_folder(tmp_path, {"train": [train[:5], train[5:]]}, CLASSES)
    places = integrity.check(tmp_path).spans
    samples = report.samples(tmp_path, manifest.load(tmp_path), places)
    assert {name: len(images) for name, images in samples.items()} == {
        "cat": report.SAMPLES,
        "dog": report.SAMPLES,
    }
    assert samples["dog"][0].encoded in train[1]


def test_a_class_without_examples_has_no_samples(tmp_path):
    write_folder(tmp_path, {"train": [[grey(1)]]}, CLASSES)
    places = integrity.check(tmp_path).spans
    assert report.samples(tmp_path, manifest.load(tmp_path), places)["dog"] == []


def test_only_so_many_records_are_searched_for_samples(tmp_path):
    write_folder(tmp_path, {"train": [[grey(1)] * 3, [grey(2)] * 3, [grey(3)] * 3]}, CLASSES)
    places = integrity.check(tmp_path).spans
    assert len(report.samples(tmp_path, manifest.load(tmp_path), places, 3)["cat"]) == 3


def test_records_without_a_train_split_have_no_samples(tmp_path):
    write_folder(tmp_path, {"test": [[grey(1)]]}, CLASSES)
    places = integrity.check(tmp_path).spans
    assert report.samples(tmp_path, manifest.load(tmp_path), places) == {"cat": [], "dog": []}


FILE = "pets_train_00000-of-00001.tfrecord"


@pytest.fixture
def flagged(tmp_path):
    """The image that is shown for a problem of a record, of which there is one."""

    def image(data, record=0):
        write_folder(tmp_path, {"train": [[grey(1)]]}, CLASSES)
        places = integrity.check(tmp_path).spans
        content = bytearray((tmp_path / FILE).read_bytes())
        content[12 : 12 + len(data)] = data
        (tmp_path / FILE).write_bytes(content)
        problem = Problem(code="schema", file=FILE, record=record, offset=0, message="m")
        ((_, found),) = report.flagged(tmp_path, [problem], places)
        return found

    return image


def test_a_flagged_record_is_shown_with_its_image(flagged):
    assert flagged(b"").height == 4


@pytest.mark.parametrize("data", [b"\xff" * 20, bytes(150)])
def test_a_flagged_record_that_cannot_be_read_is_shown_without_one(flagged, data):
    assert flagged(data) is None


def test_a_flagged_record_that_is_not_there_is_shown_without_an_image(flagged):
    assert flagged(b"", record=7) is None


def test_problems_that_are_of_no_record_are_not_shown(tmp_path):
    assert report.flagged(tmp_path, [Problem(code="x", file="a", message="m")], {}) == []


def test_only_the_first_flagged_records_are_shown(tmp_path):
    problems = [Problem(code="x", file="a", record=number, offset=0, message="m") for number in range(500)]
    assert len(report.flagged(tmp_path, problems, {})) == report.FLAGGED
