"""The report as an HTML page."""

import dataclasses
import re
from datetime import UTC, datetime

import numpy as np
import pytest
from support import finished
from support.pages import Elements, text

from perennial.base.project.stage_table import STAGES
from perennial.model.evaluation import plots, predictions, unbiased
from perennial.model.evaluation.comparison import Champion
from perennial.reports.report import facts, report_page

NAMESPACES = ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink")
MADE = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
CLASSES = {
    "two classes": ["cat", "dog"],
    "hostile names": [
        "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\"&'\u202e$x$", "קטגוריה", "long" * 60,
    ],
    "a hundred classes": [f"class {number}" for number in range(100)],
}  # fmt: skip


def rendered(config, **changes):
    """The page of a run, some of its facts changed."""
    return report_page.render(dataclasses.replace(facts.collect(config), **changes), config, MADE)


def undrawn(config, **changes):
    """The page with empty plots, which take time to draw."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots.Plot, "svg", lambda _: "<svg></svg>")
        return rendered(config, **changes)


@pytest.fixture(params=CLASSES)
def classes(request, load):
    """Parameters of a run with such classes."""
    checked = load()
    finished.leave(checked, CLASSES[request.param], each=3)
    return checked


@pytest.fixture
def bare(config):
    """Parameters of a run with nothing but its results."""
    for file in ("validation", "predictions"):
        getattr(config.paths, file).unlink()
    for file in (*config.paths.curves.iterdir(), *(config.paths.work / "timings").iterdir()):
        file.unlink()
    finished.change(config.paths.metrics, intervals={}, per_class={})
    return config


@pytest.mark.fast_rows("hostile names")
def test_a_page_is_well_formed_and_needs_nothing_but_itself(classes):
    source = rendered(classes)
    found = Elements(source)
    assert found.seen.keys() & {"script", "link", "iframe", "object", "embed", "form"} == set()
    assert [link for link in found.links if not link.startswith(("data:image/", "#"))] == []
    assert set(re.findall(r"http[^\"]*", source)) <= {"http-equiv=", *NAMESPACES}
    assert source.startswith("<!DOCTYPE html>")
    assert "\u202e" not in source
    assert len(source.encode()) < 1_000_000
    assert rendered(classes) == source


def test_a_bare_run_has_a_page_that_says_why_parts_are_not_there(bare):
    source = rendered(bare)
    Elements(source)
    shown = text(source)
    for missing in (
        "metrics/curves/training.csv",
        "metrics/curves/validation.csv",
        "metrics/metrics.json",
        "metrics/predictions.npz",
        "data/validation.json",
        ", ".join(STAGES),
    ):
        assert missing in shown


REJECTED = {"promote": False, "reasons": ["too bad"], "champion": {"version": "v0.0.3", "accuracy": 0.95}}
RECALLS = {"fine": 1.0, "unknown": None, "poor": 0.1}
SHOWN: dict[str, tuple[dict[str, dict[str, object]], tuple[str, ...]]] = {
    # name: changes of results by file, and what the page says then, in this order
    "a promoted run": ({}, (
        "test accuracy", "mnist_cnn on pets Passed the gate good better 2026-01-02 03:04 UTC",
        " Training ", "Epochs 4 40 steps, stopped by epochs Gate",
        "stage time train 1 h 2 min evaluate 1 min 1 s export 12.0 s validate 7.0 s convert 2.5 s",
        "gate: restored", "params.yaml not known",
    )),
    "a rejected run, its champion gone": (
        {"decision": REJECTED}, ("Rejected too bad", "95.00 %", "metrics/champion"),
    ),
    "classes by recall": (
        {"metrics": {"per_class": {name: {"examples": 10, "precision": 1.0, "recall": recall, "f1": 1.0}
                                   for name, recall in RECALLS.items()}}},
        ("poor 10 9 10.00 %", "fine 10 0 100.00 %", "unknown 10 - -"),
    ),
    "another level of confidence": (
        {"metrics": {"confidence_level": 0.9, "intervals": {"accuracy": {"low": 0.5, "high": 0.75}}}},
        ("90 %: 50.00 to 75.00",),
    ),
    "an earlier step kept": (
        {"training": {"kept": 20}}, ("Epochs 4 40 steps, stopped by epochs; kept is step 20 Gate",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_the_page_says_what_the_results_say(config, name):
    changes, expected = SHOWN[name]
    for file, values in changes.items():
        finished.change(getattr(config.paths, file), **values)
    shown = text(undrawn(config))
    places = [shown.find(each) for each in expected]
    assert -1 not in places, shown
    assert places == sorted(places), shown


def test_candidate_and_champion_stand_side_by_side_with_the_examples_that_changed_sides(config):
    scored = predictions.read(config.paths.predictions).judged()
    theirs = scored.predicted.copy()
    right = np.flatnonzero(scored.predicted == scored.labels)[:3]
    theirs[right] = (scored.labels[right] + 1) % len(scored.classes)
    wrong = np.flatnonzero(scored.predicted != scored.labels)[:1]
    theirs[wrong] = scored.labels[wrong]
    Champion(
        commit="c", version="v0.0.3", model="old", model_bytes=2_000_000, classes=scored.classes,
        split_digest=scored.split_digest, rescored=False, predicted=theirs, p=scored.p, p_true=scored.p_true,
    ).write(config.paths.champion)  # fmt: skip
    champion = {"version": "v0.0.3", "accuracy": 0.625, "loss": 0.5, "model_bytes": 2_000_000}
    champion["unbiased"] = unbiased.score(308, 340)
    checks = [{"name": "min_gain", "value": 0.0125, "limit": 0.005, "passed": True}]
    flips = {"negative_flips": 0.0125, "negative_flips_low": 0.000316, "negative_flips_high": 0.0677}
    compared = {"examples": 80, "left_out": 0, "won": 3, "lost": 1, **flips}
    finished.change(config.paths.decision, champion=champion, checks=checks, comparison=compared)
    source = undrawn(config)
    shown = text(source)
    assert "min_gain 0.0125 0.005 passed" in shown
    assert "Candidate and champion v0.0.3" in shown
    assert "62.50 %" in shown
    assert "right where the other is wrong 3.75 % 1.25 %: negative flips (95 %: 0.03 to 6.77)" in shown
    assert "0.9059 [0.870, 0.933] on 340 examples that played no part" in shown
    assert "0.002 (gate.significance) x 365 nights = 0.73 by chance" in shown
    assert shown.count(" won, record ") == 3
    assert shown.count(" lost, record ") == 1
    Elements(source)


def test_of_many_classes_the_worst_are_listed_and_the_rest_counted(load):
    checked = load()
    finished.leave(checked, CLASSES["a hundred classes"], each=3)
    source = undrawn(checked)
    assert source.count('<th scope="row" class="name">') == report_page.CLASSES
    assert "and 50 more classes, in metrics/metrics.json" in text(source)
    assert "Of 100 classes" in text(source)


def test_every_mistake_has_an_image_and_the_probabilities(config):
    found = facts.collect(config).test.predictions
    wrong = (found.predicted != found.labels).sum()
    mistakes = undrawn(config).split('id="labels"')[0]
    assert 0 < wrong == mistakes.count("<img ") == mistakes.count('class="predicted"')


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"revision": "ab12", "changed": None},
            ("git checkout ab12 make run", "ab12 , changes unknown", "tracked files not known"),
        ),
        ({"revision": "ab12", "changed": ()}, ("git checkout ab12", "tracked files as in the revision")),
        ({"revision": "ab12", "changed": ("params.yaml",)}, ("1 tracked file differs",)),
        ({"revision": "ab12", "changed": ("a", "b")}, ("2 tracked files differ",)),
        ({"revision": None}, ("No git revision",)),
    ],
)
def test_the_commands_name_the_revision_and_files_that_differ_from_it(config, changes, expected):
    known = facts.collect(config).provenance
    shown = text(undrawn(config, provenance=dataclasses.replace(known, **changes)))
    assert [each for each in expected if each not in shown] == []


def test_changed_parameters_come_first(config):
    finished.lock(config.paths.report.parent, {stage: {} for stage in STAGES} | {"train": {"train.epochs": 7}})
    shown = text(undrawn(config))
    assert 0 < shown.index("train.epochs") < shown.index("Test accuracy")
    assert "params.yaml changed since the run" in shown


@pytest.mark.parametrize(("weights", "shown"), [(finished.MODEL, "keras 9.8.7"), ("another", "Not known")])
def test_package_versions_are_those_that_the_training_wrote(config, weights, shown):
    finished.write_versions(config.paths.work, {"keras": "9.8.7"}, weights)
    assert shown in text(undrawn(config)).split("Packages of the training")[1]


def test_plot_and_table_have_the_configured_bins_and_a_good_model_has_no_mistakes(load):
    checked = load(**{"evaluate.calibration_bins": 4})
    finished.leave(checked, ["cat", "dog"], right=1)
    shown = text(undrawn(checked))
    assert shown.split("Worst mistakes")[-1].startswith(" No mistakes.")
    assert "in 4 bins" in shown
    assert "75 to 100 %" in shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (None, "-"),
        (0, "0.00 %"),
        (1, "100.00 %"),
        (0.98765, "98.77 %"),
        (1e-9, "< 0.01 %"),
        (1 - 1e-9, "> 99.99 %"),
    ],
)
def test_only_0_and_1_are_shown_as_0_and_100_percent(share, shown):
    assert report_page.percent(share) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.01, "< 0.1 s"), (5.25, "5.2 s"), (59.99, "1 min 0 s"), (3599.9, "1 h 0 min")]
)
def test_durations_are_readable(seconds, shown):
    assert report_page.duration(seconds) == shown
