"""Revisions whose dvc.lock contradicts what the training wrote about itself."""

import json

import pytest
from support.edits import edit
from support.histories import GOOD, Hand, hand
from typer.testing import CliRunner

from perennial.base.dvc import dvc_lock
from perennial.cli import app
from perennial.release.audit.object_audit import ObjectProblem, audit
from perennial.release.audit.sides import open_sides

__all__ = ["hand"]


def found(hand: Hand, *revisions: str) -> list[ObjectProblem]:
    cache, remote = open_sides()
    return audit(hand.git, revisions, cache, remote).recorded_wrongly


def test_a_version_that_is_what_it_says_has_no_problem(hand: Hand) -> None:
    assert found(hand, hand.run(GOOD, {"train.learning_rate": 0.001, "train.seed": 0})) == []


def test_another_parameter_is_named_once(hand: Hand) -> None:
    wrong = hand.run(GOOD, {"train.learning_rate": 0.5})
    hand.write("README", "of no stage")
    (problem,) = found(hand, wrong, hand.commit())
    assert str(problem) == (
        "metrics/training.json: recorded wrongly: train.learning_rate is 0.001 in dvc.lock, and the training "
        f"used 0.5 (commit {wrong[:10]})"
    )


def test_other_code_is_named(hand: Hand) -> None:
    hand.run(GOOD, {})
    lock = hand.folder / "dvc.lock"
    entry = dvc_lock.here()["train"]
    edit(lock, entry.deps["src/model"], f"{'0' * 32}.dir")
    (problem,) = found(hand, hand.commit())
    assert problem.why == "the code in src/model is not what the training ran"


def test_the_command_lists_it_and_ends_with_3(hand: Hand) -> None:
    commit = hand.run(GOOD, {"train.learning_rate": 0.5})
    done = CliRunner().invoke(app, ["audit", "--json"])
    assert done.exit_code == 3
    (problem,) = json.loads(done.stdout)["problems"]
    assert (problem["kind"], problem["stage"], problem["revision"]) == ("recorded wrongly", "train", commit)
    assert (
        "1 revision: dvc.lock records other parameters or code than the training or the gate used"
        in done.stderr
    )


@pytest.mark.parametrize("content", [b"", b"[]", b'{"inputs": 3}', b'{"inputs": {"params": null, "code": []}}'])
def test_a_record_that_says_nothing_contradicts_nothing(hand: Hand, content: bytes) -> None:
    hand.run(GOOD, {})
    assert dvc_lock.contradictions(dvc_lock.here(), "metrics/training.json", content) == []
