"""A run with several labels an image, from images to the decision and the report."""

import json
import re
from datetime import UTC, datetime
from html import unescape

import pytest
from support import raw

from perennial.base import documents, files
from perennial.model.evaluation import comparison, predictions
from perennial.model.evaluation.comparison import Champion
from perennial.reports.report import facts, report_page, summary
from perennial.stages.convert import convert
from perennial.stages.download import download
from perennial.stages.evaluate import evaluate
from perennial.stages.gate import gate
from perennial.stages.train import train
from perennial.stages.validate import validate


@pytest.fixture
def ran(load):
    """The parameters of a run of two epochs on 120 images, compared with a champion of the same answers."""
    table = {"path": "a.csv", "file": "file", "label": "labels", "separator": "|"}
    config = load(
        **{
            "dataset.name": "image_folder", "dataset.path": "own", "dataset.task": "multilabel",
            "dataset.table": table, "validate.near_duplicate_bits": None,
            "train.stop_metric": "map", "train.epochs": 2, "gate.min_accuracy": None, "train.batch_size": 16,
        }
    )  # fmt: skip
    lines = ["file,labels"]
    for number in range(120):
        files.write_bytes(config.dataset.path / f"{number:03}.png", raw.encoded(raw.picture(number)))
        names = [name for name, each in (("cat", 2), ("dog", 3), ("sky", 5)) if number % each == 0]
        lines.append(f"{number:03}.png,{'|'.join(names)}")
    files.write_bytes(config.dataset.path / "a.csv", "\n".join(lines).encode())
    for stage in (download, convert, validate, train, evaluate):
        stage(config)
    files.write_bytes(config.paths.export / "saved_model.pb", bytes(1000))
    scored = predictions.read(config.paths.predictions)
    Champion.of(scored, commit="c" * 40, version="v0.0.3").write(config.paths.champion)
    gate(config)
    assert comparison.read(config.paths.champion).probabilities is not None
    return config


def test_the_report_of_several_labels_shows_their_scores(ran):
    found = facts.collect(ran)
    page = report_page.render(found, ran, datetime(2026, 1, 1, tzinfo=UTC))
    text = unescape(re.sub(r"<[^>]+>", " ", page))
    scores = found.results.metrics
    assert found.missing == {}
    for shown in (
        f"test mAP {100 * scores.map_macro:.2f} %", "Exact match", "(none)", "threshold",
        "Precision over recall of each class", "AP", "mAP on validation",
    ):  # fmt: skip
        assert shown in text, shown
    assert "test accuracy" not in text.lower()
    assert summary.summary(ran)["test mAP"] == round(scores.score, 4)
    assert json.dumps(documents.read_json(ran.paths.decision)["candidate"]["map"]) in json.dumps(scores.score)
