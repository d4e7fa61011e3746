"""The cause of a change of the score, found by real trainings of mixtures."""

import json
import shutil
from pathlib import Path

import pytest
from support.checkout import Checkout

COMMIT = ("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qam")


@pytest.mark.slow
def test_the_parameter_that_caused_a_worse_score_is_named(reproduced: Checkout, tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "the project", reproduced.home)
    shutil.copytree(reproduced.folder, checkout.folder, symlinks=True)
    checkout.must(*COMMIT, "Recorded")
    checkout.set("train", learning_rate=0.5, label_smoothing=0.01)
    checkout.set("evaluate", calibration_bins=12)
    checkout.must("dvc", "repro", "evaluate")
    checkout.must(*COMMIT, "Worse")
    log = checkout.must("perennial", "why", "HEAD~1", "HEAD", "--bisect", "--json")
    found = json.loads(log[log.index("\n{\n") :])
    assert (found["cause"]["kind"], found["cause"]["what"]) == ("parameters", "train.learning_rate")
    assert found["b"]["accuracy"] < found["a"]["accuracy"] - found["bisect"]["noise"]["limit"]
    assert found["bisect"]["changes"] == 3
    assert found["bisect"]["trainings"] <= found["bisect"]["most_trainings"] == 3
    assert found["effect"]["examples"]["only_a"] > found["effect"]["examples"]["only_b"]
