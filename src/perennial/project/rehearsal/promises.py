"""The promises that a rehearsal tries: each injects a fault at random, and says what was broken.

A promise works on a copy of the project as it was before a stage, and yields a text for each thing that is
not as promised.
"""

import io
import random
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from perennial.base.errors import DataError, PerennialError
from perennial.base.processes.programs import Finished, TimedOut
from perennial.data.tfrecord import framing
from perennial.project.rehearsal.scratch_project import LAST, LIMIT_S, ScratchProject

START_S = 2.0  # of a command before it does anything
SOONER = 0.7  # after a fault that came too late
REFUSED = {PerennialError.exit_code, DataError.exit_code}
TRACEBACK = "Traceback (most recent call last)"


class TooLate(Exception):
    """A fault came too late: its target had ended. It does not count as a try."""


@dataclass
class Trial:
    """The folder of one try; its random choices come from `rng`."""

    project: ScratchProject
    folder: Path
    rng: random.Random
    tries: int = 0  # before this one, in which the fault came too late
    did: list[str] = field(default_factory=list)  # for the report

    @property
    def checkout(self) -> Path:
        """The copy of the project."""
        return self.folder / "project"

    def run(self, *command: str, limit_s: float = LIMIT_S) -> Finished:
        """Run a module of the checkout as a program."""
        return self.project.run(self.checkout, *command, limit_s=limit_s)

    def kill(self, *command: str, within_s: float) -> None:
        """Start a module of the checkout, and kill it with all its processes at a random moment."""
        moment = self.rng.uniform(0.2, 1) * (START_S + within_s) * SOONER**self.tries
        try:
            self.run(*command, limit_s=moment)
        except TimedOut:
            self.did.append(f"killed `{' '.join(command)}` after {moment:.1f} s")
        else:
            raise TooLate

    def completes(self, stage: str) -> Iterator[str]:
        """Run the pipeline up to a stage again, and compare the result with the unbroken run's."""
        yield from self.equal(self.run("dvc", "repro", stage), stage)

    def equal(self, ended: Finished, last: str = LAST) -> Iterator[str]:
        """Whether a finished run made the same as the unbroken run, up to a stage."""
        if ended.code:
            yield f"the next run failed with exit code {ended.code}: {ended.last_lines(3)}"
        else:
            yield from self.project.differences(self.checkout, last)


def reported(ended: Finished, codes: Collection[int], word: str) -> Iterator[str]:
    """Whether a program ended with one of these codes and a message with this word."""
    if ended.code not in codes or word not in ended.output or TRACEBACK in ended.output:
        yield f"exit code {ended.code}, without `{word}`: {ended.last_lines(3)}"


def _killed_training(trial: Trial) -> Iterator[str]:
    trial.project.copy(trial.folder, "train")
    trial.kill("perennial", "train", within_s=trial.project.seconds("train"))
    yield from trial.completes("train")


def _damaged_data(trial: Trial) -> Iterator[str]:
    stage, split = trial.rng.choice((("validate", ""), ("train", "train"), ("evaluate", "test")))
    trial.project.copy(trial.folder, stage)
    records = trial.checkout / trial.project.config().paths.records
    file = trial.rng.choice(sorted(each for each in records.glob("*.tfrecord") if split in each.name))
    content = bytearray(file.read_bytes())
    how = (_damage_records if trial.rng.random() < 0.5 else _damage)(content, trial.rng)
    file.write_bytes(content)
    trial.did.append(f"{how} {file.name} before {stage}")
    yield from reported(trial.run("perennial", stage), REFUSED, file.name)
    yield from trial.completes(stage)


def _damaged_remote(trial: Trial) -> Iterator[str]:
    trial.project.copy(trial.folder)
    trial.project.commit(trial.checkout)  # an audit reads git
    pushed = trial.run("dvc", "push", "--quiet")
    if pushed.code:
        yield f"the push failed: {pushed.last_lines(3)}"
        return
    file = trial.rng.choice(sorted(each for each in (trial.folder / "remote").rglob("*") if each.is_file()))
    digest = f"{file.parent.name}{file.name}"
    file.chmod(0o644)  # DVC's objects are read-only
    content = bytearray(file.read_bytes())
    if trial.rng.random() < 0.5:
        file.unlink()
        trial.did.append(f"removed {digest} from the remote")
    else:
        trial.did.append(f"{_damage(content, trial.rng)} the remote's {digest}")
        file.write_bytes(content)
    audit = trial.run("perennial", "audit", "--deep", "--json")
    yield from reported(audit, {0, *REFUSED}, digest.removesuffix(".dir"))
    trial.run("perennial", "audit", "--deep", "--repair")
    shutil.rmtree(trial.checkout / ".dvc" / "cache")
    trial.project.remove_outs(trial.checkout)
    trial.project.git(trial.checkout, "checkout", "--quiet", "--", ".")  # what git has instead of DVC
    yield from trial.equal(trial.run("dvc", "pull"))


@dataclass(frozen=True)
class Promise:
    """What a pipeline promises, and the function that tries it."""

    means: str
    broken: Callable[[Trial], Iterator[str]]


PROMISES = {
    "killed training": Promise(
        "training that is killed at any moment resumes, and ends with the same weights", _killed_training),
    "damaged data": Promise("damaged records are refused by name", _damaged_data),
    "damaged remote": Promise(
        "a lost or damaged object of the DVC remote is named, and repaired", _damaged_remote),
}  # fmt: skip


def _damage(content: bytearray, rng: random.Random) -> str:
    """Damage bytes as disks and broken copies do; returns how."""
    kind = rng.choice(("a flipped bit in", "the end cut off", "zeros in"))
    at = rng.randrange(len(content))
    if kind == "a flipped bit in":
        content[at] ^= 1 << rng.randrange(8)
    elif kind == "the end cut off":
        del content[at:]
    else:
        content[at : at + 64] = bytes(0 if byte else 0xFF for byte in content[at : at + 64])
    return kind


def _damage_records(content: bytearray, rng: random.Random) -> str:
    """Remove or repeat a whole record, which a shard's checksums do not reveal; returns which of the two."""
    spans, _ = framing.scan(io.BytesIO(content), len(content))
    start, size = (int(value) for value in spans[rng.randrange(len(spans))])
    record = slice(start, start + size + framing.OVERHEAD)
    if rng.random() < 0.5:
        del content[record]
        return "a record removed from"
    content[record] = 2 * content[record]
    return "a record repeated in"
