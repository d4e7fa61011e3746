"""A training goes on on another machine, with nothing but a remote in common."""

import contextlib
import shutil

import pytest
from support.training import run

pytestmark = pytest.mark.timing


def test_another_machine_has_the_training_of_the_first_from_the_remote(digits, tmp_path, caplog):
    remote, made = tmp_path / "remote", []
    values = {"train.max_steps": 4, "checkpoints.interval_steps": 2, "checkpoints.remote": str(remote)}
    for name in ("first", "second"):
        caplog.clear()
        caplog.set_level("INFO", "perennial")
        with contextlib.chdir(shutil.copytree(digits, tmp_path / name)):
            made.append((done := run(values)).steps)
            made.append({path: weight.tobytes() for path, weight in done.weights.items()})
    assert made[:2] == made[2:]
    assert f"resumed from step 4, where it had finished, which was fetched from {remote}/" in caplog.text
