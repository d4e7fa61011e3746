"""Several labels an image, from the table to the scores."""

import contextlib
import re
import shutil
from pathlib import Path

import pytest
from sklearn import metrics as sklearn
from support import tagged, training
from support.pages import text
from support.training import run

from perennial.base import documents, files
from perennial.model.evaluation import predictions
from perennial.model.evaluation.comparison import Champion
from perennial.model.models import model_folder
from perennial.reports.report import facts, report_page, summary
from perennial.stages.evaluate import evaluate
from perennial.stages.gate import gate

VALUES = {
    **tagged.VALUES, "train.max_steps": 60, "train.batch_size": 50, "train.optimizer": "adam",
    "train.learning_rate": 0.003, "train.steps_between_evals": 20, "checkpoints.interval_steps": 20,
    "train.positive_weights": "balanced", "train.label_smoothing": 0.1, "train.augmentation.mixup": 0.2,
    "train.augmentation.cutmix": 1.0, "train.averages.decay": 0.9, "train.keep": "best", "train.head.steps": 5,
}  # fmt: skip


@pytest.fixture(scope="module")
def tags(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tags")
    tagged.write(folder / "tagged", train=300, validation=80, test=80)
    table = folder / "tagged" / "tags.csv"  # with a label that Matplotlib's font lacks
    table.write_text(re.sub(r"(?<=[,|])0(?=[,|])", "猫", table.read_text()), encoding="utf-8")
    return training.prepare(folder, VALUES)


@pytest.fixture(scope="module")
def learnt(tags, tmp_path_factory):
    """A folder in which a training has ended, and its outcome."""
    folder = shutil.copytree(tags, tmp_path_factory.mktemp("learnt"), dirs_exist_ok=True)
    with contextlib.chdir(folder):
        return folder, run(VALUES)


@pytest.fixture
def there(learnt, tmp_path, monkeypatch):
    """A copy of it, which the test works in."""
    shutil.copytree(learnt[0], tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return learnt[1]


def test_labels_are_learnt_scored_and_predicted_from_thresholds_on_and_reported(there):
    evaluate(there.config)
    assert [each.keys() for each in there.record["evaluations"]] == [{"epoch", "step", "map", "loss"}] * 3
    assert there.record["evaluations"][-1]["map"] > 0.9
    assert 0.7 < there.steps[-1]["train_accuracy"] < 1  # of mixed images
    _, description = model_folder.load(there.config.paths.model)
    assert description.task == "multilabel"
    top, scores = (
        predictions.read(Path("metrics/predictions.npz")),
        documents.read_json(Path("metrics/metrics.json")),
    )
    macro = sklearn.average_precision_score(top.labels, top.probabilities, average="macro")
    assert scores["map_macro"] == pytest.approx(macro, abs=1e-12)
    assert scores["exact_match"] == sklearn.accuracy_score(top.labels, top.predicted)
    assert list(scores["thresholds"].values()) == pytest.approx(top.thresholds.tolist())
    assert documents.read_json(Path("metrics/scores.json")).keys() == {
        "map_macro", "map_micro", "f1_macro", "exact_match", "loss", "calibration_error",
    }  # fmt: skip
    assert Path("metrics/curves/validation.csv").read_text().startswith("epoch,step,map,loss")
    files.write_bytes(there.config.paths.export / "saved_model.pb", bytes(1000))
    Champion.of(top, commit="c" * 40, version="v0.0.3").write(there.config.paths.champion)
    gate(there.config)
    assert documents.read_json(Path("metrics/decision.json"))["candidate"]["map"] == scores["map_macro"]
    assert facts.collect(there.config).missing == {}
    report_page.write(there.config)
    shown = text(Path("report.html").read_text(encoding="utf-8"))
    for each in (
        f"test mAP {100 * macro:.2f} %", "Exact match", "(none)", "threshold", "AP", "mAP on validation",
        "Precision over recall of each class",
    ):  # fmt: skip
        assert each in shown, each
    assert "test accuracy" not in shown.lower()
    assert summary.summary(there.config)["test mAP"] == round(macro, 4)


@pytest.mark.fast_rows("none")  # the whole training kept images in memory
@pytest.mark.parametrize("cache", ["memory", "none"])
def test_a_resumed_training_ends_with_the_same_weights(there, cache):
    training.rewind(40)
    assert run({**VALUES, "train.cache": cache}).record == there.record
