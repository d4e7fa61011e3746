"""Parameters and code are edited while stages run: no record differs from what ran.

EDITS=50 is the hunt, EDIT_SEED chooses its moments; EDIT_WAYS="repro,exp" runs a part of the ways.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path

import pytest
from support.checkout import Beside, Checkout, Server, wait_until
from support.parameters import change_params

from perennial.base.dvc import dvc_digests, dvc_lock

pytestmark = pytest.mark.slow
EDITS = int(os.environ.get("EDITS", "4"))
SEED = int(os.environ.get("EDIT_SEED", "0"))
START = {"dataset.seed": 3, "train.epochs": 2, "gate.min_accuracy": 0.1}
PARAMETERS = {
    "dataset.seed": 5,
    "train.learning_rate": 0.003,
    "train.seed": 9,
    "evaluate.calibration_bins": 7,
    "gate.min_gain": 0.2,
}
CODE = {  # all but the comment change what the stages make
    "src/perennial/data/records/splits.py": ('f"{salt}:{name}"', 'f"{salt};{name}"'),
    "src/perennial/stages/train.py": (
        "set_random_seed(config.train.seed)",
        "set_random_seed(config.train.seed + 1)",
    ),
    "src/perennial/stages/evaluate.py": ('"loss": scores.loss', '"loss": scores.loss + 1'),
    "src/perennial/data/images/__init__.py": ("\n\n", "\n\n# A comment\n"),
}
READ = {  # what each stage reads of these
    "convert": [
        "dataset.seed",
        "src/perennial/data/records/splits.py",
        "src/perennial/data/images/__init__.py",
    ],
    "train": ["train.learning_rate", "train.seed", "src/perennial/stages/train.py"],
    "evaluate": ["evaluate.calibration_bins", "src/perennial/stages/evaluate.py"],
}
NEXT = {"convert": "train", "train": "evaluate", "evaluate": "export"}  # later stages cost time
WAYS = {
    "repro": (sys.executable, "-m", "dvc", "repro", "train"),
    "exp": (sys.executable, "-m", "dvc", "exp", "run", "train"),
    "make run": (sys.executable, "-m", "flows.retrain"),
    "deployed": (),
}
FLOWS = {"make run", "deployed"}
CHOSEN = [way for way in WAYS if way in os.environ.get("EDIT_WAYS", ",".join(WAYS)).split(",")]
RUNNING, JUST_ENDED, LATER = "while it ran", "just after it ended", "later"
MOMENTS = [RUNNING] * 8 + [JUST_ENDED, LATER]
JUST_S, LATER_S = 0.1, 8.0
POLL_S = 0.02
WRONG = "WRONG"
CAUGHT = "was recorded with other inputs than it read"  # by the next stage of the same `dvc repro`


def stage_of(folder: Path, name: str | None = None) -> tuple[str, Path] | None:
    """The stage whose process works in a folder, or that of this name, and the process in /proc."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode().split("\0")
            if words[1:3] != ["-m", "perennial"] or (process / "cwd").readlink() != folder:
                continue
        except OSError:
            continue
        if words[3] in dvc_stages() and name in (None, words[3]):
            return words[3], process
    return None


def dvc_stages() -> set[str]:
    return {"convert", "validate", "initialize", "train", "evaluate", "export", "champion", "gate"}


def prepared(folder: Path, what: str) -> Callable[[], object]:
    """A function that saves an edit of a parameter or a file of code, as an editor does."""
    file = folder / ("params.yaml" if what in PARAMETERS else what)
    new = folder.parent / "edited"
    if what in PARAMETERS:
        shutil.copy(file, new)
        change_params(new, {what: PARAMETERS[what]})
    else:
        text = file.read_text(encoding="utf-8")
        assert CODE[what][0] in text
        new.write_text(text.replace(*CODE[what], 1), encoding="utf-8")
    return lambda: new.replace(file)


