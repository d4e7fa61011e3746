"""The validation report, and the images that are shown with it."""

import numpy as np
import pytest
from data.validation import reports
from support.raw import picture
from support.records import datum, write_folder

from perennial.data.records import manifest
from perennial.data.validation import integrity, validation_report
from perennial.data.validation.judged_problems import Policy
from perennial.data.validation.problems import Problem

CLASSES = ["cat", "dog"]


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
        policy = Policy(reports.config(), tmp_path, data, findings)
        return validation_report.report(data, manifest.digest(tmp_path), findings, policy)

    return write


@pytest.mark.parametrize(
    ("severities", "ok"), [([], True), (["warn"], True), (["error"], False), (["warn", "error"], False)]
)
def test_a_report_is_ok_where_no_problem_is_an_error(reported, severities, ok):
    problems = [Problem(code="x", severity=severity, file="a", message="m") for severity in severities]
    assert reported(grey(1), problems=problems)["ok"] is ok


@pytest.mark.parametrize(
    ("train", "facts"),
    [
        ([grey(1), coloured(2)], {"height": [4, 5], "width": [3, 6], "channels": [1, 3]}),
        ([grey(10), grey(30)], {"mean": 20.0, "channel_mean": [20.0], "channel_std": [10.0]}),
        ([datum(np.full((3, 5), 10, np.uint8), 0), coloured(30)], {"channel_mean": [20.0] * 3}),
    ],
)
def test_statistics_are_those_of_all_images_and_pixels(reported, train, facts):
    assert facts.items() <= reported(*train)["statistics"].items()


def test_images_are_counted_by_brightness(reported):
    found = reported(grey(0), grey(8), grey(255))["statistics"]["splits"]["train"]["brightness"]
    assert [place for place, count in enumerate(found) if count] == [0, 1, 31]


def test_where_no_image_is_decoded_there_is_no_mean(reported):
    found = reported(grey(1), decode="none")["statistics"]
    assert (found["mean"], found["height"]) == (None, [4, 4])


@pytest.fixture
def sampled(tmp_path):
    """Samples of shards of records to train on, or of records that are only to test on."""

    def write(*train, split="train"):
        write_folder(tmp_path, {split: train}, CLASSES)
        spans = integrity.check(tmp_path).spans
        return validation_report.samples(tmp_path, manifest.load(tmp_path), spans)

    return write


def test_the_first_images_of_each_class_are_samples(sampled):
    train = [datum(picture(number), number % 2) for number in range(40)]
    samples = sampled(train[:5], train[5:])
    assert {name: len(images) for name, images in samples.items()} == dict.fromkeys(
        CLASSES, validation_report.SAMPLES
    )
    assert samples["dog"][0].encoded in train[1]


def test_a_class_without_training_examples_has_no_samples(sampled):
    assert sampled([grey(1)])["dog"] == []
    assert sampled([grey(1)], split="test") == {"cat": [], "dog": []}


def test_only_so_many_records_are_searched_for_samples(sampled, monkeypatch):
    monkeypatch.setattr(validation_report, "SAMPLE_RECORDS", 3)
    assert len(sampled([grey(1)] * 3, [grey(2)] * 3, [grey(3)] * 3)["cat"]) == 3


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
        ((_, (found,)),) = validation_report.flagged(tmp_path, [problem], places)
        return found

    return image


@pytest.mark.parametrize(
    ("data", "record", "shown"),
    [(b"", 0, True), (b"\xff" * 20, 0, False), (bytes(150), 0, False), (b"", 7, False)],
)
def test_a_flagged_record_is_shown_with_its_image_if_that_can_be_read(flagged, data, record, shown):
    assert (flagged(data, record) is not None) == shown


def test_only_the_first_problems_of_records_are_shown(tmp_path):
    problems = [Problem(code="x", file="a", record=number, offset=0, message="m") for number in range(500)]
    assert len(validation_report.flagged(tmp_path, problems, {})) == validation_report.FLAGGED
    assert validation_report.flagged(tmp_path, [Problem(code="x", file="a", message="m")], {}) == []
