"""Training, evaluation and export of the digits, in one small run."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import forks
from support.parameters import change_params

import perennial
from perennial.base import config, documents, files
from perennial.base.config import Config
from perennial.base.errors import DataError, QualityError
from perennial.data.records import manifest, pipeline
from perennial.model import export_layout
from perennial.model.evaluation import predictions
from perennial.model.export import saved_model
from perennial.release.publishing.publish import verified_digests
from perennial.stages.champion import champion
from perennial.stages.convert import convert
from perennial.stages.download import download
from perennial.stages.evaluate import evaluate
from perennial.stages.export import export
from perennial.stages.gate import gate
from perennial.stages.train import train
from perennial.stages.validate import validate

ROOT = Path(__file__).parents[2]
SMALL = {"train.stop_threshold": 0.83, "train.steps_between_evals": 10}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every stage has run."""
    folder = tmp_path_factory.mktemp("finished")
    shutil.copy(ROOT / "params.yaml", folder)
    change_params(folder / "params.yaml", SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "executable", forks.with_tensorflow())
        parameters = config.load(Path("params.yaml"))
        for stage in (download, convert, validate, train, evaluate, export, champion, gate):
            stage(parameters)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked: None) -> Config:
    """The parameters of a copy of the finished run, which the test works in."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return config.load(Path("params.yaml"))


def changed(**values: object) -> Config:
    change_params(Path("params.yaml"), {name.replace("__", "."): value for name, value in values.items()})
    return config.load(Path("params.yaml"))


def test_training_stops_at_the_threshold(run: Config) -> None:
    record = documents.read_json(run.paths.training)
    assert record["stopped_by"] == "threshold"
    *others, last = [each["accuracy"] for each in record["evaluations"]]
    assert max(others) < 0.83 <= last


def test_training_refuses_a_damaged_shard_before_its_first_step(run: Config) -> None:
    shard = next(run.paths.records.glob("*_validation_*"))
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(DataError, match=shard.name):
        train(run)


def test_training_refuses_records_that_were_not_validated(run: Config) -> None:
    convert(changed(dataset__seed=5))
    with pytest.raises(DataError, match="run `dvc repro validate`"):
        train(run)


def test_the_export_carries_labels_and_model_card(run: Config) -> None:
    assets = run.paths.export / "assets"
    assert (assets / "labels.txt").read_text().splitlines()[6] == "6:six"
    card, metrics = json.loads((assets / "model_card.json").read_text()), documents.read_json(run.paths.metrics)
    assert {"weights_sha256": metrics["model"], "scored_on": metrics["data"]}.items() <= card.items()
    assert card["intervals"] == metrics["intervals"]
    assert "mnist_cnn for digits" in (run.paths.export / "README.md").read_text()


def test_no_path_of_the_machine_is_in_the_export(run: Config) -> None:
    assert all(b"/tmp" not in content for content in contents(run.paths.export).values())


def test_the_export_lists_each_of_its_files_with_its_digest(run: Config) -> None:
    listed = documents.read_json(run.paths.export / "assets.extra" / "files.json")
    assert listed.keys() == contents(run.paths.export).keys() - {"assets.extra/files.json", files.MARK}
    assert verified_digests(run.paths.export).items() > listed.items()


@pytest.mark.parametrize(("record", "made_by"), [("metrics", "evaluate"), ("training", "train")])
def test_a_record_that_is_not_whole_is_named_and_keeps_the_old_export(run, record, made_by) -> None:
    before, file = contents(run.paths.export), getattr(run.paths, record)
    files.write_json(file, {})
    with pytest.raises(
        DataError, match=f"{file} has no .*; `dvc repro {made_by}` makes .*; the old export was kept"
    ):
        export(run)
    assert contents(run.paths.export) == before


def test_the_export_mirrors_images_and_has_the_temperature_and_threshold_of_its_evaluation(run, caplog) -> None:
    plain = predictions.read(run.paths.predictions).probabilities
    chosen = changed(export__mirror=True, evaluate__calibrate=True, evaluate__max_error=0.2)
    evaluate(chosen)
    with caplog.at_level("INFO"):
        export(chosen)
    top = predictions.read(run.paths.predictions)
    # A temperature alone would keep the order of the classes.
    assert (top.probabilities.argsort(axis=1) != plain.argsort(axis=1)).any()
    (shard,) = manifest.load(run.paths.records).splits["test"].shards
    images = pipeline.encoded(run.paths.records, shard)[1].tolist()
    found = [each.probabilities for each in perennial.load(run.paths.export).predict(images)]
    np.testing.assert_allclose(found, top.probabilities, atol=1e-5)
    assert "below 50 a class, only large drifts in traffic are found" in caplog.messages  # 144 images of ten
    found = documents.read_json(run.paths.export / export_layout.DESCRIPTION)["confidence"]
    metrics = documents.read_json(run.paths.metrics)
    assert found == {
        "temperature": metrics["calibration"]["temperature"],
        "abstention": {key: metrics["abstention"][key] for key in ("max_error", "threshold")},
    }
    card = documents.read_json(run.paths.export / export_layout.CARD)
    assert card["abstention"] == metrics["abstention"]
    assert "answer `unknown` below a confidence" in (run.paths.export / "README.md").read_text()


@pytest.mark.parametrize("part", ["model", "data"])
@pytest.mark.parametrize("record", ["predictions", "metrics"])
def test_scores_of_another_model_or_other_data_are_no_measure(run: Config, record: str, part: str) -> None:
    before, file = contents(run.paths.export), getattr(run.paths, record)
    if record == "predictions":
        replace(predictions.read(file), **{part: "other"}).write(file)
    else:
        files.write_json(file, {**documents.read_json(file), part: "other"})
    with pytest.raises(QualityError, match=rf"{file} .* {part} other, .*run `dvc repro evaluate`"):
        export(run)
    assert contents(run.paths.export) == before


@pytest.mark.slow
def test_an_export_that_answers_otherwise_keeps_the_old_one(run, monkeypatch) -> None:
    before = contents(run.paths.export)
    answer = saved_model.Servable._outputs
    # Pixels that are scaled twice: the most common way for an export to disagree.
    monkeypatch.setattr(saved_model.Servable, "_outputs", lambda self, images: answer(self, images // 255))
    with pytest.raises(
        QualityError, match=r"gives test example .* expected .* as from .*; the old export was kept;"
    ):
        export(run)
    assert contents(run.paths.export) == before
    assert [path.name for path in run.paths.export.parent.iterdir() if path.name.startswith(".")] == []


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_model_that_is_too_slow_is_rejected(run: Config) -> None:
    gate(changed(gate__max_latency_ms=1e-6))
    decision = documents.read_json(run.paths.decision)
    (check,) = [each for each in decision["checks"] if each["name"] == "max_latency_ms"]
    assert decision["promote"] is False
    assert {"passed": False, "limit": 1e-6}.items() <= check.items()
    assert 0 < check["value"] == decision["candidate"]["latency_ms"] < 60_000
    assert f"median time of one image in ms {check['value']:.4g} is above" in "\n".join(decision["reasons"])


def test_a_model_that_cannot_be_timed_is_an_error_and_the_old_decision_stays(run: Config) -> None:
    before = run.paths.decision.read_bytes()
    (run.paths.export / "saved_model.pb").write_bytes(b"damaged")
    with pytest.raises(DataError, match="holds no model that TensorFlow"):
        gate(changed(gate__max_latency_ms=1000.0))
    assert run.paths.decision.read_bytes() == before
