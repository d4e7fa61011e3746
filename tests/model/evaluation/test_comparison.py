"""The comparison of a candidate with the champion on the same test examples."""

from dataclasses import asdict, replace
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binomtest
from support.predicted import predictions

from perennial.base import documents, files
from perennial.base.errors import DataError
from perennial.model.evaluation import comparison, intervals, unbiased
from perennial.model.evaluation.comparison import Champion, compare, mcnemar
from perennial.model.evaluation.predictions import Predictions, Slices

CLASSES = ("cat", "dog", "bird")


def candidate(
    labels: NDArray[np.int64], predicted: NDArray[np.int64], classes: tuple[str, ...] = CLASSES
) -> Predictions:
    return predictions(labels, np.eye(len(classes))[predicted], classes, split_digest="t")


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


@pytest.mark.parametrize("seed", [0, 1])
def test_a_comparison_is_what_counting_by_hand_gives(seed: int) -> None:
    random = np.random.default_rng(seed)
    labels, ours, theirs = random.integers(0, 3, (3, 500))
    labels[0] = 3  # the only fish
    site = Slices(column="site", values=("north", "south", "west"), of=np.repeat([0, 1, 2], [49, 50, 401]))
    parts = np.where(np.arange(500) < 400, unbiased.CHOSE, unbiased.TRAINED)
    new, old = candidate(labels, ours, (*CLASSES, "fish")), champion(theirs)
    found = compare(replace(new, slices=(site,)), replace(old, parts=parts))

    def group(name: str, rows: NDArray[np.bool_], judged: bool = True) -> dict[str, Any]:
        a, b = (ours == labels)[rows], (theirs == labels)[rows]
        won, lost = int((a & ~b).sum()), int((b & ~a).sum())
        low, high = binomtest(int(a.sum()), len(a)).proportion_ci(method="wilson")
        p_value = binomtest(lost, won + lost, alternative="greater").pvalue if won + lost else 1.0
        return {
            "name": name, "examples": len(a), "candidate": a.mean(), "low": low, "high": high,
            "champion": b.mean(), "won": won, "lost": lost, "p_value": p_value, "judged": judged,
        }  # fmt: skip

    counts = np.arange(500) < 400
    total = group("all", counts)
    won, lost = total["won"], total["lost"]
    assert (found.examples, found.left_out, found.won, found.lost) == (400, 100, won, lost)
    assert found.gain == pytest.approx((won - lost) / 400)
    flips = (found.negative_flips, found.negative_flips_low, found.negative_flips_high)
    assert flips == pytest.approx((lost / 400, *binomtest(lost, 400).proportion_ci(method="exact")))
    assert found.p_value == pytest.approx(binomtest(won, won + lost, alternative="greater").pvalue)
    assert (found.gain_low, found.gain_high) == intervals.gain(won, lost, 400)
    classes = [group(name, counts & (labels == number)) for number, name in enumerate(new.classes)]
    assert [asdict(each) for each in found.classes] == [pytest.approx(each) for each in classes]
    slices = [
        group(name, counts & (site.of == number), judged=number > 0) for number, name in enumerate(site.names)
    ]
    assert [asdict(each) for each in found.slices] == [pytest.approx(each) for each in slices]
    worst = max(classes, key=lambda each: each["champion"] - each["candidate"])
    assert found.class_drop == pytest.approx(worst["champion"] - worst["candidate"])
    assert (found.dropped_class, found.drop_p_value) == (worst["name"], pytest.approx(worst["p_value"]))


@pytest.mark.parametrize("theirs", [[0, 1, 2, 2], [1, 2, 0, 0]], ids=["equal", "better everywhere"])
def test_without_a_loss_no_class_dropped(theirs: list[int]) -> None:
    labels = np.array([0, 1, 2, 2])
    found = compare(candidate(labels, labels), champion(np.array(theirs)))
    assert (found.class_drop, found.dropped_class, found.drop_p_value, found.slices) == (0, None, 1, ())


def test_scores_are_of_the_probabilities() -> None:
    labels, right = np.array([0, 0, 0, 1]), np.array([True, False, True, True])
    p, p_true = np.array([0.9, 0.6, 0.5, 1], np.float32), np.array([0.9, 0, 0.5, 1], np.float32)
    found = comparison.scores(labels, right, p, p_true, classes=3, bins=4)
    assert (found.score, found.recall.tolist()[:2]) == (0.75, [pytest.approx(2 / 3), 1])
    assert np.isnan(found.recall[2])
    assert found.loss == pytest.approx(-np.log([0.9, np.finfo(np.float32).tiny, 0.5, 1]).mean())
    assert found.calibration_error == pytest.approx((abs(0.9 + 1 - 2) + abs(0.6 + 0.5 - 1)) / 4)
    p_true[1] = np.nan
    assert comparison.scores(labels, right, p, p_true, classes=3, bins=4).loss is None


def test_the_unbiased_score_is_of_the_examples_that_played_no_part() -> None:
    labels = np.arange(300) % 3
    old = champion(np.where(np.arange(300) < 30, (labels + 1) % 3, labels))
    new = candidate(labels, labels)
    assert comparison.fresh_score(new, old) is None
    parts = np.where(np.arange(300) < 120, unbiased.NO_PART, unbiased.CHOSE)
    assert comparison.fresh_score(new, replace(old, parts=parts)) == unbiased.score(90, 120)


def test_classes_are_the_same_if_their_names_are() -> None:
    labels = np.array([0, 1, 2, 0])
    reversed_names = champion(np.array([2, 1, 0, 0]), CLASSES[::-1])
    found = compare(candidate(labels, labels), reversed_names)
    assert (found.won, found.lost, found.new_classes, found.missing_classes) == (1, 0, (), ())


def test_what_a_champion_calls_by_an_unknown_name_is_wrong() -> None:
    labels = np.array([0, 1, 2, 2])
    found = compare(candidate(labels, labels), champion(np.array([0, 2, 2, 2]), ("cat", "dog", "owl")))
    assert (found.won, found.new_classes, found.missing_classes) == (3, ("bird",), ("owl",))


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
    known = {"p_true": np.array([0.5, np.nan], np.float32), "parts": np.array([1, 2], np.int8)}
    written = replace(champion(np.array([0, 2])), model_bytes=None, **known)
    written.write(tmp_path)
    facts = documents.read_json(tmp_path / comparison.FACTS)
    files.write_json(tmp_path / comparison.FACTS, facts | {"of a later version": 1})
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
    with pytest.raises(DataError, match=rf"{name} .*dvc repro (-f )?champion"):
        comparison.read(tmp_path)


def test_a_champion_without_a_version_is_named(tmp_path: Path) -> None:
    champion(np.arange(3)).write(tmp_path)
    facts = documents.read_json(tmp_path / comparison.FACTS)
    files.write_json(tmp_path / comparison.FACTS, facts | {"version": None})
    with pytest.raises(DataError, match=r"champion\.json has no version"):
        comparison.read(tmp_path)
