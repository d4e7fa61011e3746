"""The stage evaluate, and `perennial evaluate --split`: scores, refusals and files left alone."""

import contextlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT
from scipy.special import softmax
from support import scoring
from support.parameters import change_params
from support.scoring import World

from perennial.base import documents, files
from perennial.base.choices import Split
from perennial.base.config import Config
from perennial.base.config import load as load_config
from perennial.base.config.paths import Paths
from perennial.base.devices import cluster
from perennial.base.errors import ConfigError, DataError, QualityError
from perennial.cli.score_split import score
from perennial.data.records import manifest
from perennial.model.evaluation import predictions
from perennial.model.evaluation.scoring import NonFinite
from perennial.model.export import saved_model
from perennial.model.models import model_folder
from perennial.stages.evaluate import evaluate

SIZES = {"train": 40, "validation": 7, "test": 103}
PATHS = Paths()


@pytest.fixture(scope="module")
def world() -> World:
    return scoring.world(SIZES["test"])


@pytest.fixture
def config(load, world: World) -> Config:
    """Parameters with records and a model in the folder that the test works in."""
    config = load(**{"evaluate.batch_size": 50})
    scoring.write_records(config.paths.records, world, SIZES)
    model_folder.save(config.paths.model, world.model, world.description)
    return config


