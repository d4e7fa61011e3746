"""The comparison of a candidate with the champion on the same test examples."""

from dataclasses import replace
from math import comb
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binomtest

from perennial.base import documents, files
from perennial.base.errors import DataError
from perennial.model.evaluation import comparison
from perennial.model.evaluation.comparison import Champion, compare, mcnemar
from perennial.model.evaluation.predictions import TopPredictions

CLASSES = ("cat", "dog", "bird")


def candidate(
    labels: NDArray[np.int64], predicted: NDArray[np.int64], classes: tuple[str, ...] = CLASSES
) -> TopPredictions:
    p = np.full(len(labels), 0.75, np.float32)
    return TopPredictions(
        labels=labels, predicted=predicted, p=p, p_true=p, classes=classes, split="test", data="d",
        split_digest="t", model="m",
    )  # fmt: skip


def champion(predicted: NDArray[np.int64], classes: tuple[str, ...] = CLASSES) -> Champion:
    p = np.full(len(predicted), 0.5, np.float32)
    return Champion(
        commit="c", version="v0.0.1", model="old", model_bytes=7, classes=classes, split_digest="t",
        rescored=False, predicted=predicted, p=p, p_true=p,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("won", "lost"), [(0, 0), (0, 5), (1, 0), (9, 0), (8, 0), (20, 14), (300, 250), (5, 900)]
)
def test_the_p_value_is_the_exact_binomial_one(won: int, lost: int) -> None:
    count = won + lost
    exact = sum(comb(count, wins) for wins in range(won, count + 1)) / 2**count
    assert mcnemar(won, lost) == pytest.approx(exact, rel=1e-9)
    if count:
        assert mcnemar(won, lost) == pytest.approx(
            binomtest(won, count, alternative="greater").pvalue, rel=1e-9
        )


def test_a_comparison_counts_the_examples_that_one_model_alone_gets_right() -> None:
    random = np.random.default_rng(0)
    labels, ours, theirs = random.integers(0, 3, (3, 500))
    found = compare(candidate(labels, ours), champion(theirs))
    won = sum(o == y != t for y, o, t in zip(labels, ours, theirs, strict=True))
    lost = sum(t == y != o for y, o, t in zip(labels, ours, theirs, strict=True))
    assert (found.examples, found.won, found.lost) == (500, won, lost)
    assert found.gain == pytest.approx((ours == labels).mean() - (theirs == labels).mean())
    recalls = [[(each[labels == label] == label).mean() for label in range(3)] for each in (theirs, ours)]
    assert found.class_drop == pytest.approx(max(0, *np.subtract(*recalls)))


def test_classes_are_the_same_if_their_names_are() -> None:
    labels = np.array([0, 1, 2, 0])
    reversed_names = champion(np.array([2, 1, 0, 0]), CLASSES[::-1])
    found = compare(candidate(labels, labels), reversed_names)
    assert (found.won, found.lost, found.new_classes, found.missing_classes) == (1, 0, (), ())


def test_what_a_champion_calls_by_an_unknown_name_is_wrong() -> None:
    labels = np.array([0, 1, 2, 2])
    found = compare(candidate(labels, labels), champion(labels, ("cat", "dog", "owl")))
    assert (found.won, found.new_classes, found.missing_classes) == (2, ("bird",), ("owl",))


def test_a_class_without_examples_drops_nothing() -> None:
    labels = np.array([0, 0, 1, 1])
    found = compare(candidate(labels, np.array([0, 0, 1, 0])), champion(labels))
    assert (found.class_drop, found.dropped_class) == (0.5, "dog")


@pytest.mark.parametrize("change", [{"split_digest": "other"}, {"predicted": np.zeros(3, np.int64)}])
def test_other_examples_cannot_be_compared(change: dict[str, object]) -> None:
    labels = np.array([0, 1, 2, 2])
    with pytest.raises(DataError, match="dvc repro champion"):
        compare(candidate(labels, labels), replace(champion(labels), **change))


def test_a_champion_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = replace(champion(np.array([0, 2])), p_true=np.array([0.5, np.nan], np.float32))
    written.write(tmp_path)
    found = comparison.read(tmp_path)
    assert found is not None
    for name, value in vars(written).items():
        np.testing.assert_array_equal(getattr(found, name), value)


def test_equal_champions_are_equal_files(tmp_path: Path) -> None:
    written = champion(np.arange(3))
    contents = []
    for name in ("one", "two"):
        written.write(tmp_path / name)
        contents.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert contents[0] == contents[1]


@pytest.mark.parametrize("name", [comparison.FACTS, comparison.PREDICTIONS])
@pytest.mark.parametrize("content", [None, b"", b"{}"])
def test_a_damaged_champion_is_named(tmp_path: Path, name: str, content: bytes | None) -> None:
    champion(np.arange(3)).write(tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name} .*dvc repro"):
        comparison.read(tmp_path)


def test_a_champion_without_a_version_is_named(tmp_path: Path) -> None:
    champion(np.arange(3)).write(tmp_path)
    facts = documents.read_json(tmp_path / comparison.FACTS)
    files.write_json(tmp_path / comparison.FACTS, facts | {"version": None})
    with pytest.raises(DataError, match=r"champion\.json has no version"):
        comparison.read(tmp_path)
