"""A served model that gives any number of labels an image, the same as `predict`, Python and the SavedModel."""

import csv
import io
import json

import numpy as np
import pytest
import tensorflow as tf
from live.serving.served import MODEL, b64, publish, serving
from support.checkout import wait_until
from support.inference import CLASSES, World, write_export
from support.raw import encoded, picture

import perennial
from perennial.base.storage.local import LocalStore
from perennial.cli import predict_images
from perennial.live.capture import place
from perennial.live.capture.keeper import CaptureLimits
from perennial.live.serving.shadow import Candidate
from perennial.model.inference import image_inputs

IMAGES = [encoded(picture(seed, 12 + seed)) for seed in range(6)]
SCALE = 3  # of the last weights, so that images differ
ALL = CaptureLimits(share=1, per_day=1000, bytes=1 << 30, days=30)


@pytest.fixture(scope="module")
def probabilities(tmp_path_factory) -> np.ndarray:
    world = write_export(tmp_path_factory.mktemp("first") / "export", scale=SCALE, thresholds=(0.5, 0.5, 0.5))
    return np.stack([each.probabilities for each in perennial.load(world.folder).predict(IMAGES)])


@pytest.fixture(scope="module")
def several(tmp_path_factory, probabilities) -> World:
    """An export with a threshold of each class that some images reach."""
    ordered = np.sort(probabilities, axis=0)
    thresholds = [float(ordered[[row, row + 1], index].mean()) for index, row in enumerate((3, 3, 4))]
    return write_export(tmp_path_factory.mktemp("several") / "export", scale=SCALE, thresholds=thresholds)


@pytest.fixture(scope="module")
def predictions(several):
    return perennial.load(several.folder).predict(IMAGES, top=2)


def test_serve_python_and_the_saved_model_give_the_same_labels(several, predictions) -> None:
    outputs = tf.saved_model.load(str(several.folder)).signatures["classify_bytes"](image=tf.constant(IMAGES))
    labels = outputs["labels"].numpy()
    assert 0 < labels.mean() < 1
    names = [{CLASSES[index] for index in np.flatnonzero(row)} for row in labels]
    assert [set(each.labels) for each in predictions] == names
    with serving(several.folder) as (_, client):
        body = {"instances": [*map(b64, IMAGES)]}
        rows = client.post(f"{MODEL}:predict", json=body).json()["predictions"]
        columns = client.post(f"{MODEL}:predict", json={"inputs": body["instances"]}).json()["outputs"]
        examples = {"examples": [{"image": each} for each in body["instances"]]}
        found = client.post(f"{MODEL}:classify", json=examples).json()
    assert [row["labels"] for row in rows] == columns["labels"] == labels.tolist()
    assert [row["probabilities"] for row in rows] == columns["probabilities"]
    assert found["answers"] == [list(each.labels) for each in predictions]
    assert [[row[0][0], row[1][0]] for row in found["results"]] == [
        [each.label for each in answer.classes] for answer in predictions
    ]


def test_predictions_name_labels_in_order_of_probability(predictions) -> None:
    for each in predictions:
        assert each.label == ", ".join(each.labels)
        shares = [given.probability for given in each.given]
        assert (shares, len(each.classes)) == (sorted(shares, reverse=True), 2)
    assert len({len(each.labels) for each in predictions}) > 1


@pytest.mark.parametrize("kind", ["lines", "csv", "json"])
def test_what_is_printed_holds_all_labels_and_the_most_probable_others(
    several, predictions, kind, tmp_path, capsys
) -> None:
    files = [tmp_path / f"{number}.png" for number in range(len(IMAGES))]
    for file, content in zip(files, IMAGES, strict=True):
        file.write_bytes(content)
    images = image_inputs.from_arguments([*map(str, files)])
    predict_images._print(perennial.load(several.folder), images, kind, 2)
    printed = capsys.readouterr().out
    if kind == "json":
        found = json.loads(printed)
        assert [each["labels"] for each in found] == [[*each.labels] for each in predictions]
        return
    if kind == "csv":
        rows = list(csv.DictReader(io.StringIO(printed)))
        for file, each in zip(files, predictions, strict=True):
            mine = [row for row in rows if row["file"] == str(file)]
            assert {row["class"] for row in mine if row["label"] == "1"} == set(each.labels)
            assert {row["class"] for row in mine} == {*each.labels, *(one.label for one in each.classes)}
        return
    for line, each in zip(printed.splitlines(), predictions, strict=True):
        given = ", ".join(f"{one.label} {one.probability:.4f}" for one in each.given) or "no label"
        others = [f"{one.label} {one.probability:.4f}" for one in each.classes if one.label not in each.labels]
        assert line.partition(": ")[2] == given + (f" ({', '.join(others)})" if others else "")


def test_metrics_kept_records_and_a_candidate_know_all_labels(
    several, predictions, probabilities, tmp_path
) -> None:
    candidate = write_export(tmp_path / "candidate" / "export", scale=SCALE, thresholds=(1.0, 1.0, 1.0))
    store = LocalStore(tmp_path / "kept")
    shadow = Candidate(model=str(candidate.folder), share=1, max_ms=None)
    with serving(several.folder, keep=(store, ALL), shadow=shadow) as (_, client):
        assert client.post(f"{MODEL}:predict", json={"instances": [*map(b64, IMAGES)]}).status_code == 200
        wait_until(lambda: client.get("shadow").json()["images"] == len(IMAGES))
        compared, metrics = client.get("shadow").json(), client.get("metrics").text
    counts = {name: sum(name in each.labels for each in predictions) for name in CLASSES}
    for name, count in counts.items():
        assert f'perennial_predictions_total{{class="{name}"}} {count}.0' in metrics
    none = sum(not each.labels for each in predictions)
    assert f"perennial_unlabelled_images_total {none}.0" in metrics
    assert compared["agreed"] == none
    served = sorted(each["served"] for each in compared["disagreements"] for _ in range(each["images"]))
    assert served == sorted(sorted(each.labels) for each in predictions if each.labels)
    assert {tuple(each["candidate"]) for each in compared["disagreements"]} == {()}
    records = [each for each in place.read(store) if each.reason == "random"]
    assert sorted(each.labels for each in records) == sorted(each.labels for each in predictions)
    assert all(each.nearest[0] in CLASSES and each.nearest[1] > 0 for each in records)
    disagreeing = [each for each in place.read(store) if each.reason == "disagreement"]
    assert {each.candidate_labels for each in disagreeing} == {()}
    for each in disagreeing:  # the candidate is the same network, with other thresholds
        assert [name for name, _ in each.candidate_top] == [name for name, _ in each.top]


@pytest.mark.slow
def test_a_version_of_the_other_task_changes_the_form_of_answers_and_stops_a_candidate(
    world, several, tmp_path
) -> None:
    published = tmp_path / "models"
    publish(published, world)
    shadow = Candidate(model=str(world.folder), share=1, max_ms=None)
    with serving(published, shadow=shadow) as (_, client):

        def form() -> tuple[str, str]:
            found = client.post(f"{MODEL}:predict", json={"inputs": [b64(IMAGES[0])]}).json()
            return min(found["outputs"]), found["model_version"]

        assert form() == ("classes", "1")
        publish(published, several)
        wait_until(lambda: form() == ("labels", "2"))
        wait_until(lambda: form() and client.get("shadow").json()["stopped"])
        compared = client.get("shadow").json()
    assert compared["stopped"].startswith("it is of another task")
    assert (compared["served"], compared["images"], compared["disagreements"]) == ("2", 0, [])
