"""Results of a run, which must exist and be of the same model."""

import pytest
from support import finished

from perennial.base import documents, files
from perennial.base.errors import DataError
from perennial.model.evaluation.results import read_results

NEEDED = {
    "training": ("stopped_by", "epoch", "step", "kept", "evaluations", "weights_sha256"),
    "metrics": ("accuracy", "loss", "recall_at_5", "examples", "intervals", "per_class", "data", "model"),
    "decision": ("promote", "reasons", "candidate"),
}


@pytest.fixture
def paths(load):
    """Paths of a run with results."""
    checked = load()
    finished.leave(checked, ["cat", "dog"], each=2)
    return checked.paths


def test_the_results_of_one_model_are_read(paths):
    finished.change(paths.training, kept=20)
    found = read_results(paths)
    assert (found.training.weights_sha256, found.decision.candidate.model) == (found.metrics.model,) * 2
    assert found.training.score == 0.8  # of the kept step


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("decision", {"candidate": {"model": "other", "data": "d"}}, r"decision\.json .*other.*dvc repro gate"),
        ("decision", {"candidate": {"model": finished.MODEL, "data": "x"}}, r"decision\.json .*dvc repro gate"),
        ("training", {"weights_sha256": "other"}, r"metrics\.json .*other.*dvc repro evaluate"),
        ("training", {"kept": 21}, r"training\.json: evaluations .*21"),
        *(
            ("metrics", {"accuracy": value}, r"metrics\.json has (.* as|no) accuracy")
            for value in (None, "0.9", 1.5)
        ),
    ],
)
def test_results_that_do_not_belong_together_or_have_wrong_values_are_refused(paths, name, changes, message):
    finished.change(getattr(paths, name), **changes)
    with pytest.raises(DataError, match=message):
        read_results(paths)


@pytest.mark.parametrize("name", NEEDED)
def test_a_missing_key_or_file_is_named(paths, name):
    file = getattr(paths, name)
    whole = documents.read_json(file)
    for key in NEEDED[name]:
        files.write_json(file, {other: value for other, value in whole.items() if other != key})
        with pytest.raises(DataError, match=rf"{file} has no {key}; `dvc repro"):
            read_results(paths)
    file.unlink()
    with pytest.raises(DataError, match=rf"{file} does not exist; `dvc repro"):
        read_results(paths)
