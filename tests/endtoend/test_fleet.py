"""Three pipelines of one repository and another repository on one server: many runs at once, some killed.

RUNS=30, KILLS=10 and WORKERS=4 make it a hunt; PREFECT_SERVER_DATABASE_CONNECTION_URL names another
database than SQLite.
"""

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import pytest
from support.checkout import Beside, Checkout, Server
from support.fleets import add_pipeline

RUNS = int(os.environ.get("RUNS", "4"))
KILLS = int(os.environ.get("KILLS", "1"))
WORKERS = int(os.environ.get("WORKERS", "3"))
FOLDERS = {"": "", "ants": "pipelines/ants", "birds": "pipelines/birds"}  # of one repository
AUTHOR = ("-c", "user.name=t", "-c", "user.email=t@t")
ENDED = {"COMPLETED", "FAILED", "CANCELLED"}
LONGEST_S = 3600
pytestmark = pytest.mark.slow


@dataclass
class Repository:
    """A project with its bare repository."""

    project: Checkout
    remote: Path
    environment: dict[str, str]

    def must(self, *command: str) -> str:
        return self.project.must(*command, **self.environment)

    def json(self, *command: str) -> dict:
        done = self.must("python", "-m", "perennial", *command, "--json")
        return json.loads(done[done.index("{") :])

    def ask(self, *command: str) -> str:
        return self.must("git", "-C", str(self.remote), *command).strip()


@pytest.fixture
def repositories(make_checkout, server: Server, tmp_path: Path) -> Iterator[tuple[Repository, Repository]]:
    """A repository with three pipelines, and one with one, both deployed to one server with workers."""
    home = tmp_path / "worker"
    home.mkdir()
    found = []
    for name in ("fleet", "other"):
        project, remote = make_checkout(name), tmp_path / f"{name}.git"
        environment = {
            "PREFECT_API_URL": server.url,
            "PERENNIAL_HOME": str(home),
            "PERENNIAL_REPOSITORY": str(remote),
        }
        project.set("train", epochs=1)
        project.set("gate", min_accuracy=None, min_gain=0.0, significance=None, max_class_drop=None)
        if name == "fleet":
            for folder in filter(None, FOLDERS):
                add_pipeline(project.folder, folder)
        else:
            file = project.folder / "prefect.yaml"
            file.write_text(file.read_text().replace("  - name: ", "  - name: other-"))
        project.must("dvc", "remote", "add", "-d", "store", str(tmp_path / f"{name} store"))
        project.must("git", "add", ".")
        project.must("git", *AUTHOR, "commit", "-qm", "Pipelines")
        project.must("git", "clone", "-q", "--bare", ".", str(remote))
        project.must("git", "remote", "add", "origin", str(remote))
        project.must("git", "fetch", "-q", "origin")
        project.must(sys.executable, "-m", "tasks.deploy", **environment)
        found.append(Repository(project, remote, environment))
    first = found[0]
    command = ["python", "-m", "tasks.worker", *["--pool", "cpu"] * WORKERS]
    seen = first.project.environment(**first.environment, PREFECT_WORKER_QUERY_SECONDS="2")
    with Beside(command, first.project.folder, seen):
        yield found[0], found[1]


def deployed(server: Server) -> dict[str, tuple[str, dict[str, str]]]:
    """Each deployment by its name: its id, and the environment of its runs."""
    flows = {each["id"]: each["name"] for each in server.post("/flows/filter", {})}
    return {
        f"{flows[each['flow_id']]}/{each['name']}": (each["id"], each["job_variables"]["env"])
        for each in server.post("/deployments/filter", {})
    }


