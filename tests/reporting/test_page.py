"""The report as a page of HTML."""

import dataclasses
from datetime import UTC, datetime

import pytest
from support import finished
from support.pages import Elements, text

from perennial import files
from perennial.reporting import gathering, page
from perennial.stages import STAGES

MADE = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
CLASSES = {
    "two classes": ["cat", "dog"],
    "hostile names": ["<script>alert(1)</script>", "\"&'\u202e$x$", "קטגוריה", "long" * 60],
    "a hundred classes": [f"class {number}" for number in range(100)],
}


FIGURES = ("training_curve", "validation_curve", "matrix", "reliability")


def rendered(config, **changes):
    """The page of what a run left, some of it changed."""
    found = dataclasses.replace(gathering.gather(config, tuple(STAGES)), **changes)
    return page.render(found, config, tuple(STAGES), MADE)


def told(config, **changes):
    """The same without figures, which take time to draw."""
    without = {"missing": dict.fromkeys((*FIGURES, "answers"), "left out"), **dict.fromkeys(FIGURES)}
    return rendered(config, **without, **changes)


@pytest.fixture(params=CLASSES)
def classes(request, load):
    """Parameters of a run with such classes."""
    checked = load()
    finished.leave(checked, CLASSES[request.param], each=3)
    return checked


@pytest.fixture
def bare(config):
    """Parameters of a run that left no more than its outcome."""
    for file in ("validation", "predictions"):
        getattr(config.paths, file).unlink()
    for file in (*config.paths.curves.iterdir(), *(config.paths.work / "timings").iterdir()):
        file.unlink()
    metrics = files.read_json(config.paths.metrics)
    least = {name: metrics[name] for name in ("accuracy", "loss", "data", "model")}
    files.write_json(config.paths.metrics, least)
    return config


def test_a_page_is_well_formed_and_needs_nothing_but_itself(classes):
    source = rendered(classes)
    found = Elements(source)
    assert found.seen & {"script", "link", "iframe", "object", "embed", "form"} == set()
    assert [link for link in found.links if not link.startswith(("data:image/", "#"))] == []
    assert "http" not in source.replace("http-equiv", "")
    assert source.startswith("<!DOCTYPE html>")
    assert len(source.encode()) < 1_000_000


def test_a_bare_run_has_a_page_that_says_why_parts_are_not_there(bare):
    source = rendered(bare)
    Elements(source)
    shown = text(source)
    for said in (
        "metrics/curves/training.csv does not exist; `dvc repro train` makes it",
        "metrics/curves/validation.csv does not exist; `dvc repro train` makes it",
        "metrics/metrics.json has no scores of single classes",
        "metrics/predictions.npz does not exist; `dvc repro evaluate` makes it",
        "data/validation.json does not exist; `dvc repro validate` makes it",
        "No time is known of download, convert, validate, train, evaluate, export, gate",
    ):
        assert said in shown


def test_names_from_the_data_are_text(load):
    checked = load()
    finished.leave(checked, CLASSES["hostile names"])
    source = told(checked)
    assert "<script" not in source
    shown = text(source)
    assert "<script>alert(1)</script>" in shown
    assert "\u202e" not in source
    assert "\\u202e" in shown


def test_outcome_and_reasons_come_first(config):
    head, *_ = text(told(config)).split(" Training ")
    assert "test accuracy" in head
    assert "mnist_cnn on pets Promoted good better 2026-01-02 03:04 UTC" in head


def test_a_rejection_is_told_with_its_reasons_and_the_model_in_use(config):
    champion = {"accuracy": 0.95}
    finished.change(config.paths.decision, promote=False, reasons=["too bad"], champion=champion)
    source = told(config)
    assert "Rejected too bad The model in use has test accuracy 95.00 %." in text(source)
    assert '<header class="rejected">' in source


def test_equal_runs_are_equal_pages(config):
    assert rendered(config) == rendered(config)


def test_the_class_of_which_most_is_missed_comes_first(config):
    per_class = {
        name: {"examples": 10, "precision": 1.0, "recall": recall, "f1": 1.0}
        for name, recall in {"fine": 1.0, "unknown": None, "poor": 0.1}.items()
    }
    finished.change(config.paths.metrics, per_class=per_class)
    shown = text(told(config))
    assert shown.index("poor 10 9 10.00 %") < shown.index("fine 10 0 100.00 %") < shown.index("unknown 10 - -")


def test_of_many_classes_the_worst_are_listed_and_the_rest_counted(load):
    checked = load()
    finished.leave(checked, CLASSES["a hundred classes"], each=3)
    source = rendered(checked)
    assert source.count('<th scope="row" class="name">') == page.CLASSES
    assert "and 50 more classes, in metrics/metrics.json" in text(source)
    assert "Of 100 classes those with the most mistakes are shown, the rest as one." in text(source)


def test_every_mistake_has_an_image_and_the_probabilities(config):
    found = gathering.gather(config, tuple(STAGES)).answers
    wrong = (found.predicted != found.labels).sum()
    source = told(config)
    assert 0 < wrong == source.count("<img ") == source.count('class="said"')


