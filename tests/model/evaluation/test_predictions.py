"""Files of predictions."""

import io
from dataclasses import replace

import numpy as np
import pytest
from support import predicted

from perennial.base.errors import DataError
from perennial.model.evaluation import predictions
from perennial.model.evaluation.predictions import Predictions


def test_the_top_predictions_are_those_of_all_probabilities(tmp_path):
    probabilities = np.random.default_rng(0).dirichlet(np.ones(20), 100).astype(np.float32)
    labels, file = np.full(100, 5), tmp_path / "predictions.npz"
    predicted.predictions(labels, probabilities, tuple(map(str, range(20)))).write(file)
    found = predictions.read(file)
    np.testing.assert_array_equal(found.predicted, probabilities.argmax(axis=1))
    np.testing.assert_array_equal(found.p, probabilities.max(axis=1))
    np.testing.assert_array_equal(found.p_true, probabilities[:, 5])
    assert (found.split, found.data, found.model, found.split_digest) == ("test", "d", "m", "s")


def several_labels() -> Predictions:
    """Two images with any of three labels."""
    labels, probabilities = np.array([[1, 0, 1], [0, 0, 0]], np.int8), [[0.5, 0.2, 0.69], [0.49, 0.3, 0.7]]
    thresholds = np.array([0.5, 0.3, 0.7], np.float32)
    return predicted.predictions(labels, probabilities, ("cat", "dog", "owl"), thresholds=thresholds)


def test_of_several_labels_those_from_their_thresholds_on_are_predicted(tmp_path):
    file = tmp_path / "predictions.npz"
    several_labels().write(file)
    found = predictions.read(file)
    np.testing.assert_array_equal(found.predicted, [[1, 0, 0], [0, 1, 1]])
    assert found.multilabel
    assert (found.labels.dtype, found.predicted.dtype, found.thresholds.dtype) == ("int8", "int8", "float32")


def test_several_labels_without_thresholds_are_no_predictions(tmp_path):
    file = tmp_path / "predictions.npz"
    replace(several_labels(), thresholds=None).write(file)
    with pytest.raises(DataError, match="without as many probabilities and thresholds"):
        predictions.read(file)


@pytest.mark.parametrize("content", [None, b"", b"actual\ncat\n", b"PK\x03\x04"])
def test_a_file_without_predictions_is_named(tmp_path, content):
    file = tmp_path / "predictions.npz"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(DataError, match=r"predictions\.npz"):
        predictions.read(file)


def test_an_array_file_is_refused(tmp_path):
    with (tmp_path / "predictions.npz").open("wb") as stream:
        np.save(stream, np.zeros(3))
    with pytest.raises(DataError, match=r"predictions\.npz"):
        predictions.read(tmp_path / "predictions.npz")


def test_an_archive_has_no_headers_that_versions_of_python_write_differently(tmp_path):
    content = predictions.archived(classes=np.array(["cat"]))
    assert int.from_bytes(content[4:6], "little") == 20  # ZIP 2.0; ZIP64 is 4.5
    assert int.from_bytes(content[18:22], "little") < len(content)  # no marker of ZIP64
    with np.load(io.BytesIO(content)) as read:
        assert read["classes"].tolist() == ["cat"]
