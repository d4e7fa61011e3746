"""The validate stage: report, page and index, and the exit when something is wrong."""

import json
import shutil

import numpy as np
import pytest
from support.raw import TEST_FROM, picture
from support.records import datum, write_folder

from perennial.base import documents, files
from perennial.base.config.data import SeverityConfig
from perennial.base.errors import DataError
from perennial.data.records import manifest
from perennial.data.validation import drift
from perennial.stages.convert import convert
from perennial.stages.validate import validate

SHARD = "mnist_train_00000-of-00001.tfrecord"


@pytest.fixture
def valid(small):
    """Parameters with valid records."""
    convert(small)
    return small


@pytest.fixture
def damaged(valid):
    """Parameters with records of which one bit was flipped after a first validation."""
    validate(valid)
    damage(valid, 30)
    return valid


def damage(config, *places):
    file = config.paths.records / SHARD
    content = bytearray(file.read_bytes())
    for place in places:
        content[place] ^= 1
    file.write_bytes(content)


def report(config):
    return documents.read_json(config.paths.validation)


def outputs(config):
    """The bytes of all that validation writes."""
    paths = config.paths
    written = [paths.validation, paths.validation_page, *sorted(paths.index.iterdir())]
    return {path.name: path.read_bytes() for path in written}


def test_valid_records_get_a_report_a_page_and_an_index_and_stay_untouched(valid):
    before = {path.name: path.read_bytes() for path in valid.paths.records.iterdir()}
    validate(valid)
    found, facts = report(valid), report(valid)["statistics"]
    assert {"ok": True, "problems": [], "problem_counts": {}}.items() <= found.items()
    assert found["examples"] == {"train": 30, "validation": 10, "test": 20}
    assert {split: part["per_class"] for split, part in facts["splits"].items()} == {
        "train": [3] * 10,
        "validation": [1] * 10,
        "test": [2] * 10,
    }
    assert [facts[name] for name in ("height", "width", "channels")] == [[3, 3], [4, 4], [1, 1]]
    values = np.r_[0:40, TEST_FROM : TEST_FROM + 20]
    assert facts["mean"] == pytest.approx(values.mean())
    assert facts["channel_std"] == [pytest.approx(values.std())]
    size = sum(path.stat().st_size for path in valid.paths.records.glob("*.tfrecord"))
    assert {"manifest": manifest.digest(valid.paths.records), "bytes": size}.items() <= facts.items()
    assert "<html" in valid.paths.validation_page.read_text()
    assert len(np.load(valid.paths.index / f"{SHARD}.npy")) == 30
    assert {path.name: path.read_bytes() for path in valid.paths.records.iterdir()} == before
    text = valid.paths.validation.read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def test_the_same_records_give_the_same_bytes(load, valid):
    validate(load(**{"compute.processes": 1}))
    before = outputs(valid)
    validate(load(**{"compute.processes": 2}))
    assert outputs(valid) == before


def test_damaged_records_are_a_data_error_with_a_report_of_the_place(damaged):
    before = outputs(damaged)
    with pytest.raises(DataError, match=rf"{SHARD} record 0 at byte 0: .* \[data_crc\]"):
        validate(damaged)
    found, after = report(damaged), outputs(damaged)
    assert found["ok"] is False
    assert [problem["code"] for problem in found["problems"]] == ["data_crc", "shard_digest"]
    first = found["problems"][0]
    assert first.pop("message")
    assert first == {"code": "data_crc", "severity": "error", "file": SHARD, "record": 0, "offset": 0}
    assert "data_crc" in damaged.paths.validation_page.read_text()
    assert after[f"{SHARD}.npy"] == before[f"{SHARD}.npy"]


def test_a_warning_shows_the_first_problem_and_counts_the_others(load, caplog):
    config = load()
    planted(config, {"train": in_turn([*range(6), *range(6)]), "validation": in_turn([30, 31])})
    validate(config)
    (warning,) = (each.message for each in caplog.records if each.levelname == "WARNING")
    assert "[duplicate_in_split] and 5 more" in warning


