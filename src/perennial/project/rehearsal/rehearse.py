"""A rehearsal: trials with random faults in scratch folders, until the time is over."""

import logging
import secrets
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from perennial.base import documents
from perennial.base.config import Config
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.project.stages import STAGES
from perennial.project.rehearsal import fault_trial, scratch_project
from perennial.project.rehearsal.deployment import Deployment, killed_server, killed_worker
from perennial.project.rehearsal.fault_trial import SAME_RESULT, Check, Durations, Trial
from perennial.project.rehearsal.faults import FAULTS, Services
from perennial.project.rehearsal.marked_programs import TooLate, chance, kill_marked, nothing_outlives
from perennial.project.rehearsal.scratch_project import Project
from perennial.project.rehearsal.services import FaultyS3, ImageServer

log = logging.getLogger(__name__)
AGAIN = 5  # tries for a fault that came too late
LOCAL = {fault.name: fault for fault in FAULTS}
DEPLOYED = {"killed worker": killed_worker, "killed server": killed_server}
NAMES = (*LOCAL, *DEPLOYED)
DEPLOYED_MINUTES = 4.0  # minimum time for a run of a deployment
Inject = Callable[[str, Trial], Iterator[Check]]  # a fault by its name


@dataclass(frozen=True)
class Tried:
    """An injected fault, and the checks after it."""

    fault: str
    number: int
    notes: tuple[str, ...]  # what was done
    checks: tuple[Check, ...]
    seconds: float
    folder: Path | None  # kept if a guarantee was broken

    @property
    def broken(self) -> tuple[Check, ...]:
        """The guarantees that were broken."""
        return tuple(check for check in self.checks if check.broken)


@dataclass
class Rehearsal:
    """The result: the injected faults, and those that could not be injected here."""

    seed: int
    unbroken_s: float = 0.0
    seconds: float = 0.0
    tried: list[Tried] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # why, by fault
    folder: Path | None = None  # kept if a guarantee was broken

    @property
    def broken(self) -> list[Tried]:
        """The trials in which a guarantee was broken."""
        return [each for each in self.tried if each.broken]


def rehearse(checked: Config, *, minutes: float, seed: int | None, only: Sequence[str] = ()) -> Rehearsal:
    """Rehearse the pipeline of the checkout in the working directory; trials start during `minutes` minutes."""
    if unknown := [name for name in only if name not in NAMES]:
        raise ConfigError(f"{unknown[0]} is not a fault; choose from: {', '.join(NAMES)}")
    started, result = time.monotonic(), Rehearsal(secrets.randbelow(1 << 32) if seed is None else seed)
    chosen = _chosen(result, minutes, only)
    if not chosen:
        reasons = "; ".join(f"{name} {why}" for name, why in result.skipped.items())
        raise ConfigError(f"none of these faults can be injected here: {reasons}")
    base = Path(tempfile.mkdtemp(prefix="perennial-rehearsal-")).resolve()
    log.info("seed %d; faults: %s", result.seed, ", ".join(chosen))
    try:
        with nothing_outlives(base), _prepared(checked, base, result) as trials:
            trials.run(chosen, time.monotonic() + 60 * minutes, each=bool(only))
    finally:
        if result.broken:
            result.folder = base
        else:
            shutil.rmtree(base, ignore_errors=True)
    result.seconds = time.monotonic() - started
    return result


def run_once(checked: Config) -> dict[str, float]:
    """Run all stages of the pipeline once on a small sample, in a folder of its own that is removed at the end.

    Returns the seconds of each stage.
    """
    base = Path(tempfile.mkdtemp(prefix="perennial-test-")).resolve()
    try:
        with nothing_outlives(base), _prepared(checked, base, Rehearsal(0)):
            timings = Project(base).reference / checked.paths.work / "timings"
            return {stage: documents.read_json(timings / f"{stage}.json")["seconds"] for stage in STAGES}
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _chosen(result: Rehearsal, minutes: float, only: Sequence[str]) -> list[str]:
    """Choose the faults that can be injected; record the reason for the others."""
    for name in only or NAMES:
        why = LOCAL[name].missing() if name in LOCAL else None
        if name in DEPLOYED and not only and minutes < DEPLOYED_MINUTES:
            why = f"needs --minutes {DEPLOYED_MINUTES:.0f} or more"
        if why:
            result.skipped[name] = why
    return [name for name in only or NAMES if name not in result.skipped]