def test_a_model_without_mistakes_is_told_as_such(load):
    checked = load()
    finished.leave(checked, ["cat", "dog"], right=1)
    shown = text(told(checked))
    assert shown.split("Worst mistakes")[-1].startswith(" Not one mistake.")


def test_stages_are_told_with_their_times_the_slowest_first(config):
    shown = text(told(config))
    assert "stage time train 1 h 2 min evaluate 1 min 1 s export 12.0 s validate 7.0 s convert 2.5 s" in shown
    assert "No time is known of gate:" in shown


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (None, "Whether tracked files differ from this revision is not known"),
        (None, "ab12 , changes unknown"),
        (None, "tracked files not known"),
        ((), "Every tracked file that a run reads is as in this revision."),
        (("params.yaml",), "1 tracked file differs from this revision"),
        (("a", "b"), "2 tracked files differ from this revision"),
    ],
)
def test_the_commands_name_the_revision_and_what_differs_from_it(config, changed, said):
    known = gathering.gather(config, tuple(STAGES)).provenance
    shown = text(told(config, provenance=dataclasses.replace(known, revision="ab12", changed=changed)))
    assert "git checkout ab12 make run" in shown
    assert said in shown


def test_without_git_the_page_says_so(config):
    known = gathering.gather(config, tuple(STAGES)).provenance
    shown = text(told(config, provenance=dataclasses.replace(known, revision=None)))
    assert "No git revision is known" in shown


def test_parameters_that_are_not_the_run_s_are_told_first(config):
    finished.lock(config.paths.report.parent, {stage: {} for stage in STAGES} | {"train": {"train.epochs": 7}})
    shown = text(told(config))
    warning = "params.yaml has changed since this run (train.epochs): make run first"
    assert 0 < shown.index(warning) < shown.index("Test accuracy")
    assert "params.yaml changed since the run" in shown


def test_parameters_that_are_the_run_s_are_told_as_such(config):
    epochs = config.train.epochs
    finished.lock(
        config.paths.report.parent, {stage: {} for stage in STAGES} | {"train": {"train.epochs": epochs}}
    )
    shown = text(told(config))
    assert "has changed since this run" not in shown
    assert "params.yaml as in dvc.lock" in shown


def test_without_a_lock_it_is_not_known_whether_the_parameters_are_the_run_s(config):
    assert "params.yaml not known" in text(told(config))


def test_how_sure_an_interval_is_comes_from_the_scores(config):
    finished.change(
        config.paths.metrics, confidence_level=0.9, intervals={"accuracy": {"low": 0.5, "high": 0.75}}
    )
    assert "90 %: 50.00 to 75.00" in text(told(config))


@pytest.mark.parametrize("level", [None, ...])
def test_an_interval_of_unknown_sureness_is_not_told(config, level):
    written = {**files.read_json(config.paths.metrics), "confidence_level": level}
    files.write_json(config.paths.metrics, {name: value for name, value in written.items() if value is not ...})
    shown = text(told(config))
    assert "95 %" not in shown
    assert "Test accuracy" in shown


def test_scores_without_calibration_have_no_tile_of_it(config):
    finished.change(config.paths.metrics, calibration={})
    assert "Calibration error" not in text(rendered(config))


def test_intervals_of_probability_are_those_of_the_table(load):
    checked = load(**{"evaluate.calibration_bins": 4})
    finished.leave(checked, ["cat", "dog"])
    shown = text(rendered(checked))
    assert "in 4 intervals" in shown
    assert "75 to 100 %" in shown


def test_intervals_stay_within_what_is_possible_after_their_number_changed(config):
    fewer = config.model_copy(update={"evaluate": config.evaluate.model_copy(update={"calibration_bins": 5})})
    shown = text(rendered(fewer))
    assert "80 to 100 %" in shown
    assert "300 %" not in shown


@pytest.mark.parametrize(
    ("kept", "note"),
    [
        (40, "Epochs 4 40 updates, stopped by epochs Training"),
        (20, "Epochs 4 40 updates, stopped by epochs; kept is update 20 Training"),
    ],
)
def test_which_weights_were_kept_is_told_where_they_are_not_the_last(config, kept, note):
    finished.change(config.paths.training, kept=kept)
    assert note in text(told(config))


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
def test_a_share_is_called_all_or_nothing_only_where_it_is(share, shown):
    assert page.percent(share) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.01, "< 0.1 s"),
        (5.25, "5.2 s"),
        (59.99, "1 min 0 s"),
        (119.9, "2 min 0 s"),
        (3599.9, "1 h 0 min"),
        (7260, "2 h 1 min"),
        (100_000, "27 h 47 min"),
    ],
)
def test_times_are_told_as_people_read_them(seconds, shown):
    assert page.duration(seconds) == shown


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (123_456_789, "123 MB"), (5e15, "5,000.0 TB")],
)
def test_sizes_are_told_as_people_read_them(size, shown):
    assert page.size(size) == shown
