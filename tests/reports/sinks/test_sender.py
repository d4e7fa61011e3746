"""Trainings in the store of a real client of MLflow; what happens if it cannot be had."""

import base64
import os
import shutil

import psutil
import pytest
from support import finished
from support.parameters import change_params
from support.small_servers import Answering, served, silent_server

from perennial.base import config as configuration
from perennial.base import limits
from perennial.reports.sinks import sender

CLASSES = ("cat", "dog", "owl")
pytestmark = pytest.mark.usefixtures("forked_dvc")
NOWHERE = "http://127.0.0.1:1"  # where nothing listens


@pytest.fixture
def params(workspace, monkeypatch):
    """The params.yaml of a finished run, which is sent to MLflow."""
    for name in os.environ:
        if name.startswith(("MLFLOW_", "PERENNIAL_RUN")):
            monkeypatch.delenv(name)
    change_params(workspace / "params.yaml", {"logging.sinks": ["mlflow"]})
    finished.leave(configuration.load(workspace / "params.yaml"), CLASSES)
    return workspace / "params.yaml"


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The folder in which MLflow keeps its runs."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path / 'store'}")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return tmp_path / "store"


def steps(run, metric: str) -> list[int]:
    return [int(line.split()[2]) for line in (run / "metrics" / metric).read_text().splitlines()]


def test_mlflow_gets_parameters_scores_curves_tags_and_files_once(params, store):
    (sent,) = sender.send(params)
    (run,) = store.glob("*/*/meta.yaml")
    values = {name: (run.parent / name).read_text() for name in ("params/train.batch_size", "tags/decision")}
    assert sent.problem is None
    assert values == {"params/train.batch_size": "64", "tags/decision": "passed the gate"}
    assert steps(run.parent, "validation/loss") == [10, 20, 30, 40]
    assert steps(run.parent, "test/accuracy") == [40]
    assert {"metrics.json", "decision.json", "params.yaml"} <= {
        file.name for file in (run.parent / "artifacts").iterdir()
    }
    assert sender.send(params) == [sent]
    assert steps(run.parent, "validation/loss") == [10, 20, 30, 40]


@pytest.mark.slow
def test_a_server_that_is_away_is_named(params, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOWHERE)
    assert list(sender.problems(sender.send(params))) == [
        f"mlflow lacks results: {NOWHERE} cannot be reached; `perennial report --send` sends them again"
    ]


def test_results_that_a_server_never_takes_are_given_up_after_the_limit(params, monkeypatch):
    monkeypatch.setenv(limits.FACTOR, "0.001")
    before = set(psutil.Process().children())
    with silent_server() as silent:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://{silent.address}")
        (sent,) = sender.send(params)
    assert (sent.problem, set(psutil.Process().children()) - before) == ("it took more than 0.6 s", set())


def test_a_missing_address_is_named(params):
    (sent,) = sender.send(params)
    assert sent.problem.startswith("MLFLOW_TRACKING_URI is not set")


@pytest.mark.slow
def test_results_of_no_run_are_not_sent(params, store):
    shutil.rmtree(configuration.load(params).paths.metrics.parent)
    (sent,) = sender.send(params)
    assert (store.exists(), "does not exist" in str(sent.problem)) == (False, True)


def test_the_password_in_the_address_of_a_server_reaches_it_and_nothing_else(params, monkeypatch):
    asked: list[str] = []

    class Server(Answering):
        def do_GET(self) -> None:
            asked.append(self.headers["Authorization"])
            self.send_error(403, f"no access by {self.headers['Host']}")

        do_POST = do_GET

    with served(Server) as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address.replace("//", "//bob:plan%2Fted@"))
        (sent,) = sender.send(params)
    assert set(asked) == {f"Basic {base64.b64encode(b'bob:plan/ted').decode()}"}
    assert sent.problem
    folder = params.parent
    text = sent.problem + "".join(
        file.read_text(errors="ignore") for file in folder.rglob("*") if file.is_file()
    )
    assert [each for each in ("plan%2Fted", "plan/ted") if each in text] == []


def test_a_sink_without_a_module_is_not_called_a_missing_package(params):
    sent = sender._sent("wandb", configuration.load(params))
    assert sent.problem == "No module named 'perennial.reports.sinks.wandb_sink'"
