"""What a work pool runs, before Prefect's engine: runs that crash again and again, wherever they do."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.small_servers import Answering, served

from perennial.base.errors import ConfigError
from perennial.orchestration.client.prefect_server import connect
from perennial.orchestration.run_setup import flow_run
from perennial.orchestration.run_setup.flow_run import RESTARTS, require_taken, restarts, take

CRASHED, AGAIN = {"type": "CRASHED", "message": "exit code 137"}, {"type": "SCHEDULED", "message": None}
TAKEN, RUNNING = {"type": "PENDING", "message": None}, {"type": "RUNNING", "message": None}


def states(text: str) -> list[str]:
    """Types of states by their first letters: `Cr` crashed, `S` scheduled, `R` running, `F` failed."""
    kinds = {
        "Cr": "CRASHED", "S": "SCHEDULED", "P": "PENDING", "R": "RUNNING", "F": "FAILED", "Ca": "CANCELLED",
    }  # fmt: skip
    return [kinds[each] for each in text.split()]


@pytest.mark.parametrize(
    ("history", "count"),
    [
        ("S R", 0),
        ("S R Cr S R", 1),
        ("S R Cr R Cr S R", 1),  # marked as crashed, but alive
        ("S R Cr S R Cr S R Cr S R Cr S R", 4),
        ("S P Cr S P Cr S P", 2),  # while its checkout and packages were prepared
        ("S R Cr S R Cr S R F S R", 0),  # started again by a person
        ("S R Cr S R Ca S R Cr S R", 1),
    ],
)
def test_restarts_are_counted_since_a_person_started_the_run(history: str, count: int) -> None:
    assert restarts(states(history)) == count


@contextmanager
def serving(history: list[dict[str, object]]) -> Iterator[tuple[str, list[dict[str, object]], list[str]]]:
    """A server of one run with that history; its address, the states that are set, and the refused events."""
    added: list[dict[str, object]] = []
    events: list[str] = []

    class Handler(Answering):
        def do_GET(self) -> None:
            dated = [
                {**each, "id": str(n), "timestamp": f"2026-01-01T00:00:{n:02}Z"}
                for n, each in enumerate(history)
            ]
            self.answer(
                dated[::-1] if "flow_run_states" in self.path else {"parameters": {}, "auto_scheduled": True}
            )

        def do_POST(self) -> None:
            body = self.body()
            if self.path.endswith("set_state"):
                added.append(body["state"])
            elif self.path.endswith("/events"):
                events.append(body[0]["event"])
            self.answer({}, 404 if self.path.endswith("/events") else 200)

    with served(Handler) as address:
        yield f"{address}/api", added, events


@pytest.mark.parametrize("crashes", [RESTARTS, RESTARTS + 1])
def test_a_run_that_dies_while_it_is_prepared_is_started_three_times_again(crashes, tmp_path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "empty"], check=True)
    history = [AGAIN, *[TAKEN, CRASHED, AGAIN] * crashes, TAKEN]
    with serving(history) as (url, added, events):
        environment = {
            **os.environ, "PREFECT_API_URL": url, "PREFECT__FLOW_RUN_ID": "a", "PERENNIAL_HOME": str(tmp_path),
            "PERENNIAL_REPOSITORY": str(tmp_path / "empty"),
        }  # fmt: skip
        command = [sys.executable, "-m", "perennial", "flow-run"]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
    (state,) = added
    prepared = crashes <= RESTARTS  # as far as that goes without a commit
    assert events == ["perennial.taken", *["perennial.preparing"] * prepared]
    assert (state["type"], (tmp_path / "mirror").exists()) == ("FAILED", prepared), done.stderr
    refused = f"it crashed {RESTARTS + 1} times, and is not started again by itself; at last: exit code 137"
    assert (refused in str(state["message"])) is not prepared


def test_a_completed_run_that_is_retried_stays_as_it_was_recorded() -> None:
    done = {"type": "COMPLETED", "name": "Completed", "message": "promoted"}
    with (
        serving([AGAIN, TAKEN, done, AGAIN, TAKEN]) as (url, added, _),
        connect({"PREFECT_API_URL": url}) as server,
        pytest.raises(SystemExit) as ended,
    ):
        take(server, "a")
    assert (ended.value.code, added) == (0, [done])


@contextmanager
def jobs(*names: str | None) -> Iterator[tuple[str, list[str]]]:
    """A server whose run has these Jobs, one after the other; its address, and what is logged."""
    left, logged = list(names), []

    class Handler(Answering):
        def do_GET(self) -> None:
            name = left.pop(0) if len(left) > 1 else left[0]
            self.answer({"infrastructure_pid": name and f"default:{name}"})

        def do_POST(self) -> None:
            logged.extend(each["message"] for each in self.body())
            self.answer({})

    with served(Handler) as address:
        yield f"{address}/api", logged


@pytest.mark.parametrize(
    ("own", "names"),
    [("b", ["a", "a", "b"]), ("b", [None]), ("", ["a"])],
    ids=["written down late", "never written down", "no pod"],
)
def test_the_pod_of_the_newest_job_runs(own: str, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_run, "JOB_PAUSE_S", 0)
    monkeypatch.setenv(flow_run.JOB, own)
    with jobs(*names) as (url, logged), connect({"PREFECT_API_URL": url}) as server:
        flow_run._require_newest_job(server, "a")
    assert logged == []


def test_a_pod_that_got_its_node_after_the_run_was_started_again_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_run, "JOB_PAUSE_S", 0)
    monkeypatch.setenv(flow_run.JOB, "a")
    with (
        jobs("b") as (url, logged),
        connect({"PREFECT_API_URL": url}) as server,
        pytest.raises(SystemExit) as ended,
    ):
        flow_run._require_newest_job(server, "a")
    assert ended.value.code == 0  # else the Job would fail, and the observer mark the run as Crashed
    assert logged == ["the run was started again as Job b while Job a waited for a node; a ends"]


FLOW = "def retrain(*, rev=None, push=False): ...\ndef any_name(one, /, **more): ...\n"


@pytest.mark.parametrize("entrypoint", ["flows.retrain.retrain", "flows/retrain.py:retrain"])
def test_a_parameter_that_the_flow_does_not_take_is_refused_by_name(entrypoint: str, tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "retrain.py").write_text(FLOW)
    require_taken(tmp_path, entrypoint, {"rev": "main", "push": True})
    with pytest.raises(ConfigError, match="retrain takes no parameter foo, why; it takes rev, push; correct"):
        require_taken(tmp_path, entrypoint, {"rev": "main", "why": 1, "foo": 2})
    require_taken(tmp_path, "flows.retrain.any_name", {"a": 1})
    require_taken(tmp_path, "flows.gone.retrain", {"a": 1})  # the engine says that there is none
