"""Advice about data, parameters and results: what it is given for, and that it never stands in the way."""

import logging

import pytest
from scipy.stats import binomtest

from perennial.base import documents, files
from perennial.base.config.networks import NETWORKS
from perennial.base.params import advice
from perennial.data.preprocessing import PREPROCESSING

SMALL = {"train": 300, "validation": 40, "test": 60}
LARGE = {"train": 50_000, "validation": 5_000, "test": 10_000}
TRAINED = {"model.name": "mobilenet_v2", "preprocessing.image_size": 96, "preprocessing.name": "auto"}


@pytest.fixture
def advised(load):
    """The codes of the advice about parameters and a validation report with these counts and sizes."""

    def codes(counts, *, sides=(32, 32), channels=3, dataset="image_folder", per_class=(150, 150), **changes):
        checked = load(**{"dataset.name": dataset, "gate.min_accuracy": None} | changes)
        sizes = {"height": list(sides), "width": list(sides), "channels": [channels, channels]}
        report = {"ok": True, "examples": counts, "statistics": {"dataset": dataset, **sizes}}
        report["statistics"]["splits"] = {"train": {"per_class": per_class}}
        files.write_json(checked.paths.validation, report)
        return [each.code for each in advice.of_data(checked)]

    return codes


@pytest.mark.parametrize(
    ("counts", "options", "codes"),
    [
        (LARGE, {}, []),
        (SMALL, TRAINED | {"model.weights": "imagenet"}, ["small_split", "small_split"]),
        (SMALL, TRAINED | {"gate.min_accuracy": 0.99}, ["small_split", "no_pretrained_weights"]),
        (LARGE | {"train": 4_000}, TRAINED, ["no_pretrained_weights"]),
        (LARGE | {"train": 4_000}, TRAINED | {"preprocessing.grayscale": True}, []),
        (LARGE | {"train": 900}, {}, ["no_augmentation"]),
        (LARGE | {"train": 900}, {"channels": 1}, []),
        (LARGE, {"per_class": [1] * 300}, ["few_in_class"]),
        (LARGE | {"train": 900}, {"preprocessing.name": "standard"}, []),
        (LARGE | {"train": 900}, {"preprocessing.name": "auto"}, ["no_augmentation"]),
        (LARGE | {"train": 900}, {"train.augmentation.mixup": 0.2}, []),
        (LARGE | {"train": 900}, {"preprocessing.name": "plain"}, ["no_augmentation"]),
        (LARGE | {"train": 900}, {"preprocessing.name": "plain", "train.trainable": ["logits"]}, []),
        (LARGE, {"sides": (20, 300), **TRAINED, "preprocessing.image_size": None}, ["images_differ"]),
        (LARGE, {"sides": (20, 20), **TRAINED, "preprocessing.image_size": None}, ["image_too_small"]),
        (LARGE, {"sides": (20, 20), **TRAINED}, []),
        (LARGE | {"train": 4_000}, {"sides": (70, 70)}, ["no_pretrained_weights"]),
        (LARGE | {"train": 4_000}, {"sides": (60, 70), "preprocessing.image_size": 32}, []),
        (LARGE, {"sides": (128, 128), **TRAINED}, []),
    ],
)
def test_data_and_parameters_give_advice(advised, counts, options, codes):
    assert advised(counts, **options) == codes


def test_a_report_that_is_missing_damaged_or_of_another_data_set_gives_none(load, advised):
    assert advice.of_data(load()) == []
    for content in (b"", b"[]", b"{}", b'{"ok": true, "statistics": 1}'):
        files.write_bytes(load().paths.validation, content)
        assert advice.of_data(load()) == []
    assert advised(SMALL, dataset="image_folder")
    assert advice.of_splits(load(**{"dataset.name": "mnist"})) == []


def test_validate_and_train_each_give_their_own_advice(advised, load):
    advised(SMALL, **TRAINED)
    config = load()
    assert [each.code for each in advice.of_splits(config)] == ["small_split", "small_split"]  # in validate
    assert [each.code for each in advice.of_training(config)] == ["no_pretrained_weights"]  # in train