@dataclass
class Hunt:
    """A prepared checkout, and results from records, each made once."""

    prepared: Checkout
    base: Path
    made: dict[tuple[str, frozenset[str]], dict[str, str]] = field(default_factory=dict)

    def copy(self, name: str) -> Checkout:
        """A copy of the checkout, in which the stages before `convert` have run."""
        shutil.rmtree(self.base / name, ignore_errors=True)
        copied = Checkout(self.base / name / "the project", self.prepared.home)
        shutil.copytree(self.prepared.folder, copied.folder, symlinks=True)
        return copied

    def from_record(self, stage: str, edits: frozenset[str]) -> dict[str, str]:
        """What a stage makes with these edits from the start."""
        if (stage, edits) not in self.made:
            checkout = self.copy("reference")
            for each in sorted(edits):
                prepared(checkout.folder, each)()
            checkout.must(sys.executable, "-m", "dvc", "repro", stage)
            for name, entry in dvc_lock.here(checkout.folder).items():
                self.made[name, edits] = results(checkout.folder, name, entry)
        return self.made[stage, edits]

    def verdicts(self, folder: Path, what: str) -> dict[str, str]:
        """What dvc.lock records of each stage that depends on an edit, and whether that is what ran."""
        stages, found = dvc_lock.here(folder), dict[str, str]()
        edited: set[bool] = set()
        for name in ("convert", "train", "evaluate"):
            if (entry := stages.get(name)) is None:
                break
            if (told := self._has(entry, folder, what)) is not None:
                edited.add(told)
            if len(edited) == 2:  # the records are those of two runs, which DVC finds stale
                found[name] = "stale"
                break
            made = self.from_record(name, frozenset({what} if True in edited else ()))
            right = results(folder, name, entry) == made and self._is_as_noted(entry, folder, name)
            found[name] = {True: "new", False: "old", None: "unread"}[told] if right else WRONG
            content = (folder / "metrics/training.json").read_bytes() if name == "train" else b"{}"
            if dvc_lock.contradictions(stages, "metrics/training.json", content):
                found[name] = "refused later"
        return found

    def _is_as_noted(self, entry: dvc_lock.LockedStage, folder: Path, stage: str) -> bool:
        """Whether a record has what the stage noted at its start; a changed comment counts, too."""
        noted = json.loads((folder / ".work" / "inputs" / f"{stage}.json").read_bytes())
        return not dvc_lock.differences(entry, stage, noted)

    def _has(self, entry: dvc_lock.LockedStage, folder: Path, what: str) -> bool | None:
        """Whether a record of a stage has the edit; None where the stage does not depend on it."""
        if what in PARAMETERS:
            value = entry.params.get(("params.yaml", what))
            return None if value is None else value == PARAMETERS[what]
        dep = next((path for path in entry.deps if Path(what).is_relative_to(path)), None)
        return None if dep is None else entry.deps[dep] != dvc_digests.digest(self.prepared.folder / dep)


def results(folder: Path, stage: str, entry: dvc_lock.LockedStage) -> dict[str, str]:
    """What depends on nothing but the inputs of a stage."""
    if stage == "train":
        return {"weights": json.loads((folder / "metrics/training.json").read_bytes())["weights_sha256"]}
    return dict(entry.outs)


@pytest.fixture(scope="module")
def hunt(make_checkout: Callable[[str], Checkout], tmp_path_factory: pytest.TempPathFactory) -> Hunt:
    """A checkout in which the stages before `convert` have run."""
    checkout = make_checkout("hunted")
    change_params(checkout.folder / "params.yaml", START)
    checkout.must(sys.executable, "-m", "dvc", "repro", "download", "initialize")
    checkout.must("git", "add", ".")
    checkout.commit("Start")
    return Hunt(checkout, tmp_path_factory.mktemp("hunt"))


@dataclass
class Run:
    """A run that has started, the folder where it works, and its output so far."""

    folder: Path
    ended: Callable[[], bool]
    stop: Callable[[], object]
    output: Callable[[], str] = str


Start = Callable[[str], Run]


