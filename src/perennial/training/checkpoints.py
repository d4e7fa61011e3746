"""The checkpoints of a training: saved beside it, the last good ones kept, never ignored in silence."""

import logging
import re
import shutil
import time
from concurrent import futures
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import tensorflow as tf

from perennial.errors import DataError, PerennialError
from perennial.training import snapshot
from perennial.training.snapshot import Snapshot, Variables

log = logging.getLogger(__name__)
# What bears such a name is committed: it got it after its last byte was on the disk. The second number counts
# those of one step, so that no checkpoint ever takes the place of another.
NAME = re.compile(r"step-\d{9,}(-\d+)?")
LEAST_KEPT = 2  # the newest, and the one before it as the reserve


def committed(folder: Path) -> list[Path]:
    """The folders of the checkpoints in a folder, which need not exist; the oldest first.

    Raises:
        DataError: the folder cannot be read.
    """
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"{folder}, the folder of the checkpoints, cannot be read: {error.strerror}") from error
    return sorted((folder / name for name in names if NAME.fullmatch(name)), key=_order)


def steps(folder: Path) -> list[int]:
    """The steps of the checkpoints in a folder, in rising order; whether they are sound is not looked at."""
    return [_step(path) for path in committed(folder)]


def newest(folder: Path, group: str | None = None) -> Snapshot | None:
    """The newest sound checkpoint, with the arrays of one group or of all; None where there never was one.

    Those that are damaged are passed over with a warning. Safe beside a training that saves and removes.

    Raises:
        DataError: there are checkpoints, but no sound one.
    """
    return _newest(folder, group)[0]


def _newest(folder: Path, group: str | None = None) -> tuple[Snapshot | None, set[Path]]:
    """The newest sound checkpoint, and the damaged ones that are newer."""
    damaged: dict[Path, str] = {}
    for path in reversed(committed(folder)):
        try:
            found = _read(path, group)
        except DataError as error:
            if not path.exists():  # removed while it was read, so there are newer ones by now
                return _newest(folder, group)
            damaged[path] = str(error)
            continue
        for problem in damaged.values():
            log.warning("damaged checkpoint: %s; going on from an older one, of step %d", problem, found.step)
        return found, set(damaged)
    if damaged:
        raise DataError(
            f"no checkpoint in {folder} is sound, and a training never starts from zero unasked: "
            f"{'; '.join(damaged.values())}; bring the files back from a copy, or start from zero with --clean"
        )
    return None, set()


def _read(path: Path, group: str | None) -> Snapshot:
    found = snapshot.read(path, group)
    if found.step != _step(path):
        raise DataError(f"{path} holds step {found.step}")
    return found


def _step(path: Path) -> int:
    return _order(path)[0]


def _order(path: Path) -> tuple[int, int]:
    """The numbers of a name, `step-000001200-2` or `step-000001200`, which checkpoints are ordered by."""
    step, _, number = path.name.removeprefix("step-").partition("-")
    return int(step), int(number or 1)


class Checkpoints:
    """The checkpoints in a folder; as a context it ends when the last one is on the disk.

    One process at a time may save, any number may read. A write that failed is told by the next call.
    """

    def __init__(self, folder: Path, *, max_to_keep: int) -> None:
        if max_to_keep < LEAST_KEPT:
            told = "%d checkpoints are kept where max_to_keep is %d: a power cut may damage the newest"
            log.info(told, LEAST_KEPT, max_to_keep)
        self._folder, self._max_to_keep = folder, max(max_to_keep, LEAST_KEPT)
        self._damaged: set[Path] = set()
        self._writer = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoints")
        self._pending: futures.Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.wait()
        except PerennialError as failure:
            if error is None:
                raise
            log.error("%s", failure)  # noqa: TRY400 - what ended the block is what is raised
        finally:
            self._writer.shutdown()

    def save(self, step: int, variables: Variables, facts: dict[str, Any], *, wait: bool = False) -> None:
        """Takes the variables as they are, then writes them in the background, or here and now.

        A write that still goes on is waited for first.

        Raises:
            PerennialError: this write, where it is waited for, or the one before it failed.
            ValueError: the facts are no JSON, or the step lies before a checkpoint that was not restored.
        """
        self.wait()
        sound = self._sound()
        if sound and step < _step(sound[-1]):
            raise ValueError(f"step {step} lies before {sound[-1]}, which was not restored")
        started = time.monotonic()
        taken = snapshot.take(step, variables, facts)
        pause_ms = 1000 * (time.monotonic() - started)
        self._pending = self._writer.submit(self._write, taken, pause_ms)
        if wait:
            self.wait()

    def check(self) -> None:
        """Raises what `wait` raises if a write has failed, without waiting for one that goes on."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Returns when the write that goes on is committed.

        Raises:
            PerennialError: it failed: the disk is full, broken or read-only.
        """
        if self._pending is None:
            return
        futures.wait([self._pending])  # not `result`: a signal that ends the wait must not lose the failure
        pending, self._pending = self._pending, None
        pending.result()

    def restore(self, variables: Variables) -> Snapshot | None:
        """Puts the newest sound checkpoint into the variables; None where none was ever committed here.

        Raises:
            DataError: no committed one is sound, or it is of other variables; none is changed.
        """
        self.wait()
        found, self._damaged = _newest(self._folder)
        if found is not None:
            found.restore(variables)
        return found

    def _sound(self) -> list[Path]:
        """The committed ones, the oldest first, without those that `restore` found damaged."""
        return [path for path in committed(self._folder) if path not in self._damaged]

    def _write(self, taken: Snapshot, pause_ms: float) -> None:
        started, sound = time.monotonic(), self._sound()
        try:
            self._remove_leftovers()
            size = snapshot.write(self._free_name(taken.step), taken)
        except (OSError, tf.errors.OpError) as error:
            raise PerennialError(self._failure(taken.step, sound, snapshot.reason(error))) from error
        log.info(
            "checkpoint of step %d: %.1f MB in %.2f s beside the training, which paused for %.0f ms",
            taken.step, size / 1e6, time.monotonic() - started, pause_ms,
        )  # fmt: skip
        try:
            self._prune()
        except (OSError, DataError) as error:
            log.warning("old checkpoints in %s cannot be removed: %s", self._folder, error)

    def _free_name(self, step: int) -> Path:
        """A name that comes after those of all checkpoints of the same step."""
        same = [_order(path)[1] for path in committed(self._folder) if _step(path) == step]
        return self._folder / (f"step-{step:09d}" + (f"-{max(same) + 1}" if same else ""))

    def _failure(self, step: int, sound: list[Path], why: str) -> str:
        kept = (
            f"the one of step {_step(sound[-1])} is kept, and the training will continue from there"
            if sound
            else "there is no earlier one, so the training will start from zero"
        )
        return (
            f"the checkpoint of step {step} could not be written to {self._folder}: {why}; {kept}; "
            "make room or mend the disk, then run this again"
        )

    def _prune(self) -> None:
        """Removes the oldest beyond `max_to_keep`, and those that a newer sound one now makes up for."""
        surplus = {*self._sound()[: -self._max_to_keep], *self._damaged}
        for path in sorted(surplus):
            # Under its own name a half-removed checkpoint would look like a damaged one.
            path.rename(path.with_name(f".{path.name}.removed"))
        self._damaged = set()
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        """Removes what writes and removals that were killed have left."""
        for path in self._folder.glob(".step-*"):
            shutil.rmtree(path, ignore_errors=True)