@pytest.mark.parametrize("level", [0.9, 0.95])
@pytest.mark.parametrize(("right", "examples"), [(0, 5), (1, 5), (5, 5), (9, 24), (24, 24), (900, 1000)])
def test_the_interval_is_clopper_and_pearsons(right, examples, level):
    expected = binomtest(right, examples).proportion_ci(level, method="exact")
    assert advice.interval(right / examples, examples, level) == pytest.approx((expected.low, expected.high))


def test_small_splits_are_judged_by_the_accuracy_that_was_reached(load, advised):
    advised({"train": 50_000, "test": 200})
    assert advice.of_splits(load(**{"dataset.name": "image_folder"}), {"test": 0.98}) == []
    (found,) = advice.of_splits(load(**{"dataset.name": "image_folder"}), {"test": 0.6})
    assert "at 60.0% the 95 % interval is 52.9% to 66.8%" in found.message


@pytest.mark.parametrize(
    ("positives", "words"), [([400, 900], None), ([9, 900], "mAP to +/- 5 points: at 60.0%")]
)
def test_with_several_labels_the_rarest_decide_how_well_map_is_known(load, positives, words):
    several = {"dataset.task": "multilabel", "train.stop_metric": "map", "gate.min_accuracy": None}
    config = load(**{"dataset.name": "tfrecord"} | several)
    statistics = {"dataset": "tfrecord", "splits": {"test": {"per_class": [*positives, 0]}}}
    files.write_json(
        config.paths.validation, {"ok": True, "examples": {"test": 1000}, "statistics": statistics}
    )
    found = advice.of_splits(config, {"test": 0.6})
    assert [words in each.message for each in found] == ([] if words is None else [True])
    measured = {"accuracy": None, "map_macro": 0.6, "intervals": {"map_macro": {"low": 0.57, "high": 0.63}}}
    assert "small_split" not in [each.code for each in advice.of_run(config, measured, None)]


def scores(*right, each=50):
    """The content of metrics.json for these correct predictions of each class."""
    per_class = {f"class {number}": {"examples": each} for number in range(len(right))}
    count = each * len(right)
    return {"accuracy": sum(right) / count, "examples": count, "per_class": per_class, "model": "ab"}


@pytest.mark.parametrize(
    ("right", "codes"), [((50, 0, 0), ["chance"]), ((20, 20, 18), ["chance"]), ((45, 45, 45), [])]
)
def test_an_accuracy_at_chance_is_named(load, right, codes):
    assert [each.code for each in advice.of_run(load(), scores(*right), 0.9)] == codes


def test_copies_across_splits_are_counted(load, advised):
    advised(LARGE)
    config = load(**{"dataset.name": "image_folder"})
    report = documents.read_json(config.paths.validation)
    counts = {"near_duplicate": 2, "duplicate_across_splits": 1, "duplicate_in_split": 9}
    files.write_json(config.paths.validation, {**report, "problem_counts": counts})
    (found,) = advice.of_run(config, scores(45, 45, 45), 0.9)
    assert (found.code, found.message[:8]) == ("copies_across_splits", "3 pairs ")
    assert "remove one of each" in found.remedy


def test_advice_is_one_line_that_cannot_steer_a_terminal(load, caplog):
    (found,) = advice.of_run(load(), scores(50, 0, 0) | {"per_class": {"a\x1b[2J\n": {"examples": 150}}}, 0.9)
    with caplog.at_level(logging.WARNING):
        advice.log(logging.getLogger("perennial"), [found])
    (record,) = caplog.records
    assert record.getMessage().startswith("advice: the test accuracy of 33.3%")
    assert not {"\n", "\x1b"} & set(record.getMessage())


def test_what_is_known_of_networks_and_preprocessings_is_true():
    plain = {name for name, network in NETWORKS.items() if network.preprocessing in advice.PLAIN}
    assert plain == set(advice.PLAIN_NETWORKS)
    assert set(advice.PLAIN) <= set(PREPROCESSING)