@contextmanager
def _prepared(checked: Config, base: Path, result: Rehearsal) -> Iterator["_Trials"]:
    """Prepare the scratch project with its reference run, and the services that fail on demand."""
    source = ImageServer(base / "source")
    try:
        scratch = scratch_project.make(checked, base, source.address)
        log.info("the unbroken run, which every other is compared with")
        result.unbroken_s = fault_trial.unbroken(scratch)
        log.info("the unbroken run took %.0f s", result.unbroken_s)
        with ExitStack() as stack:
            yield _Trials(scratch, source, result, stack)
    finally:
        source.lose()


class _Trials:
    """Runs the trials; those of a deployment, which mostly wait, run in a separate thread."""

    def __init__(self, scratch: Project, source: ImageServer, result: Rehearsal, stack: ExitStack) -> None:
        self._project, self._source, self._result, self._stack = scratch, source, result, stack
        self._durations, self._over, self._each = Durations(), threading.Event(), False
        self._numbers, self._tries = count(1), Counter[str]()

    def run(self, chosen: Sequence[str], deadline: float, *, each: bool) -> None:
        """Inject the chosen faults, equally often, until the deadline.

        With `each`, every fault at least once.
        """
        self._each = each
        local = [name for name in chosen if name in LOCAL]
        deployed = [name for name in chosen if name in DEPLOYED]
        with ThreadPoolExecutor(1) as beside:
            waiting = beside.submit(self._deployed, deployed, deadline) if deployed else None
            try:
                self._local(local, deadline)
                if waiting:
                    waiting.result()
            except BaseException:
                self._over.set()
                kill_marked(self._project.base)
                raise

    def _local(self, names: Sequence[str], deadline: float) -> None:
        s3 = None
        if "S3 errors" in names:
            folder = self._project.base / "s3"
            folder.mkdir()
            s3 = FaultyS3(folder, self._project.environment(folder, self._project.reference))
            self._stack.callback(s3.stop)
        services = Services(self._source, s3)
        self._rounds(names, deadline, lambda name, one: LOCAL[name].inject(one, services))

    def _deployed(self, names: Sequence[str], deadline: float) -> None:
        deployment = Deployment(self._project)
        self._stack.callback(deployment.stop)
        try:
            deployment.start()
        except PerennialError:
            self._over.set()  # not after hours of other faults
            raise
        self._rounds(names, deadline, lambda name, one: DEPLOYED[name](one, deployment))

    def _rounds(self, names: Sequence[str], deadline: float, inject: Inject) -> None:
        """Run a trial of each fault in turn, shuffled in each round."""
        rng = chance(f"{self._result.seed} {sorted(names)}")
        order, least = list[str](), len(names) if self._each else 0
        while names and (least > 0 or time.monotonic() < deadline) and not self._over.is_set():
            order = order or rng.sample(sorted(names), len(names))
            name, least = order.pop(), least - 1
            for _ in range(AGAIN):
                if self._over.is_set() or self._tried(name, inject):
                    break

    def _tried(self, name: str, inject: Inject) -> bool:
        """Run one trial; returns whether the fault was injected in time."""
        self._tries[name] += 1
        number, began = next(self._numbers), time.monotonic()
        folder = self._project.base / f"trial-{number}"
        rng = chance(f"{self._result.seed} {name} {self._tries[name]}")
        one = Trial(self._project, folder, rng, self._durations)
        try:
            checks = tuple(inject(name, one))
        except TooLate:
            one.end()
            return False
        except (PerennialError, OSError) as error:
            checks = (Check(SAME_RESULT, str(error)),)
        if self._over.is_set():  # its programs were killed
            return True
        self._add(Tried(name, number, tuple(one.notes), checks, time.monotonic() - began, folder), one)
        return True

    def _add(self, tried: Tried, one: Trial) -> None:
        if tried.broken:
            kill_marked(one.folder)
        else:
            one.end()
        self._result.tried.append(tried)
        verdict = "; ".join(f"NOT HELD: {each.guarantee}: {each.broken}" for each in tried.broken) or "held"
        notes = ", ".join(tried.notes[1:] or tried.notes)
        log.info("%s (%s): %s, %.0f s", tried.fault, notes, verdict, tried.seconds)
