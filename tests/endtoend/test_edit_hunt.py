"""Parameters and code are edited at random moments of a run: no record differs from what ran.

EDITS=50 is the hunt, EDIT_SEED chooses its moments; EDIT_WAYS="repro exp" runs a part of the ways.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import pytest
from support.checkout import Beside, Checkout, Server, wait_until
from support.parameters import change_params

from perennial import dvc, dvc_lock

pytestmark = pytest.mark.slow
EDITS = int(os.environ.get("EDITS", "4"))
SEED = int(os.environ.get("EDIT_SEED", "0"))
START = {"dataset.seed": 3, "train.epochs": 2, "gate.min_accuracy": 0.1}
PARAMETERS = {"train.learning_rate": 0.003, "train.seed": 9, "dataset.seed": 5, "gate.min_gain": 0.2}
CODE = {
    "src/perennial/stages/train.py": (
        "set_random_seed(config.train.seed)",
        "set_random_seed(config.train.seed + 1)",
    ),
    "src/perennial/training/optimizers.py": ("\n\n", "\n# A comment\n\n"),
    "src/perennial/records/label_map.py": ("\n\n", "\n# A comment\n\n"),
}
WAYS = {
    "repro": (sys.executable, "-m", "dvc", "repro", "train"),
    "exp": (sys.executable, "-m", "dvc", "exp", "run", "train"),
    "make run": (sys.executable, "-m", "flows.retrain"),
    "deployed": (),
}
CHOSEN = [way for way in WAYS if way in os.environ.get("EDIT_WAYS", ",".join(WAYS)).split(",")]


def edit(folder: Path, what: str) -> None:
    """Edit a parameter or a file of code, as an editor saves it."""
    if what in PARAMETERS:
        change_params(folder / "params.yaml", {what: PARAMETERS[what]})
        return
    file = folder / what
    text = file.read_text(encoding="utf-8")
    assert CODE[what][0] in text
    file.with_suffix(".new").write_text(text.replace(*CODE[what], 1), encoding="utf-8")
    file.with_suffix(".new").replace(file)


@dataclass
class Hunt:
    """A prepared checkout, and trainings from records, each made once."""

    prepared: Checkout
    base: Path
    weights: dict[frozenset[str], str] = field(default_factory=dict)

    def copy(self, name: str) -> Checkout:
        """A copy of the checkout with results up to the training."""
        shutil.rmtree(self.base / name, ignore_errors=True)
        copied = Checkout(self.base / name / "the project", self.prepared.home)
        shutil.copytree(self.prepared.folder, copied.folder, symlinks=True)
        return copied

    def from_record(self, edits: frozenset[str]) -> str:
        """The weights of a training with these edits from its start."""
        if edits not in self.weights:
            checkout = self.copy("reference")
            for each in sorted(edits):
                edit(checkout.folder, each)
            checkout.must(sys.executable, "-m", "dvc", "repro", "train")
            record = json.loads((checkout.folder / "metrics/training.json").read_bytes())
            self.weights[edits] = record["weights_sha256"]
        return self.weights[edits]

    def verdict(self, folder: Path, what: str) -> str:
        """What dvc.lock records after a run with one edit; fails if it is not what ran."""
        stages = dvc_lock.here(folder)
        if "train" not in stages:
            return "nothing recorded"
        told = {name: self._has(stages[name], folder, what) for name in ("convert", "train")}
        if len(set(told.values()) - {None}) == 2:
            return "stale"
        edits = frozenset({what} if True in told.values() else ())
        content = (folder / "metrics/training.json").read_bytes()
        if dvc_lock.contradictions(stages, "metrics/training.json", content):
            return "refused by the second comparison"
        assert json.loads(content)["weights_sha256"] == self.from_record(edits), (what, told)
        return "recorded with the new value" if edits else "recorded with the old value"

    def _has(self, entry: dvc_lock.LockedStage, folder: Path, what: str) -> bool | None:
        """Whether a record of a stage has the edit; None where the stage does not depend on it."""
        if what in PARAMETERS:
            value = entry.params.get(("params.yaml", what))
            return None if value is None else value == PARAMETERS[what]
        dep = next((path for path in entry.deps if Path(what).is_relative_to(path)), None)
        return None if dep is None else entry.deps[dep] != dvc.digest(self.prepared.folder / dep)


@pytest.fixture(scope="module")
def hunt(make_checkout: Callable[[str], Checkout], tmp_path_factory: pytest.TempPathFactory) -> Hunt:
    """A checkout in which the stages before `convert` have run."""
    checkout = make_checkout("hunted")
    change_params(checkout.folder / "params.yaml", START)
    checkout.must(sys.executable, "-m", "dvc", "repro", "download")
    checkout.must("git", "add", ".")
    checkout.must("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "Start")
    return Hunt(checkout, tmp_path_factory.mktemp("hunt"))


@pytest.fixture(scope="module")
def on_demand(
    hunt: Hunt, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Path]]:
    """Start a deployed run; gives its checkout once it is there."""
    home = tmp_path_factory.mktemp("worker")
    extra = {"PREFECT_API_URL": server.url, "PERENNIAL_HOME": str(home)}
    project = hunt.copy("deployed")
    project.must(sys.executable, "-m", "tasks.deploy", **extra, PERENNIAL_REPOSITORY=str(project.folder))
    environment = project.environment(**extra, PREFECT_WORKER_QUERY_SECONDS="1")

    def start() -> Path:
        command = (sys.executable, "-m", "perennial", "run", "on-demand", "--json")
        done = project.must(*command, **extra)
        run = json.loads(done[done.index("{") :])["id"]
        folder = home / "runs" / str(run)
        wait_until((folder / ".dvc" / "config.local").exists)
        return folder

    with Beside(["python", "-m", "tasks.worker", "--pool", "cpu"], project.folder, environment):
        yield start


def ran(checkout: Checkout, way: str, what: str, after_s: float) -> tuple[str, float]:
    """Run it and edit something meanwhile; returns its output and its seconds."""
    began = time.monotonic()
    log = checkout.folder.parent / "log"
    with (
        log.open("w") as stream,
        subprocess.Popen(
            WAYS[way], cwd=checkout.folder, env=checkout.environment(), stdout=stream, stderr=stream
        ) as running,
    ):
        try:
            running.wait(after_s)
        except subprocess.TimeoutExpired:
            edit(checkout.folder, what)
        running.wait()
    return log.read_text(encoding="utf-8"), time.monotonic() - began


def has_ended(server: Server) -> bool:
    return not server.runs("SCHEDULED", "PENDING", "RUNNING")


def test_no_record_differs_from_what_ran(hunt: Hunt, request: pytest.FixtureRequest) -> None:
    draws, found, lasted = random.Random(SEED), Counter[str](), dict.fromkeys(WAYS, 40.0)
    things = [*PARAMETERS, *CODE]
    for number, way in enumerate(islice(cycle(CHOSEN), EDITS)):
        what, moment = draws.choice(things), draws.random()
        if way == "deployed":
            folder, began = request.getfixturevalue("on_demand")(), time.monotonic()
            time.sleep(moment * lasted[way])
            edit(folder, what)
            wait_until(partial(has_ended, request.getfixturevalue("server")), seconds=3600)
            output, lasted[way] = "", time.monotonic() - began
        else:
            checkout = hunt.copy("trial")
            folder = checkout.folder
            output, lasted[way] = ran(checkout, way, what, moment * lasted[way])
        verdict = hunt.verdict(folder, what)
        found[verdict] += 1
        said = [line for line in output.splitlines() if "changed" in line or line.startswith("ERROR")]
        print(f"{number + 1}: {way}, {what} after {moment:.2f} of the time: {verdict}; {said[:1]}", flush=True)
        assert "Traceback" not in output, output
    print(f"EDIT_SEED={SEED}: {EDITS} edits: {dict(found)}")