@pytest.fixture(scope="module")
def deployed(hunt: Hunt, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts a deployed run, which finds no results of earlier ones."""
    home = tmp_path_factory.mktemp("worker")
    extra = {"PREFECT_API_URL": server.url, "PERENNIAL_HOME": str(home)}
    project = hunt.copy("deployed")
    project.must(sys.executable, "-m", "tasks.deploy", **extra, PERENNIAL_REPOSITORY=str(project.folder))
    environment = project.environment(**extra, PREFECT_WORKER_QUERY_SECONDS="1")

    def start(_: str) -> Run:
        for made in (home / "cache" / "runs", home / "train"):
            shutil.rmtree(made, ignore_errors=True)
        command = (sys.executable, "-m", "perennial", "run", "on-demand", "--json")
        done = project.must(*command, **extra)
        run = json.loads(done[done.index("{") :])["id"]
        folder, path = home / "runs" / str(run), f"/flow_runs/{run}/set_state"
        wait_until((folder / ".dvc" / "config.local").exists)
        return Run(
            folder,
            ended=lambda: not server.runs("SCHEDULED", "PENDING", "RUNNING", "CANCELLING"),
            stop=lambda: server.request("POST", path, {"state": {"type": "CANCELLING"}, "force": True}),
        )

    with Beside(["python", "-m", "tasks.worker", "--pool", "cpu"], project.folder, environment):
        yield start


@pytest.fixture
def started(hunt: Hunt) -> Iterator[Start]:
    """Starts a run by hand, in a new copy of the checkout."""
    programs: list[subprocess.Popen[bytes]] = []

    def start(way: str) -> Run:
        checkout = hunt.copy("trial")
        log = checkout.folder.parent / "log"
        environment = checkout.environment()
        with log.open("w") as stream:
            program = subprocess.Popen(
                WAYS[way], cwd=checkout.folder, env=environment, stdout=stream, stderr=stream
            )
        programs.append(program)
        return Run(
            checkout.folder,
            ended=lambda: program.poll() is not None,
            stop=lambda: program.send_signal(signal.SIGINT),
            output=lambda: log.read_text(encoding="utf-8"),
        )

    yield start
    for each in programs:
        each.kill()
        each.wait()


def edited(run: Run, stage: str, moment: str, wait_s: float, what: str) -> tuple[str | None, float]:
    """Edit something at a moment of a stage; the stage that ran then, and how long the awaited one was seen."""
    while (found := stage_of(run.folder, stage)) is None:
        if run.ended():
            return None, 0
        time.sleep(POLL_S)
    process, began, edit = found[1], time.monotonic(), prepared(run.folder, what)
    while process.exists() and (moment != RUNNING or time.monotonic() - began < wait_s):
        time.sleep(POLL_S if moment == RUNNING else POLL_S / 10)
    seen_s = time.monotonic() - began
    if moment != RUNNING:
        time.sleep(wait_s)
    edit()
    now = stage_of(run.folder)
    return now[0] if now else None, seen_s


def finish(run: Run, stage: str) -> None:
    """Wait until a run has recorded a stage, or has ended without."""
    while not run.ended():
        if stage_of(run.folder, NEXT[stage]):
            run.stop()
            wait_until(run.ended, seconds=3600)
        time.sleep(10 * POLL_S)


def test_no_record_differs_from_what_ran(hunt: Hunt, request: pytest.FixtureRequest, started: Start) -> None:
    draws, counts = random.Random(SEED), dict[str, Counter[str]]()
    lasted = {"convert": 5.0, "train": 20.0, "evaluate": 10.0}
    for number, way in enumerate(islice(cycle(CHOSEN), EDITS)):
        stage = draws.choice(["convert", "train", "train", *(["evaluate"] if way in FLOWS else [])])
        what, moment = draws.choice(READ[stage]), draws.choice(MOMENTS)
        share = draws.random()
        wait_s = share * {RUNNING: lasted[stage], JUST_ENDED: JUST_S, LATER: LATER_S}[moment]
        run = (request.getfixturevalue("deployed") if way == "deployed" else started)(way)
        hit, seen_s = edited(run, stage, moment, wait_s, what)
        lasted[stage] = max(seen_s, 1.0) if moment != RUNNING or hit != stage else max(lasted[stage], seen_s)
        finish(run, stage)
        found, output = hunt.verdicts(run.folder, what), run.output()
        verdict = found.get(stage, "nothing recorded")
        counts.setdefault(way, Counter()).update(
            ["edits", "of parameters" if what in PARAMETERS else "of code", verdict]
            + (["hit a running stage"] if hit else []) + (["hit a stage that reads it"] if hit == stage else [])
        )  # fmt: skip
        said = [line for line in output.splitlines() if " changed " in line or CAUGHT in line]
        print(
            f"{number + 1}: {way}: {what} {wait_s:.2f} s ({moment}) of {stage}, while {hit} ran: {found}; "
            f"{said[:1]}",
            flush=True,
        )
        assert "Traceback" not in output, output
        if WRONG in found.values():
            counts[way]["refused later" if CAUGHT in output else "wrong records"] += 1
    print(f"EDIT_SEED={SEED}")
    for way, each in counts.items():
        print(f"{way}: {dict(each)}")
    assert not any(each["wrong records"] for each in counts.values())
