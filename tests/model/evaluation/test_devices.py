"""Equal scores for all batch sizes and numbers of devices, some of which may get no examples.

Every split size for one batch size here; FAULTS=all adds those for the others, and two devices.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from scipy.special import softmax
from support import forks, scoring
from support.scoring import World

from perennial.model.evaluation import scoring as scorer
from perennial.model.models import model_folder

ROOT = Path(__file__).parents[3]
CELLS = [(size, batch) for batch, sizes in scoring.SIZES.items() for size in sizes]
COUNTS = (1, 2, 3) if scoring.THOROUGH else (1, 3)


@pytest.fixture(scope="module")
def world() -> World:
    return scoring.world()


@pytest.fixture(scope="module")
def found(world: World, tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """Scores by number of devices, several in a process of their own: a CPU in use cannot be split."""
    folder = tmp_path_factory.mktemp("sizes")
    model_folder.save(folder / "model", world.model, world.description)
    for size in {size for size, _ in CELLS}:
        scoring.write_records(folder / str(size), world, {"test": size})
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}", "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = [forks.with_tensorflow(), "-m", "support.scoring", str(folder)]
    processes = {
        count: subprocess.Popen(
            [*command, f"cpu:{count}"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        for count in COUNTS
        if count > 1
    }
    alone = scoring.found(folder, ["cpu:0"])
    return {1: alone} | {count: json.loads(process.communicate()[0]) for count, process in processes.items()}


@pytest.mark.parametrize("count", COUNTS)
def test_every_device_has_a_copy_of_the_model(count: int, found: dict[int, dict[str, Any]]) -> None:
    assert found[count]["devices"] == [f"CPU:{number}" for number in range(count)]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("size", "batch"), CELLS)
def test_scores_are_those_of_the_whole_split_in_one_batch(count, size, batch, world, found) -> None:
    cell, logits = found[count]["cells"][f"{size} in batches of {batch}"], world.logits[:size]
    expected = scorer.score([(logits, world.labels[:size])], classes=10, examples=size)
    assert cell["predicted"] == expected.predicted.tolist()
    assert cell["probabilities"] == pytest.approx(softmax(logits, axis=1).max(axis=1), abs=1e-6)
    assert cell["scores"] == pytest.approx(expected.summary, rel=1e-6, abs=1e-6)