@pytest.fixture(scope="module")
def evaluated(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the model was evaluated, which no test changes."""
    return evaluated_in(tmp_path_factory.mktemp("evaluated"), world)


@pytest.fixture(scope="module")
def calibrated(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a temperature."""
    return evaluated_in(tmp_path_factory.mktemp("calibrated"), world, **{"evaluate.calibrate": True})


def evaluated_in(folder: Path, world: World, sizes: Mapping[Split, int] = SIZES, **values: object) -> Path:
    shutil.copy(ROOT / "params.yaml", folder)
    change_params(folder / "params.yaml", {"evaluate.batch_size": 50, **values})
    with contextlib.chdir(folder):
        config = load_config(Path("params.yaml"))
        scoring.write_records(config.paths.records, world, sizes)
        model_folder.save(config.paths.model, world.model, world.description)
        evaluate(config)
    return folder


def test_examples_for_audit_are_scored_apart(config: Config, world: World) -> None:
    change_params(Path("params.yaml"), {"evaluate.audit_fraction": 0.3})
    evaluate(load_config(Path("params.yaml")))
    metrics, audit = (
        documents.read_json(config.paths.metrics),
        documents.read_json(config.paths.metrics)["audit"],
    )
    every = predictions.read(config.paths.predictions)
    judged = every.judged()
    assert audit["examples"] + metrics["examples"] == len(every.labels) == SIZES["test"]
    assert 15 <= audit["examples"] <= 47
    assert metrics["accuracy"] == pytest.approx((judged.predicted == judged.labels).mean())
    right = int((every.predicted == every.labels).sum()) - int((judged.predicted == judged.labels).sum())
    assert audit["correct"] == right
    rows = np.loadtxt(config.paths.confusion, delimiter=",", dtype=str)
    assert len(rows) - 1 == metrics["examples"]


def test_calibration_divides_the_logits_by_the_temperature_and_leaves_the_accuracy(
    evaluated: Path, calibrated: Path, world: World
) -> None:
    before, found = (documents.read_json(folder / PATHS.metrics) for folder in (evaluated, calibrated))
    assert found["accuracy"] == before["accuracy"]
    assert found["calibration"]["ece_before"] == pytest.approx(before["calibration"]["ece"], abs=1e-6)
    temperature = found["calibration"]["temperature"]
    assert temperature != 1
    expected = softmax(world.logits / temperature, axis=1)
    assert predictions.read(calibrated / PATHS.predictions).probabilities == pytest.approx(expected, abs=1e-5)
    losses = -np.log(expected[np.arange(len(expected)), world.labels])
    assert found["loss"] == pytest.approx(losses.mean(), abs=1e-5)


@pytest.mark.fast_rows("True")
@pytest.mark.parametrize("calibrate", [False, True])
def test_an_export_is_scored_as_it_was_calibrated(config: Config, world: World, calibrate: bool) -> None:
    change_params(Path("params.yaml"), {"evaluate.calibrate": calibrate})
    export = Path("export")
    export.mkdir()
    update = {"confidence": model_folder.Confidence(temperature=None if calibrate else 3.0)}
    saved_model.save(export, world.model, world.description.model_copy(update=update), ())
    found, _ = score(load_config(Path("params.yaml")), "test", model=export, predictions=None)
    assert found["calibration"].get("temperature") == (None if calibrate else 3)


def test_what_is_not_sure_enough_is_unknown(world: World, tmp_path: Path) -> None:
    sure = softmax(world.logits, axis=1).max(axis=1)
    labels = world.logits.argmax(axis=1) + (sure < np.median(sure))  # wrong where it is less sure
    options = {"evaluate.calibrate": True, "evaluate.max_error": 0.2}
    sizes = {**SIZES, "validation": 100}
    folder = evaluated_in(tmp_path, replace(world, labels=labels % 10), sizes, **options)
    found = documents.read_json(folder / PATHS.metrics)["abstention"]
    scored = predictions.read(folder / PATHS.predictions).judged()
    kept = scored.p >= found["threshold"]
    assert 0 < found["answered"] == kept.sum() < SIZES["test"] == found["examples"]
    assert found["wrong"] == (scored.predicted != scored.labels)[kept].sum()
    assert found["error"] == found["wrong"] / found["answered"]
    assert found["validation"]["examples"] == 100


def written() -> set[str]:
    return {path.name for path in Path("metrics").glob("*")}


def refuse(message: str, kind: type[Exception] = DataError, **values: object) -> None:
    """The stage refuses, and writes nothing."""
    change_params(Path("params.yaml"), values)
    with pytest.raises(kind, match=message):
        evaluate(load_config(Path("params.yaml")))
    assert written() == set()


@pytest.mark.parametrize(
    ("sizes", "values", "message"),
    [
        (SIZES, {"evaluate.max_error": 0.2}, "needs 14 validation examples or more, and there are 7"),
        ({"train": 9, "test": 20}, {"evaluate.calibrate": True}, "need validation examples"),
        ({**SIZES, "test": 0}, {}, "no examples"),
        ({"train": 40}, {}, "no test"),
    ],
    ids=["too few for a threshold", "none to calibrate on", "none", "no split"],
)
def test_a_split_without_enough_examples_is_refused(config: Config, world, sizes, values, message) -> None:
    shutil.rmtree(config.paths.records)
    scoring.write_records(config.paths.records, world, sizes)
    refuse(message, **values)


def test_a_class_called_unknown_is_refused_where_unsure_answers_are(config: Config) -> None:
    file = config.paths.records / "manifest.json"
    found = documents.read_json(file)
    classes = ["unknown", *found["classes"][1:]]
    files.write_json(file, {**found, "classes": classes})
    (config.paths.records / "labels.txt").write_text(manifest.labels_text(classes))
    refuse("has a class of that name", **{"evaluate.max_error": 0.2})


def spoilt(world: World, name: str, value: float) -> tuple[tf.Module, model_folder.Description]:
    """The model with one weight made something else."""
    model = world.description.build()
    for weight, known in zip(model.weights, world.model.weights, strict=True):
        values = known.numpy()
        if weight.path == name:
            values.flat[0] = value
        weight.assign(values)
    return model, world.description.model_copy(update={"weights_sha256": model_folder.weights_sha256(model)})


def test_each_example_has_its_answer_in_order(evaluated: Path, world: World) -> None:
    found = predictions.read(evaluated / PATHS.predictions)
    assert found.labels.tolist() == world.labels.tolist()
    assert found.probabilities == pytest.approx(softmax(world.logits, axis=1), abs=1e-5)
    assert (found.split, found.classes) == ("test", scoring.CLASSES)
    assert found.model == world.description.weights_sha256


def test_metrics_have_the_keys_that_others_read(evaluated: Path) -> None:
    found = documents.read_json(evaluated / PATHS.metrics)
    assert set(found) == {
        "accuracy", "loss", "recall_at_5", "examples", "per_class", "calibration", "confidence_level",
        "intervals", "data", "model",
    }  # fmt: skip
    assert sum(each["examples"] for each in found["per_class"].values()) == found["examples"] == 103


def test_of_several_workers_the_chief_alone_evaluates_and_writes_equal_files(
    evaluated: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name: path.read_bytes() for path in (evaluated / "metrics").iterdir()}
    assert len(before) == 8
    workers = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}
    for index in (1, 0):
        assert not config.paths.metrics.exists()
        task = {"cluster": workers, "task": {"type": "worker", "index": index}}
        monkeypatch.setenv(cluster.VARIABLE, json.dumps(task))
        evaluate(config)
    assert {path.name: path.read_bytes() for path in Path("metrics").iterdir()} == before


