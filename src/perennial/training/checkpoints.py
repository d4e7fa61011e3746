"""The checkpoints of a training: saved in the background, the newest valid ones kept, damaged ones reported."""

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
from perennial.training import checkpoint_io
from perennial.training.checkpoint_io import Snapshot, Variables

log = logging.getLogger(__name__)
# A folder with such a name is committed: it was renamed after its last byte was on the disk. The second number
# counts those of one step, so that no checkpoint ever replaces another.
NAME = re.compile(r"step-\d{9,}(-\d+)?")
LEAST_KEPT = 2  # the newest, and one in reserve


def committed(folder: Path) -> list[Path]:
    """The committed checkpoints in a folder, which need not exist, oldest first.

    Raises:
        DataError: the folder cannot be read.
    """
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"the checkpoint folder {folder} cannot be read: {error.strerror}") from error
    return sorted((folder / name for name in names if NAME.fullmatch(name)), key=_order)


def steps(folder: Path) -> list[int]:
    """The steps of the committed checkpoints in a folder, ascending; does not check whether they are valid."""
    return [step_of(path) for path in committed(folder)]


def newest(folder: Path, group: str | None = None) -> Snapshot | None:
    """The newest valid checkpoint, with the arrays of one group or of all; None if there is no checkpoint.

    Skips damaged ones with a warning. Safe while a training saves and removes checkpoints.

    Raises:
        DataError: there are checkpoints, but no valid one.
    """
    return _newest(folder, group)[0]


def _newest(folder: Path, group: str | None = None) -> tuple[Snapshot | None, set[Path]]:
    """The newest valid checkpoint, and the damaged ones that are newer."""
    damaged: dict[Path, str] = {}
    for path in reversed(committed(folder)):
        try:
            found = _read(path, group)
        except DataError as error:
            if not path.exists():  # removed meanwhile, so there are newer ones
                return _newest(folder, group)
            damaged[path] = str(error)
            continue
        for problem in damaged.values():
            log.warning("damaged checkpoint: %s; using an older one, of step %d", problem, found.step)
        return found, set(damaged)
    if damaged:
        raise DataError(
            f"no checkpoint in {folder} is valid, and a training never starts from zero unasked: "
            f"{'; '.join(damaged.values())}; restore the files from a copy, or start from zero with --clean"
        )
    return None, set()


def _read(path: Path, group: str | None) -> Snapshot:
    found = checkpoint_io.read(path, group)
    if found.step != step_of(path):
        raise DataError(f"{path} holds step {found.step}")
    return found


def step_of(path: Path) -> int:
    """The step in the name of a checkpoint."""
    return _order(path)[0]


def _order(path: Path) -> tuple[int, int]:
    """The numbers in a name, `step-000001200-2` or `step-000001200`, which order checkpoints."""
    step, _, number = path.name.removeprefix("step-").partition("-")
    return int(step), int(number or 1)


class Checkpoints:
    """The checkpoints in a folder; leaving its context waits for the last write.

    One process at a time may save, any number may read. The next call raises a failed write.
    """

    def __init__(self, folder: Path, *, max_to_keep: int) -> None:
        if max_to_keep < LEAST_KEPT:
            kept = "%d checkpoints are kept although max_to_keep is %d: a power cut may damage the newest"
            log.info(kept, LEAST_KEPT, max_to_keep)
        self.folder, self._max_to_keep = folder, max(max_to_keep, LEAST_KEPT)
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
            log.error("%s", failure)  # noqa: TRY400 - the error of the block is raised
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
        valid = self._valid()
        if valid and step < step_of(valid[-1]):
            raise ValueError(f"step {step} is before {valid[-1]}, which was not restored")
        started = time.monotonic()
        taken = checkpoint_io.take(step, variables, facts)
        pause_ms = 1000 * (time.monotonic() - started)
        self._pending = self._writer.submit(self._write, taken, pause_ms)
        if wait:
            self.wait()

    def check(self) -> None:
        """Raise the error of a failed write, without waiting for a write in progress."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Wait until the write in progress is committed.

        Raises:
            PerennialError: it failed: the disk is full, broken or read-only.
        """
        if self._pending is None:
            return
        futures.wait([self._pending])  # not `result`: a signal that ends the wait must not lose the failure
        pending, self._pending = self._pending, None
        pending.result()

    def restore(self, variables: Variables) -> Snapshot | None:
        """Restore the newest valid checkpoint into the variables; None if there is no checkpoint.

        Raises:
            DataError: none is valid, or it is of other variables; no variable is changed.
        """
        self.wait()
        found, self._damaged = _newest(self.folder)
        if found is not None:
            found.restore(variables)
        return found

    @property
    def newest_step(self) -> int | None:
        """The step of the newest committed checkpoint."""
        return max(steps(self.folder), default=None)

    def _valid(self) -> list[Path]:
        """The committed ones, oldest first, without those that `restore` found damaged."""
        return [path for path in committed(self.folder) if path not in self._damaged]

    def _write(self, taken: Snapshot, pause_ms: float) -> None:
        started, valid = time.monotonic(), self._valid()
        try:
            self._remove_leftovers()
            size = checkpoint_io.write(self._free_name(taken.step), taken)
        except (OSError, tf.errors.OpError) as error:
            raise PerennialError(self._failure(taken.step, valid, checkpoint_io.reason(error))) from error
        log.info(
            "checkpoint of step %d: %.1f MB in %.2f s in the background, after a pause of %.0f ms",
            taken.step, size / 1e6, time.monotonic() - started, pause_ms,
        )  # fmt: skip
        try:
            self._prune()
        except (OSError, DataError) as error:
            log.warning("old checkpoints in %s cannot be removed: %s", self.folder, error)

    def _free_name(self, step: int) -> Path:
        """A name that sorts after all checkpoints of the same step."""
        same = [_order(path)[1] for path in committed(self.folder) if step_of(path) == step]
        return self.folder / (f"step-{step:09d}" + (f"-{max(same) + 1}" if same else ""))

    def _failure(self, step: int, valid: list[Path], why: str) -> str:
        kept = (
            f"the one of step {step_of(valid[-1])} is kept, and the training will continue from there"
            if valid
            else "there is no earlier one, so the training will start from zero"
        )
        return (
            f"the checkpoint of step {step} could not be written to {self.folder}: {why}; {kept}; "
            "free space or repair the disk, then run this again"
        )

    def _prune(self) -> None:
        """Remove the oldest beyond `max_to_keep`, and damaged ones older than a valid one."""
        surplus = {*self._valid()[: -self._max_to_keep], *self._damaged}
        for path in sorted(surplus):
            # Under its own name, a half-removed checkpoint would look like a damaged one.
            path.rename(path.with_name(f".{path.name}.removed"))
        self._damaged = set()
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        """Remove leftovers of killed writes and removals."""
        for path in self.folder.glob(".step-*"):
            shutil.rmtree(path, ignore_errors=True)
