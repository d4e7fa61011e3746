"""Files of predictions, and slices by the columns of a table of labels."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import predicted, records

from perennial.base.errors import DataError
from perennial.data.records import columns
from perennial.model.evaluation import predictions
from perennial.model.evaluation.predictions import Predictions, find_slices, slice_scores


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


def of_an_array() -> bytes:
    np.save(stream := io.BytesIO(), np.zeros(3))
    return stream.getvalue()


@pytest.mark.parametrize("content", [None, b"", b"actual\ncat\n", b"PK\x03\x04", of_an_array()])
def test_a_file_without_predictions_is_named(tmp_path, content):
    file = tmp_path / "predictions.npz"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(DataError, match=r"predictions\.npz"):
        predictions.read(file)


def test_an_archive_has_no_headers_that_versions_of_python_write_differently(tmp_path):
    content = predictions.archived(classes=np.array(["cat"]))
    assert int.from_bytes(content[4:6], "little") == 20  # ZIP 2.0; ZIP64 is 4.5
    assert int.from_bytes(content[18:22], "little") < len(content)  # no marker of ZIP64
    with np.load(io.BytesIO(content)) as read:
        assert read["classes"].tolist() == ["cat"]


ROWS = [("north", "1", ""), ("south", "2", "x"), ("north", "3", "")]


def sliced(**changes: object) -> Predictions:
    return predicted.predictions([0, 1, 0], np.eye(2)[[0, 1, 1]], **changes)


def test_a_column_of_a_few_values_gives_a_slice_for_each() -> None:
    site, flag = find_slices(["site", "flag"], [(site, flag) for site, _, flag in ROWS])
    assert (site.names, site.of.tolist()) == (("site: north", "site: south"), [0, 1, 0])
    assert (flag.names, flag.of.tolist()) == (("flag: (none)", "flag: x"), [0, 1, 0])


@pytest.mark.parametrize("values", [1, 51])
def test_a_column_of_one_value_or_of_very_many_gives_none(values: int) -> None:
    assert find_slices(["column"], [(str(number % values),) for number in range(60)]) == ()


def test_predictions_without_slices_have_no_array_more(tmp_path: Path) -> None:
    sliced().write(tmp_path / "p.npz")
    with predictions.arrays(tmp_path / "p.npz") as found:
        assert "slices" not in found
        assert "slice_names" not in found


def test_decisions_read_no_prediction_on_examples_for_audit(tmp_path: Path) -> None:
    audit = np.array([False, True, False])
    written = sliced(slices=find_slices(["site"], ROWS), audit=audit)
    written.write(tmp_path / "p.npz")
    every = predictions.read(tmp_path / "p.npz")
    found = every.judged()
    assert (found.labels.tolist(), found.predicted.tolist(), found.numbers.tolist()) == ([0, 0], [0, 1], [0, 2])
    assert found.slices[0].of.tolist() == [0, 0]
    assert every.labels.tolist() == found.split_labels.tolist() == [0, 1, 0]
    assert found.audit is None
    assert found.judged() is found


def test_scores_by_slice_have_wilsons_interval() -> None:
    found = slice_scores(find_slices(["site"], ROWS), np.array([True, True, False]), 0.95)
    assert found["site"]["south"] == {"examples": 1, "accuracy": 1.0, "low": pytest.approx(0.2065, abs=1e-4),
                                      "high": 1.0}  # fmt: skip
    assert (found["site"]["north"]["examples"], found["site"]["north"]["accuracy"]) == (2, 0.5)


def test_a_damaged_file_of_columns_is_named(tmp_path: Path) -> None:
    records.write_folder(tmp_path, {"train": [], "test": []}, ("cat",))
    for content in ("", "split,class\ntest,cat\n", "split,image/filename,class,site\ntest,a.png\n"):
        (tmp_path / columns.FILE).write_text(content)
        with pytest.raises(DataError, match=r"columns\.csv is damaged.*dvc checkout"):
            columns.read(tmp_path, "test")
