"""A person's approval on a real server with a worker: in the UI's way, by a command, and too late."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.checkout import Beside, Checkout, Server, processes_under, wait_until
from support.small_servers import Hook, webhook

Run = dict[str, object]
ENDED = ("COMPLETED", "FAILED", "CANCELLED")
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Deployed:
    """A deployed project whose models wait for approval."""

    project: Checkout
    server: Server
    home: Path
    hook: Hook

    def train(self, *options: str) -> str:
        """Do a run on demand; returns its id."""
        command = (sys.executable, "-m", "perennial", "run", "on-demand", *options, "--watch", "--json")
        done = self.project.run(*command, PREFECT_API_URL=self.server.url)
        run = json.loads(done.stdout[done.stdout.index("{") :])
        assert run["state"] == "Completed", done.stdout
        return str(run["id"])

    def request(self, run: str, *states: str) -> Run:
        """The run of `approve` about a run, once it is in one of these states."""
        found: list[Run] = []

        def there() -> bool:
            runs = self.server.runs(*states)
            found[:] = [each for each in runs if each["parameters"].get("run") == run]  # type: ignore[attr-defined]
            return bool(found)

        wait_until(there)
        return found[0]

    def answer(self, asked: Run, **form: str) -> None:
        """Answer as the form of Prefect's UI does."""
        done = self.server.request("POST", f"/flow_runs/{asked['id']}/resume", {"run_input": form})
        assert done["status"] == "ACCEPT", done  # type: ignore[index]

    def perennial(self, *arguments: str) -> object:
        return json.loads(self.project.must("perennial", *arguments, "--json", PREFECT_API_URL=self.server.url))

    def state(self, run: str) -> str:
        return str(self.perennial("approve", run)["state"])  # type: ignore[index,call-overload]

    def alerted(self, *words: str) -> bool:
        return any(all(word in text for word in words) for text in self.hook.texts())

    def published(self) -> list[str]:
        return sorted(each.name for each in (self.home / "served").glob("[0-9]*"))


@pytest.fixture(scope="module")
def deployed(make_checkout, server, tmp_path_factory) -> Iterator[Deployed]:
    project, home = make_checkout("approval"), tmp_path_factory.mktemp("worker")
    project.set("publish", url=str(home / "served"))
    project.set("gate", approval=True, significance=None, min_gain=0.0, max_class_drop=None)
    project.commit("approval")
    extra = {"PREFECT_API_URL": server.url, "PERENNIAL_HOME": str(home)}
    with webhook() as hook:
        project.must(sys.executable, "-m", "tasks.deploy", **extra, PERENNIAL_NOTIFY_URL=hook.url)
        environment = project.environment(**extra, PREFECT_WORKER_QUERY_SECONDS="1")
        with Beside(["python", "-m", "tasks.worker", "--pool", "cpu"], project.folder, environment):
            yield Deployed(project, server, home, hook)


@pytest.fixture(scope="module")
def approved(deployed: Deployed) -> tuple[str, Run]:
    """A run that was approved in the UI, after a restart of the server and another night's run."""
    run = deployed.train()
    asked = deployed.request(run, "PAUSED")
    wait_until(lambda: not processes_under(deployed.home / "runs" / str(asked["id"])))
    assert deployed.published() == []
    deployed.server.restart()
    another = deployed.train()
    record = json.loads((deployed.home / "runs" / another / "runs" / another / "run.json").read_text())
    assert record["recorded"] == "unchanged"
    deployed.answer(deployed.request(run, "PAUSED"), decision="approve", name='Zoë "猫"', reason="good\nenough")
    return run, deployed.request(run, *ENDED)


def test_an_approved_model_becomes_champion_and_is_published(deployed, approved) -> None:
    run, asked = approved
    said = 'classifier v0.0.1 is champion, approved by Zoë "猫": good\\nenough'
    assert (asked["state_type"], asked["state"]["message"]) == ("COMPLETED", said)  # type: ignore[index]
    (version,) = deployed.perennial("versions")  # type: ignore[misc]
    assert (version["champion"], version["decision"]["approved"]["by"]) == (True, 'Zoë "猫"')
    assert (deployed.state(run), deployed.published()) == ("approved", ["1"])
    wait_until(lambda: deployed.alerted("approval wanted\nwaits for an answer until", "test accuracy"))
    wait_until(lambda: deployed.alerted(": promoted\nclassifier v0.0.1 is champion, approved by Zoë"))
    assert sum("approval wanted" in text for text in deployed.hook.texts()) == 1


def test_the_ui_shows_what_is_asked_and_refuses_an_answer_without_a_name(deployed, approved) -> None:
    _, asked = approved
    of_run = {"artifacts": {"flow_run_id": {"any_": [asked["id"]]}, "key": {"any_": ["approval"]}}}
    (artifact,) = deployed.server.post("/artifacts/filter", of_run)
    assert "| accuracy |" in str(artifact["data"])
    run = deployed.train("--set", "train.epochs=5")
    waiting = deployed.request(run, "PAUSED")
    for form in (
        {"decision": "approve"},
        {"decision": "approve", "name": ""},
        {"decision": "yes", "name": "Ada"},
    ):
        path = f"/flow_runs/{waiting['id']}/resume"
        refused = deployed.server.request("POST", path, {"run_input": form})
        assert refused["status"] == "REJECT"  # type: ignore[index]
    deployed.answer(waiting, decision="reject", name="Ada", reason="not today")
    ended = deployed.request(run, *ENDED)
    said = f"run {run} was rejected by Ada: not today"
    assert (ended["state_type"], ended["state"]["message"]) == ("COMPLETED", said)  # type: ignore[index]
    assert (deployed.state(run), deployed.published()) == ("rejected", ["1"])
    wait_until(lambda: deployed.alerted(f": rejected\n{said}"))


@pytest.mark.usefixtures("approved")
def test_a_command_answers_and_the_run_that_waits_ends(deployed: Deployed) -> None:
    run = deployed.train("--set", "train.epochs=6")
    deployed.request(run, "PAUSED")
    deployed.perennial("approve", run, "--by", "Grace")
    ended = deployed.request(run, *ENDED)
    assert ended["state"]["message"] == "classifier v0.0.2 is champion, approved by Grace"  # type: ignore[index]
    assert deployed.published() == ["1", "2"]


@pytest.mark.usefixtures("approved")
def test_nobody_s_answer_ends_the_run_and_is_recorded(deployed: Deployed) -> None:
    run = deployed.train("--set", "train.epochs=20", "--set", "gate.approval_hours=0.01")
    ended = deployed.request(run, "CANCELLED")
    assert str(ended["state"]["message"]).startswith(f"run {run} was not approved until ")  # type: ignore[index]
    assert deployed.state(run) == "expired"
    record = deployed.project.must("git", "show", f"run/{run}:runs/{run}/run.json")
    assert json.loads(record)["recorded"] == "expired"
    wait_until(lambda: deployed.alerted(f": approval expired\nrun {run} was not approved until"))
    assert not deployed.alerted("never resumed")
