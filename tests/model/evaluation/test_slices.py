"""Slices of the test examples by the columns of a table of labels."""

from pathlib import Path

import numpy as np
import pytest
from support import predicted, records

from perennial.base.errors import DataError
from perennial.data.records import columns
from perennial.model.evaluation import predictions, slices
from perennial.model.evaluation.predictions import Predictions

ROWS = [("north", "1", ""), ("south", "2", "x"), ("north", "3", "")]


def scored(**changes: object) -> Predictions:
    return predicted.predictions([0, 1, 0], np.eye(2)[[0, 1, 1]], **changes)


def test_a_column_of_a_few_values_gives_a_slice_for_each() -> None:
    site, flag = slices.find(["site", "flag"], [(site, flag) for site, _, flag in ROWS])
    assert (site.names, site.of.tolist()) == (("site: north", "site: south"), [0, 1, 0])
    assert (flag.names, flag.of.tolist()) == (("flag: (none)", "flag: x"), [0, 1, 0])


@pytest.mark.parametrize("values", [1, 51])
def test_a_column_of_one_value_or_of_very_many_gives_none(values: int) -> None:
    assert slices.find(["column"], [(str(number % values),) for number in range(60)]) == ()


def test_slices_are_read_with_the_predictions_as_they_were_written(tmp_path: Path) -> None:
    written = scored(slices=slices.find(["site"], ROWS))
    written.write(tmp_path / "p.npz")
    (each,) = predictions.read(tmp_path / "p.npz").slices
    assert (each.column, each.values, each.of.tolist()) == ("site", ("north", "south"), [0, 1, 0])


def test_predictions_without_slices_have_no_array_more(tmp_path: Path) -> None:
    scored().write(tmp_path / "p.npz")
    with predictions.arrays(tmp_path / "p.npz") as found:
        assert "slices" not in found
        assert "slice_names" not in found


def test_decisions_read_no_prediction_on_examples_for_audit(tmp_path: Path) -> None:
    audit = np.array([False, True, False])
    written = scored(slices=slices.find(["site"], ROWS), audit=audit)
    written.write(tmp_path / "p.npz")
    every = predictions.read(tmp_path / "p.npz")
    found = every.judged()
    assert (found.labels.tolist(), found.predicted.tolist(), found.numbers.tolist()) == ([0, 0], [0, 1], [0, 2])
    assert found.slices[0].of.tolist() == [0, 0]
    assert every.labels.tolist() == found.split_labels.tolist() == [0, 1, 0]
    assert found.audit is None
    assert found.judged() is found


def test_scores_by_slice_have_wilsons_interval() -> None:
    found = slices.scores(slices.find(["site"], ROWS), np.array([True, True, False]), 0.95)
    assert found["site"]["south"] == {"examples": 1, "accuracy": 1.0, "low": pytest.approx(0.2065, abs=1e-4),
                                      "high": 1.0}  # fmt: skip
    assert (found["site"]["north"]["examples"], found["site"]["north"]["accuracy"]) == (2, 0.5)


def test_a_damaged_file_of_columns_is_named(tmp_path: Path) -> None:
    records.write_folder(tmp_path, {"train": [], "test": []}, ("cat",))
    for content in ("", "split,class\ntest,cat\n", "split,image/filename,class,site\ntest,a.png\n"):
        (tmp_path / columns.FILE).write_text(content)
        with pytest.raises(DataError, match=r"columns\.csv is damaged.*dvc checkout"):
            columns.read(tmp_path, "test")