@pytest.mark.parametrize(("where", "value"), [("conv1/kernel", np.nan), ("logits/bias", np.inf)])
def test_a_model_that_is_not_finite_is_refused(config: Config, world: World, where: str, value: float) -> None:
    model_folder.save(config.paths.model, *spoilt(world, where, value))
    refuse(f"not finite: {where};", NonFinite)
    assert NonFinite.exit_code == 4


def test_weights_that_overflow_are_refused(config: Config, world: World) -> None:
    model, description = spoilt(world, "logits/bias", 3e38)
    for weight in model.weights:
        weight.assign(np.full(weight.shape, 3e38))
    description = description.model_copy(update={"weights_sha256": model_folder.weights_sha256(model)})
    model_folder.save(config.paths.model, model, description)
    refuse("example 0;", QualityError)


def test_a_model_of_other_classes_is_refused(config: Config, world: World) -> None:
    other = world.description.model_copy(update={"classes": [*scoring.CLASSES[:9], "ten"]})
    model_folder.save(config.paths.model, world.model, other)
    refuse("ten")


def test_a_model_of_one_label_is_not_scored_on_several(config: Config) -> None:
    file = config.paths.records / "manifest.json"
    files.write_json(file, {**documents.read_json(file), "task": "multilabel"})
    refuse("the model is multiclass, data/records is multilabel")


def test_classes_that_the_model_leaves_out_are_none_of_the_scores(evaluated, config, world) -> None:
    before = documents.read_json(evaluated / PATHS.metrics)
    later = replace(world, labels=world.labels + 1)
    scoring.write_records(config.paths.records, later, SIZES, ("background", *scoring.CLASSES))
    options = world.description.options.model_copy(update={"labels_offset": 1})
    model_folder.save(
        config.paths.model, world.model, world.description.model_copy(update={"options": options})
    )
    evaluate(config)
    after = documents.read_json(config.paths.metrics)
    assert {**after, "data": before["data"]} == before


def test_any_split_is_scored_without_touching_the_pipelines_files(config: Config, world: World) -> None:
    split = "train"
    printed, table = score(config, split, model=None, predictions=Path("mine.npz"))
    right = world.logits.argmax(axis=1) == world.labels
    assert {"split": split, "examples": SIZES[split]}.items() <= printed.items()
    assert printed["accuracy"] == pytest.approx(accuracy := right[: SIZES[split]].mean())
    assert predictions.read(Path("mine.npz")).split == split
    assert written() == set()
    # The table has scores with intervals, and a line a class.
    lines = table.splitlines()
    assert lines[0] == "models/weights on 40 train examples of pets"
    assert lines[1].startswith(f"accuracy       {accuracy:.4f}   ")
    assert lines[1].endswith(" (95 %)")
    assert [line.split()[0] for line in lines[-10:]] == list(scoring.CLASSES)


def test_a_folder_without_a_model_is_refused_with_what_scores_checkpoints(config, tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"neither a model folder .* nor an export .*--watch FOLDER --once"):
        score(config, "test", model=tmp_path, predictions=None)
    with pytest.raises(ConfigError, match="none does not exist"):
        score(config, "test", model=tmp_path / "none", predictions=None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (PATHS.predictions, "--predictions"),  # never in the place of the pipeline's
        ("params.yaml", r"must be named \*.npz"),
        ("folder.npz", "is a folder"),
    ],
)
def test_predictions_go_to_no_other_file_and_to_no_folder(config: Config, name, message) -> None:
    Path("folder.npz").mkdir()
    with pytest.raises(ConfigError, match=message):
        score(config, "test", model=None, predictions=Path(name))
    assert written() == set()
