"""Checkpoints: atomic, written in the background, verified when read; the newest valid ones are kept.

A checkpoint is a folder with the variables of a training at one step and a digest of every file.
"""

import hashlib
import json
import logging
import re
import shutil
import time
from concurrent import futures
from pathlib import Path
from typing import Any, Protocol, Self

import tensorflow as tf

from perennial.base import files
from perennial.base.errors import DataError, PerennialError, without_operations
from perennial.model.training.snapshot import Snapshot, Variables, take_snapshot

log = logging.getLogger(__name__)
FILE = "checkpoint.json"
VARIABLES = "variables"  # prefix of TensorFlow's files
# A folder with such a name is complete: it was renamed after its last byte was on the disk. The second number
# distinguishes checkpoints of the same step, so that none ever replaces another.
NAME = re.compile(r"step-\d{9,}(-\d+)?")
LEAST_KEPT = 2  # the newest and one in reserve


def write(folder: Path, snapshot: Snapshot) -> int:
    """Write a checkpoint atomically: it gets its name when all bytes are on the disk; returns its bytes.

    The files are those of `tf.train.Checkpoint` without the object graph, which takes ten times as long to
    write as the values of 3,000 variables; `tf.train.load_checkpoint` reads them.
    """
    with files.new_folder(folder) as new:
        with tf.device("CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=str(new / VARIABLES),
                tensor_names=list(snapshot.values),
                shape_and_slices=[""] * len(snapshot.values),
                tensors=list(snapshot.values.values()),
            )
        sizes = {path.name: path.stat().st_size for path in new.iterdir()}
        written = {name: {"bytes": size, "sha256": files.sha256(new / name)} for name, size in sizes.items()}
        files.write_bytes(new / FILE, _sealed(step=snapshot.step, files=written, facts=snapshot.facts))
    return sum(sizes.values())


def read(folder: Path, *groups: str) -> Snapshot:
    """Read a checkpoint and verify every byte; `groups` limit the values to these groups."""
    description = verified(folder)
    try:
        with files.plainly_named(folder) as plain:
            reader = tf.train.load_checkpoint(str(plain / VARIABLES))
            names = sorted(reader.get_variable_to_shape_map())
            chosen = [name for name in names if not groups or name.partition("/")[0] in groups]
            values = {name: reader.get_tensor(name) for name in chosen}
    except (OSError, RuntimeError, tf.errors.OpError) as error:
        raise DataError(f"{folder} cannot be read: {without_operations(error)}") from error
    return Snapshot(step=description["step"], facts=description["facts"], values=values)


def _sealed(**description: object) -> bytes:
    """The description with its own digest, because no other file covers the step and the facts."""
    own = hashlib.sha256(files.json_bytes(description)).hexdigest()
    return files.json_bytes({**description, "sha256": own})


def verified(folder: Path) -> dict[str, Any]:
    """Verify every byte of a checkpoint; returns its step, files and facts. Raises DataError as `read`."""
    description = described(folder)
    for name, expected in description["files"].items():
        file = folder / name
        try:
            size, digest = file.stat().st_size, files.sha256(file)
        except OSError as error:
            raise DataError(f"{file} cannot be read: {error.strerror}") from error
        if size != expected["bytes"]:
            raise DataError(f"{file} has {size} bytes, expected {expected['bytes']}")
        if digest != expected["sha256"]:
            raise DataError(f"{file} has sha256 {digest}, expected {expected['sha256']}")
    return description


def described(folder: Path) -> dict[str, Any]:
    """Read the step, files and facts of a checkpoint; DataError: they were changed or cannot be read."""
    file = folder / FILE
    try:
        content = file.read_bytes()
        found = json.loads(content)
        description = {name: found[name] for name in ("step", "files", "facts")}
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, LookupError, TypeError) as error:
        raise DataError(f"{file} is not a description of a checkpoint") from error
    if content != _sealed(**description):
        raise DataError(f"{file} was changed: its own sha256 does not match")
    return description


def committed(folder: Path) -> list[Path]:
    """List the committed checkpoints in a folder, oldest first; the folder need not exist."""
    try:
        return sorted((path for path in folder.iterdir() if NAME.fullmatch(path.name)), key=_order)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"the checkpoint folder {folder} cannot be read: {error.strerror}") from error


def steps(folder: Path) -> list[int]:
    """The steps of the committed checkpoints in a folder, ascending; does not check whether they are valid."""
    return [step_of(path) for path in committed(folder)]


def step_of(path: Path) -> int:
    """The step in the name of a checkpoint."""
    return _order(path)[0]


def _order(path: Path) -> tuple[int, int]:
    """The numbers in `step-000001200-2` or `step-000001200`, by which checkpoints are ordered."""
    step, _, number = path.name.removeprefix("step-").partition("-")
    return int(step), int(number or 1)


def free_name(folder: Path, step: int) -> Path:
    """A name that sorts after all checkpoints of the same step."""
    same = [_order(path)[1] for path in committed(folder) if step_of(path) == step]
    return folder / (f"step-{step:09d}" + (f"-{max(same) + 1}" if same else ""))


