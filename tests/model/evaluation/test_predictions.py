"""Files of predictions."""

import io
import tracemalloc

import numpy as np
import pytest

from perennial.base.errors import DataError
from perennial.model.evaluation import predictions
from perennial.model.evaluation.predictions import Predictions

RANDOM = np.random.default_rng(0)


@pytest.fixture
def written(tmp_path):
    """A file of 1,000 x 21,000 probabilities, 84 MB in memory."""
    probabilities = np.zeros((1_000, 21_000), np.float32)
    predicted = RANDOM.integers(0, 21_000, 1_000)
    probabilities[np.arange(1_000), predicted] = 0.75
    probabilities[:, 5] = 0.125
    file = tmp_path / "predictions.npz"
    names = tuple(f"class {label}" for label in range(21_000))
    Predictions(
        labels=np.full(1_000, 5),
        probabilities=probabilities,
        classes=names,
        split="test",
        data="a",
        split_digest="c",
        model="b",
    ).write(file)
    return file, probabilities.argmax(axis=1), probabilities.max(axis=1)


def test_the_top_predictions_are_read_without_holding_all_probabilities(written):
    file, predicted, p = written
    tracemalloc.start()
    found = predictions.read_top(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6
    np.testing.assert_array_equal(found.predicted, predicted)
    np.testing.assert_array_equal(found.p, p)
    assert (set(found.p_true.tolist()), found.split, found.data, found.model) == ({0.125}, "test", "a", "b")


@pytest.mark.parametrize("read", [predictions.read, predictions.read_top])
@pytest.mark.parametrize("content", [None, b"", b"actual\ncat\n", b"PK\x03\x04"])
def test_a_file_without_predictions_is_named(tmp_path, read, content):
    file = tmp_path / "predictions.npz"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(DataError, match=r"predictions\.npz"):
        read(file)


def test_an_array_file_is_refused(tmp_path):
    with (tmp_path / "predictions.npz").open("wb") as stream:
        np.save(stream, np.zeros(3))
    with pytest.raises(DataError, match=r"predictions\.npz"):
        predictions.read_top(tmp_path / "predictions.npz")


def test_one_long_name_among_many_takes_little_memory(tmp_path):
    file, names = tmp_path / "predictions.npz", ("ü" * 10**6, *map(str, range(9_999)))
    given = Predictions(
        labels=np.zeros(1, np.int64),
        probabilities=np.zeros((1, 10_000), np.float32),
        classes=names,
        split="test",
        data="a",
        split_digest="c",
        model="b",
    )
    tracemalloc.start()
    given.write(file)
    found = predictions.read(file).classes
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found == names, peak < 60e6) == (True, True)


def test_an_archive_has_no_headers_that_versions_of_python_write_differently(tmp_path):
    content = predictions.archived(classes=np.array(["cat"]))
    assert int.from_bytes(content[4:6], "little") == 20  # ZIP 2.0; ZIP64 is 4.5
    assert int.from_bytes(content[18:22], "little") < len(content)  # no marker of ZIP64
    with np.load(io.BytesIO(content)) as read:
        assert read["classes"].tolist() == ["cat"]
