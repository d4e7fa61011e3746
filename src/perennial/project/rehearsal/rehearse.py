"""A rehearsal: the promises of a pipeline, tried with random faults in scratch folders for some minutes."""

import logging
import random
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perennial.base.config import Config
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.project.stage_table import STAGES
from perennial.project.rehearsal import scratch_project
from perennial.project.rehearsal.promises import PROMISES, TooLate, Trial
from perennial.project.rehearsal.scratch_project import ScratchProject

log = logging.getLogger(__name__)
AGAIN = 5  # tries for a fault that came too late


@dataclass(frozen=True)
class Tried:
    """One try of a promise."""

    promise: str
    did: tuple[str, ...]
    broken: tuple[str, ...]  # what was not as promised
    folder: Path  # kept if anything was


@dataclass
class Rehearsal:
    """All tries."""

    seed: int
    chosen: Sequence[str]
    seconds: float = 0.0
    tried: list[Tried] = field(default_factory=list)
    folder: Path | None = None  # kept if a promise was broken

    @property
    def broken(self) -> list[Tried]:
        """The tries in which a promise was broken."""
        return [each for each in self.tried if each.broken]

    def document(self) -> dict[str, Any]:
        """The JSON document of `perennial rehearse --json`."""
        return {
            "ok": not self.broken,
            "promises": [
                {"name": name, "means": PROMISES[name].means, "tries": tries, "held": held}
                for name, tries, held in self._counts()
            ],
            "failures": [
                {"promise": each.promise, "did": each.did, "broken": each.broken, "folder": str(each.folder)}
                for each in self.broken
            ],
            "seed": self.seed, "seconds": round(self.seconds, 1), "folder": self.folder and str(self.folder),
        }  # fmt: skip

    def lines(self) -> Iterator[str]:
        """The result as a table."""
        for name, tries, held in self._counts():
            yield f"{name:<16} held {held} of {tries}: {PROMISES[name].means}"
        for each in self.broken:
            yield f"\n{each.promise} ({', '.join(each.did)}), in {each.folder}"
            yield from (f"  {text}" for text in each.broken)

    def _counts(self) -> Iterator[tuple[str, int, int]]:
        for name in self.chosen:
            tried = [each for each in self.tried if each.promise == name]
            yield name, len(tried), sum(not each.broken for each in tried)


def rehearse(checked: Config, *, minutes: float, seed: int | None, only: Sequence[str] = ()) -> Rehearsal:
    """Rehearse the pipeline of the checkout in the working directory; tries start during `minutes` minutes."""
    if unknown := [name for name in only if name not in PROMISES]:
        raise ConfigError(f"{unknown[0]} is not a promise; choose from: {', '.join(PROMISES)}")
    started = time.monotonic()
    result = Rehearsal(secrets.randbelow(1 << 32) if seed is None else seed, only or tuple(PROMISES))
    base = Path(tempfile.mkdtemp(prefix="perennial-rehearsal-")).resolve()
    log.info("seed %d; promises: %s", result.seed, ", ".join(result.chosen))
    try:
        _try_all(result, _prepared(checked, base), minutes, least=len(only))
    finally:
        if result.broken:
            result.folder = base
        else:
            shutil.rmtree(base, ignore_errors=True)
    result.seconds = time.monotonic() - started
    return result


def run_once(checked: Config) -> dict[str, float]:
    """Run all stages once on a small sample, in a folder that is removed; returns the seconds of each stage."""
    base = Path(tempfile.mkdtemp(prefix="perennial-test-")).resolve()
    try:
        project = _prepared(checked, base)
        return {stage: project.seconds(stage) for stage in STAGES}
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _prepared(checked: Config, base: Path) -> ScratchProject:
    """Make the scratch project and its unbroken run."""
    project = scratch_project.make(checked, base)
    log.info("the unbroken run, which every other is compared with")
    started = time.monotonic()
    project.run_unbroken()
    log.info("the unbroken run took %.0f s", time.monotonic() - started)
    return project


def _try_all(result: Rehearsal, project: ScratchProject, minutes: float, *, least: int) -> None:
    """Try each promise in turn for some minutes, but at least `least` of them."""
    deadline = time.monotonic() + 60 * minutes
    rng = _chance(result.seed)
    order = list[str]()
    while len(result.tried) < least or time.monotonic() < deadline:
        order = order or rng.sample(result.chosen, len(result.chosen))
        name = order.pop()
        for tries in range(AGAIN):
            number = len(result.tried) + 1
            chance = _chance(f"{result.seed} {number} {rng.random()}")
            trial = Trial(project, project.base / f"trial-{number}", chance, tries)
            try:
                broken = tuple(PROMISES[name].broken(trial))
            except TooLate:
                shutil.rmtree(trial.folder)
                continue
            except (PerennialError, OSError) as error:
                broken = (str(error),)
            result.tried.append(Tried(name, tuple(trial.did), broken, trial.folder))
            verdict = f"NOT HELD: {'; '.join(broken)}" if broken else "held"
            log.info("%s (%s): %s", name, ", ".join(trial.did), verdict)
            if not broken:
                shutil.rmtree(trial.folder)
            break
        else:
            raise PerennialError(f"{name}: the fault came too late {AGAIN} times; try other promises")


def _chance(seed: object) -> random.Random:
    return random.Random(str(seed))  # noqa: S311 - not a secret