def programs(home: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Process, run and words of each program that works in a run's checkout."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            folder = (file.parent / "cwd").readlink()
            if folder.is_relative_to(home / "runs") and folder != home / "runs":
                run = folder.relative_to(home / "runs").parts[0]
                yield int(file.parent.name), run, file.read_bytes().decode().split("\0")


def test_many_runs_of_many_pipelines_at_once(repositories, server: Server) -> None:
    fleet, other = repositories
    home = Path(fleet.environment["PERENNIAL_HOME"])
    before = deployed(server)
    names = [f"retrain/{name}on-demand" for name in ("", "ants-", "birds-", "other-")]
    runs: dict[str, str] = {}  # deployment of each run
    for number, name in enumerate(islice(cycle(names), RUNS)):
        given = {"when_busy": "wait", "overrides": {"train.seed": number}}
        made = server.post(f"/deployments/{before[name][0]}/create_flow_run", {"parameters": given})
        runs[made["id"]] = name
    at_once, killed, side_by_side = Counter[str](), set[str](), 0
    deadline = time.monotonic() + LONGEST_S
    while True:
        states = {each["id"]: each["state_type"] for each in server.post("/flow_runs/filter", {"limit": 200})}
        if all(states[run] in ENDED for run in runs):
            break
        assert time.monotonic() < deadline, states
        for _ in range(10):
            now = list(programs(home))
            training = {run for _, run, words in now if words[1:4] == ["-m", "perennial", "train"]}
            trained = Counter(runs[run] for run in training)
            at_once |= trained
            side_by_side = max(side_by_side, len(trained))
            flows = {run: process for process, run, words in now if "prefect.engine" in words}
            worth = [run for run in training if run in flows and run not in killed]
            if worth and len(killed) < KILLS:
                killed.add(worth[0])
                os.kill(flows[worth[0]], signal.SIGKILL)
            time.sleep(0.3)
    print(Counter(states[run] for run in runs), f"{len(killed)} killed, {side_by_side} side by side")
    assert len(killed) == KILLS
    assert set(at_once.values()) == {1}  # one training of a pipeline at a time
    assert {states[run] for run in runs} == {"COMPLETED"}
    assert deployed(server) == before
    for run, name in runs.items():
        where, folder = _place(name, fleet, other)
        record = json.loads(where.ask("show", f"run/{run}:{folder}runs/{run}/run.json"))
        assert (record["run"], record["recorded"] in {"promoted", "not promoted"}) == (run, True)
    for where, folders in ((fleet, FOLDERS), (other, {"": ""})):
        for folder in folders.values():
            prefix = f"{folder}=" if folder else ""
            commits = where.ask(
                "for-each-ref", "--format=%(*objectname)", f"refs/tags/{prefix}classifier@*"
            ).split()
            assert commits
            for commit in commits:
                where.ask("merge-base", "--is-ancestor", commit, "main")
    _status_is_true(fleet)
    fleet.must("python", "-m", "perennial", "audit", "--all")


def _place(deployment: str, fleet: Repository, other: Repository) -> tuple[Repository, str]:
    pipeline = deployment.removeprefix("retrain/").removesuffix("on-demand").rstrip("-")
    return (other, "") if pipeline == "other" else (fleet, f"{FOLDERS[pipeline]}/".lstrip("/"))


def _status_is_true(fleet: Repository) -> None:
    listed = {each["name"]: each for each in fleet.json("status", "--all", "--fetch")["pipelines"]}
    assert listed.keys() == FOLDERS.keys()
    for name, folder in FOLDERS.items():
        start = f"refs/tags/{f'{folder}=' if folder else ''}classifier#champion#"
        tags = fleet.ask("for-each-ref", "--format=%(refname) %(*objectname)", f"{start}*").splitlines()
        last = max(tags, key=lambda tag: int(tag.split()[0].rpartition("#")[2]))
        assert listed[name]["champion"]["commit"] == last.split()[1]
        deployments = {each["name"] for each in listed[name]["server"]["deployments"]}
        assert f"retrain/{f'{name}-' if name else ''}nightly" in deployments
        assert len(deployments) == 5
        assert {run["state"] for run in listed[name]["runs"]} <= {"promoted", "not promoted"}
