"""Labels to check and copies in two splits, with their images."""

import pytest
from support import finished

from perennial.base import documents
from perennial.data.records import manifest
from perennial.reports.report import suspects
from perennial.reports.report.report_page import write
from perennial.reports.report.summary import details

pytestmark = pytest.mark.usefixtures("undrawn")


def found(config):
    return suspects.label_errors(config, manifest.digest(config.paths.records), finished.MODEL)


def test_labels_that_are_likely_wrong_are_shown_with_their_images(config):
    listed = documents.read_json(config.paths.label_errors)["listed"]
    shown = found(config)
    assert shown.likely == len(shown.listed) == len(listed) > 0
    assert [(one.number, one.answers[1][2]) for one in shown.listed] == [
        (one["record"], one["label"]) for one in listed
    ]
    assert all(one.image.uri.startswith("data:image/png") for one in shown.listed)
    write(config)
    assert f"labelled {listed[0]['label']}, perhaps {listed[0]['suggested']}" in config.paths.report.read_text()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"above_chance": False}, "No labels are listed: the model is not clearly better than always"),
        ({"above_chance": True}, "predicts another class, it is less sure than it usually is of that class"),
        (None, "Missing: metrics/label_errors.json of this model"),
    ],
)
def test_the_page_says_why_no_labels_are_listed(config, changes, said):
    if changes is None:
        config.paths.label_errors.unlink()
    else:
        finished.change(config.paths.label_errors, likely=0, listed=[], **changes)
    write(config)
    assert said in config.paths.report.read_text()


@pytest.mark.parametrize("content", [None, b"", b"[]", b'{"data": 1}', b'{"listed": 7}'])
def test_a_missing_or_damaged_list_is_not_read(config, content):
    config.paths.label_errors.unlink()
    if content is not None:
        config.paths.label_errors.write_bytes(content)
    assert found(config) is None


def test_the_list_of_another_model_and_copies_of_other_data_are_not_shown(config):
    finished.change(config.paths.label_errors, model="another")
    finished.change(config.paths.validation, statistics={"manifest": "another"})
    assert (found(config), suspects.copies(config)) == (None, None)


def test_copies_are_shown_side_by_side_and_advised_against(config):
    shards = manifest.load(config.paths.records).splits
    test, train = (shards[split].shards[0].file for split in ("test", "train"))
    pair = {
        "code": "near_duplicate", "severity": "warn", "file": test, "record": 1, "offset": 0, "message": "m",
        "like": {"file": train, "record": 2},
    }  # fmt: skip
    finished.change(config.paths.validation, problems=[pair], problem_counts={"near_duplicate": 3})
    copies = suspects.copies(config)
    assert copies.pairs == 3
    assert [side.place for side in copies.listed[0]] == [f"{test} record 1", f"{train} record 2"]
    assert all(side.image.uri for side in copies.listed[0])
    write(config)
    page = config.paths.report.read_text()
    assert "Copies in two splits" in page
    assert "copies_across_splits" in page
    assert "copies_across_splits" in [each["code"] for each in details(config)["advice"]]