def newest(folder: Path, *groups: str) -> Snapshot | None:
    """Read the newest valid checkpoint, with the arrays of all or of some groups; None if there is none.

    Damaged checkpoints are skipped with a warning. Safe while a training saves and removes checkpoints.
    """
    return _newest(folder, *groups)[0]


def _newest(folder: Path, *groups: str) -> tuple[Snapshot | None, set[Path]]:
    """The newest valid checkpoint, and the damaged ones that are newer."""
    damaged: dict[Path, str] = {}
    for path in reversed(committed(folder)):
        try:
            found = read(path, *groups)
            if found.step != step_of(path):
                raise DataError(f"{path} holds step {found.step}")  # noqa: TRY301 - damaged as any other
        except DataError as error:
            if not path.exists():  # removed meanwhile, so a newer one exists
                return _newest(folder, *groups)
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


class CheckpointCopies(Protocol):
    """A destination that new checkpoints are copied to."""

    def submit(self, checkpoint: Path) -> None:
        """Copy a checkpoint in the background."""

    def holds(self, checkpoint: Path) -> bool:
        """Whether a checkpoint is being copied or waiting to be copied."""


class Checkpoints:
    """The checkpoints in a folder; leaving the context waits for the last write.

    One process at a time may save; any number may read. The next call raises the error of a failed write.
    """

    def __init__(self, folder: Path, *, max_to_keep: int, copies: CheckpointCopies | None = None) -> None:
        if max_to_keep < LEAST_KEPT:
            kept = "%d checkpoints are kept although max_to_keep is %d: a power cut may damage the newest"
            log.info(kept, LEAST_KEPT, max_to_keep)
        self.folder, self._max_to_keep, self._copies = folder, max(max_to_keep, LEAST_KEPT), copies
        self._damaged: set[Path] = set()  # found by `restore`
        self._writer = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoints")
        self._pending: futures.Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.wait()
        except PerennialError as failure:
            if error is None:
                raise
            log.error("%s", failure)  # noqa: TRY400 - the error of the block is raised
        finally:
            self._writer.shutdown()

    def save(self, step: int, variables: Variables, facts: dict[str, Any], *, wait: bool = False) -> None:
        """Copy the variables, then write them in the background or, with `wait`, before returning."""
        self.wait()
        valid = self._valid()
        if valid and step < step_of(valid[-1]):
            raise ValueError(f"step {step} is before {valid[-1]}, which was not restored")
        started = time.monotonic()
        taken = take_snapshot(step, variables, facts)
        pause_ms = 1000 * (time.monotonic() - started)
        self._pending = self._writer.submit(self._write, taken, pause_ms)
        if wait:
            self.wait()

    def check(self) -> None:
        """Raise the error of a failed write; does not wait for a write in progress."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Wait until the write in progress is committed; PerennialError: the disk is full or broken."""
        if self._pending is None:
            return
        futures.wait([self._pending])  # not `result`: a signal that ends the wait must not hide a failed write
        pending, self._pending = self._pending, None
        pending.result()

    def restore(self, variables: Variables) -> Snapshot | None:
        """Restore the newest valid checkpoint into the variables; None if there is no checkpoint."""
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
        return [path for path in committed(self.folder) if path not in self._damaged]

    def _write(self, taken: Snapshot, pause_ms: float) -> None:
        started, valid = time.monotonic(), self._valid()
        try:
            self._remove_leftovers()
            path = free_name(self.folder, taken.step)
            size = write(path, taken)
        except (OSError, tf.errors.OpError) as error:
            kept = (
                f"the one of step {step_of(valid[-1])} is kept, and the training will continue from there"
                if valid
                else "there is no earlier one, so the training will start from zero"
            )
            raise PerennialError(
                f"the checkpoint of step {taken.step} could not be written to {self.folder}: "
                f"{without_operations(error)}; {kept}; free space or repair the disk, then run this again"
            ) from error
        log.info(
            "checkpoint of step %d: %.1f MB in %.2f s in the background, after a pause of %.0f ms",
            taken.step, size / 1e6, time.monotonic() - started, pause_ms,
        )  # fmt: skip
        if self._copies:
            self._copies.submit(path)
        try:
            self._prune()
        except (OSError, DataError) as error:
            log.warning("old checkpoints in %s cannot be removed: %s", self.folder, error)

    def _prune(self) -> None:
        """Remove the oldest checkpoints beyond `max_to_keep`, and damaged ones older than a valid one."""
        for path in sorted({*self._valid()[: -self._max_to_keep], *self._damaged}):
            if self._copies and self._copies.holds(path):
                continue
            # Rename first: a half-removed checkpoint must not look like a damaged one.
            path.rename(path.with_name(f".{path.name}.removed"))
        self._damaged = set()
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        """Remove leftovers of killed writes and removals."""
        for path in self.folder.glob(".step-*"):
            shutil.rmtree(path, ignore_errors=True)
