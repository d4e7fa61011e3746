"""A trial: a copy of the project from before a stage, one fault, and the guarantees checked after it."""

import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perennial.base.errors import PerennialError
from perennial.base.processes.process import is_alive
from perennial.base.project.stages import STAGES, WITH_TENSORFLOW
from perennial.project.rehearsal import marked_programs
from perennial.project.rehearsal.marked_programs import Ended, Program, TooLate
from perennial.project.rehearsal.scratch_project import LAST, Project, run_git, run_program

SAME_RESULT, ERRORS_REPORTED, NO_ORPHANS, ATOMIC_PUBLISH = (
    "same result",
    "errors reported",
    "no orphans",
    "atomic publish",
)
CORRECT_STATE, DURABLE = "correct state", "durable writes"
GUARANTEES = {
    SAME_RESULT: "dvc.lock and every output end as in the unbroken run, byte for byte",
    ERRORS_REPORTED: "the exit code and a message name what is wrong",
    NO_ORPHANS: "every process of the run ends by itself",
    ATOMIC_PUBLISH: "the published model is whole, and the one that was made",
    CORRECT_STATE: "the server shows the true state of the run within three heartbeats",
    DURABLE: "what gets its final name was written to the disk before",
}
LEFT_S = 30.0  # an orphan has 18 s to save
WEIGHTS = {"train": 5, "export": 2, "convert": 2}  # relative frequency of stages; 1 for others
START_S, TENSORFLOW_S = 2.0, 8.0  # start-up time of a stage; updated from observations
TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True)
class Check:
    """Whether a guarantee held in a trial; `broken`: what was observed instead, empty if it held."""

    guarantee: str
    broken: str = ""


@dataclass
class Durations:
    """Estimated seconds of each stage's process, updated when stages end."""

    seconds: dict[str, float] = field(default_factory=dict)

    def of(self, stage: str) -> float:
        """The estimated seconds of a stage."""
        return self.seconds.get(stage) or START_S + (TENSORFLOW_S if stage in WITH_TENSORFLOW else 0)

    def seen(self, stage: str, seconds: float) -> None:
        """Record how long a stage took."""
        self.seconds[stage] = max(0.2, seconds)


@dataclass
class Trial:
    """The folder of one try; its random choices come from `rng`."""

    project: Project
    folder: Path
    rng: random.Random
    durations: Durations
    notes: list[str] = field(default_factory=list)  # what was done, for the report of a failure

    @property
    def checkout(self) -> Path:
        """The copy of the project."""
        return self.folder / "project"

    def begin(self, before: str | None = None) -> None:
        """Copy the project as it was before a stage; None: as the unbroken run left it."""
        self.project.copy(self.folder, before)
        self.note(f"a copy from before {before}" if before else "a copy of the whole run")

    def note(self, what: str) -> None:
        """Note what was done."""
        self.notes.append(what)

    def stage(self, *among: str) -> str:
        """Choose a random stage, long ones more often."""
        return self.rng.choices(among, [WEIGHTS.get(each, 1) for each in among])[0]

    def start(self, module: str, *arguments: str, under: Sequence[str] = (), **variables: str) -> Program:
        """Start a module of the checkout as a program; `under`: a command that runs it."""
        environment = self.project.environment(self.folder, self.checkout) | variables
        return Program([*under, sys.executable, "-m", module, *arguments], self.checkout, environment)

    def run(self, module: str, *arguments: str, **variables: str) -> Ended:
        """Run a module of the checkout as a program and wait for it."""
        return self.start(module, *arguments, **variables).wait()

    def process_of(self, stage: str) -> int | None:
        """The process of a running stage."""
        return marked_programs.find(self.folder, "perennial", stage)

    def pause(self, process: int, stage: str) -> None:
        """Wait until a random moment of a stage's run."""
        began, moment = time.monotonic(), self.rng.uniform(0.05, 1) * self.durations.of(stage)
        while (now := time.monotonic() - began) < moment:
            if not is_alive(process):
                self.durations.seen(stage, now)
                raise TooLate
            time.sleep(min(marked_programs.POLL_S, moment - now))
        self.note(f"after {moment:.1f} s of {stage}")

    def signal(self, process: int, number: signal.Signals, what: str) -> None:
        """Send a signal; TooLate if the process has ended."""
        marked_programs.send(process, number)
        self.note(f"{number.name} to {what}")

    def completes(self, stage: str) -> Check:
        """Run the pipeline up to a stage again, and compare the result with the reference run."""
        return self.equal(self.run("dvc", "repro", stage), stage)

    def equal(self, ended: Ended, last: str = LAST) -> Check:
        """Check that a finished run made the same as the reference run, up to a stage."""
        if ended.code:
            return Check(SAME_RESULT, f"the next run failed: {ended.last_lines()}")
        return Check(SAME_RESULT, "; ".join(self.project.differences(self.checkout, last)))

    def left(self) -> Check:
        """Check that the processes of the trial end by themselves; kill those that do not."""
        deadline = time.monotonic() + LEFT_S
        while (found := marked_programs.marked(self.folder)) and time.monotonic() < deadline:
            time.sleep(0.2)
        lines = [" ".join(line)[:120] for line in found.values()]
        marked_programs.kill_marked(self.folder)
        return Check(NO_ORPHANS, f"after {LEFT_S:.0f} s: {'; '.join(lines)}" if found else "")

    def reported(self, ended: Ended, codes: Container[int], *words: str) -> Check:
        """Check that a program ended with one of these codes and a message with one of these words."""
        right = ended.code in codes and TRACEBACK not in ended.output
        named = any(re.search(word, ended.output, re.IGNORECASE) for word in words)
        return Check(ERRORS_REPORTED, "" if right and named else ended.last_lines())

    def published(self) -> Iterator[Check]:
        """Check that the published model is complete and this checkout's; no check if nothing is published."""
        place = self.folder / "published"
        if (place / "current").exists():
            self.commit()
            yield ended_well(ATOMIC_PUBLISH, self.run("perennial", "verify", str(place)))

    def commit(self) -> None:
        """Commit the results of the run, since verification and audit read git."""
        run_git(self.project, self.checkout, "add", "--all")
        run_git(self.project, self.checkout, "commit", "--quiet", "--allow-empty", "--message=Run")

    def end(self) -> None:
        """Remove the folder."""
        marked_programs.kill_marked(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)


def ended_well(guarantee: str, ended: Ended) -> Check:
    """Check that a program ended with 0, as a guarantee requires."""
    return Check(guarantee, ended.last_lines() if ended.code else "")


def unbroken(project: Project) -> float:
    """Make the reference run that all others are compared with; returns its seconds."""
    checkout, started = project.reference, time.monotonic()
    ended = run_program(project, checkout, [sys.executable, "-m", "flows.retrain"])
    if ended.code:
        failed = PerennialError(f"the pipeline fails without any fault: {ended.last_lines(8)}")
        failed.exit_code = max(ended.code, 1)  # a signal's is negative
        raise failed
    if missing := [stage for stage in STAGES if stage not in project.locked(checkout)]:
        raise PerennialError(f"the unbroken run made no {', '.join(missing)}; nothing can be rehearsed")
    return time.monotonic() - started