@pytest.mark.parametrize("name", ["<img src=x>", "日本語", "\x1b[2Jred", "a\nb"])
def test_class_names_are_escaped_in_log_error_and_page(load, caplog, name):
    for severity in ("warn", "error"):
        config = load(**{"validate.severity": severities(class_missing=severity)})
        planted(config, {"train": in_turn(range(6))}, ("cat", "dog", name))
        message = ""
        try:
            validate(config)
        except DataError as error:
            message = str(error)
        printed = message.splitlines() + [record.message for record in caplog.records]
        assert all(line.isprintable() for line in printed)
        assert any("[class_missing]" in line for line in printed)
        page = config.paths.validation_page.read_text(encoding="utf-8")
        assert "<img src=x>" not in page
        assert "\x1b" not in page
        assert report(config)["statistics"]["classes"][2] == name


def test_unreadable_records_still_get_a_report(valid):
    for file in valid.paths.records.glob("*.tfrecord"):
        file.write_bytes(b"")
    with pytest.raises(DataError):
        validate(valid)
    assert report(valid)["statistics"]["mean"] is None


def test_records_in_slims_layout_are_validated(load, small):
    config = load(**{"dataset.layout": "slim"})
    convert(config)
    validate(config)
    assert report(config)["examples"] == {"train": 40, "test": 20}


def planted(config, splits, classes=("cat", "dog")):
    """Writes a record folder instead of converting one."""
    shutil.rmtree(config.paths.records, ignore_errors=True)
    write_folder(config.paths.records, {split: [data] for split, data in splits.items()}, classes)


def version(cats, dogs, shade=0):
    """Pictures to train on, of cats and dogs, all brighter by some shade; and others to test."""
    train = [
        datum((picture(number, 32) // 2 + shade).astype(np.uint8), int(number >= cats))
        for number in range(cats + dogs)
    ]
    held_out = [[datum(picture(number + label, 32), label) for label in (0, 1)] for number in (9000, 9002)]
    return {"train": train, "validation": held_out[0], "test": held_out[1]}


def codes(config):
    """The code of each problem with its severity, and whether the stage failed."""
    try:
        validate(config)
        failed = False
    except DataError:
        failed = True
    return [(problem["code"], problem["severity"]) for problem in report(config)["problems"]], failed


def accepted(config, splits):
    """A version that was validated and committed: the baseline of the next one."""
    planted(config, splits)
    validate(config)
    files.write_json(config.paths.baseline, drift.baseline_of(report(config)).model_dump())


def severities(**changes):
    known = dict.fromkeys(SeverityConfig.model_fields, "warn")
    return known | changes


def in_turn(numbers):
    return [datum(picture(number, 64), number % 2) for number in numbers]


# A problem of each of the three checks, and the version that was there before; other codes are judged alike.
PLANTED = {
    "duplicate_across_splits": (None, {"train": in_turn([*range(6), 20]), "test": in_turn([41, 0])}),
    "class_missing": (None, {"train": in_turn(range(6)), "test": in_turn([40])}),
    "drift_labels": (version(10, 10), version(12, 8)),
    "drift_brightness": (version(10, 10), version(10, 10, shade=40)),
}


@pytest.mark.fast_rows(
    "error-True-True-duplicate_across_splits",
    "warn-True-False-drift_labels",
    "warn-True-False-drift_brightness",
    "ignore-False-False-class_missing",
)
@pytest.mark.parametrize("code", PLANTED)
@pytest.mark.parametrize(
    ("severity", "listed", "failed"), [("error", True, True), ("warn", True, False), ("ignore", False, False)]
)
def test_severity_decides_what_a_judged_problem_does(load, code, severity, listed, failed):
    config = load(**{"validate.severity": severities(**{code: severity})})
    before, after = PLANTED[code]
    if before is not None:
        accepted(config, before)
    baseline = config.paths.baseline.read_bytes() if before else None
    planted(config, {"validation": in_turn([30, 31]), **after})
    assert codes(config) == ([(code, severity)] if listed else [], failed)
    assert baseline is None or config.paths.baseline.read_bytes() == baseline
