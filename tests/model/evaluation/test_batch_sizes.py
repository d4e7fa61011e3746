"""Equal scores for all sizes of batches and splits, which are those of scikit-learn."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from scipy.special import softmax
from sklearn import metrics
from support import scoring
from support.scoring import MOST, World

from perennial.model.evaluation import scoring as scorer
from perennial.model.evaluation import split as splits

CELLS = [(3, 1), *((size, 7) for size in (1, 6, 8, MOST)), (257, 128)]  # examples and batch size


@pytest.fixture(scope="module")
def world() -> World:
    return scoring.world()


@pytest.fixture(scope="module")
def whole(world: World) -> dict[int, dict[str, float]]:
    """By split size the metrics of the whole split in one batch."""
    expected = {}
    for size, _ in CELLS:
        logits, labels = world.logits[:size], world.labels[:size]
        chosen = scoring.configured(Path("records"), size).evaluate
        scored = scorer.score([(logits, labels)], classes=10, examples=size)
        expected[size] = dict(flat(scoring.computed(scored, softmax(logits, axis=1), chosen)))
    return expected


def flat(found: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Each number by its path of keys; None becomes NaN."""
    for name, value in found.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", float("nan") if value is None else float(value)


@pytest.mark.parametrize(("size", "batch"), CELLS)
def test_metrics_are_those_of_the_whole_split_in_one_batch(
    size: int, batch: int, world: World, whole: dict[int, dict[str, float]], tmp_path: Path
) -> None:
    scoring.write_records(tmp_path, world, {"test": size})
    config = scoring.configured(tmp_path, batch)
    given = splits.evaluate(config, "test", lambda: (world.model, world.description))
    assert given.scores.predicted.tolist() == world.logits[:size].argmax(axis=1).tolist()
    found = scoring.computed(given.scores, given.predictions.probabilities, config.evaluate)
    assert dict(flat(found)) == pytest.approx(whole[size], rel=1e-6, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("size", [size for size, _ in CELLS])
def test_the_whole_split_has_the_scores_of_scikit_learn(
    size: int, world: World, whole: dict[int, dict[str, float]]
) -> None:
    labels, logits = world.labels[:size], world.logits[:size]
    probabilities = softmax(logits.astype(float), axis=1)
    assert whole[size]["examples"] == size
    assert whole[size]["accuracy"] == pytest.approx(metrics.accuracy_score(labels, logits.argmax(axis=1)))
    assert whole[size]["loss"] == pytest.approx(metrics.log_loss(labels, probabilities, labels=range(10)))
    top = metrics.top_k_accuracy_score(labels, logits, k=5, labels=range(10))
    assert whole[size]["recall_at_5"] == pytest.approx(top)
