"""Locks between processes: the kernel frees a lock however its holder ends."""

import fcntl
import json
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path

from filelock import FileLock, Timeout

from perennial.base.errors import PerennialError
from perennial.base.files import make_folder, naming
from perennial.base.layout import Project
from perennial.base.processes.process import is_alive

log = logging.getLogger(__name__)
WAIT_S = 30.0  # longer than process.GRACE_S, so that the orphan of a killed run ends first
POLL_S = 0.1
DVC = Path(".dvc", "tmp")  # in the project's top folder
DVC_WAIT_S = 3.0  # as long as DVC itself waits


@contextmanager
def held(file: Path, holder: str, *, busy: str, timeout_s: float | None = None) -> Iterator[None]:
    """Hold the lock of a file for the block; waits up to `timeout_s` (30 by default), forever if negative."""
    make_folder(file.parent)
    lock = FileLock(file)
    with naming(file):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            log.info("%s (%s); waiting for it", busy, _holder(file))
            try:
                lock.acquire(timeout=WAIT_S if timeout_s is None else timeout_s, poll_interval=POLL_S)
            except Timeout:
                raise _refusal(busy, file) from None
    try:
        with naming(file):
            file.write_text(f"{holder}, process {os.getpid()}\n", encoding="utf-8")
        yield
    finally:
        lock.release()


@contextmanager
def inherited(file: Path) -> Iterator[int]:
    """Hold the lock of a file for the block; a child with its descriptor keeps it if this one is killed."""
    make_folder(file.parent)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with naming(file):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def stage(work: Path, name: str, worker: int = 0, *, by_dvc: bool = True) -> Iterator[None]:
    """Hold the locks of a stage: that of its pipeline here, for its outputs, and that of its work folder."""
    # Workers that train together may share a checkout; all but the first then have own locks. A stage of
    # dvc.yaml that DVC did not start also holds DVC's (flock on .dvc/tmp/lock), so that `dvc repro` refuses.
    busy = "another stage works in this checkout"
    with ExitStack() as locks:
        if worker:
            locks.enter_context(held(work / f"worker-{worker}.lock", name, busy=busy))
        else:
            project = Project.find()
            dvc = project.shared(DVC)
            own = f"perennial-{project.name}.lock" if project.name else "perennial.lock"
            checkout = dvc / own if dvc.parent.is_dir() else Path(".perennial.lock")
            locks.enter_context(held(checkout, name, busy=busy))
            locks.enter_context(held(work / "stage.lock", name, busy=busy))
            if by_dvc and dvc.parent.is_dir() and "DVC_STAGE" not in os.environ:
                busy, file = "a DVC command works in this checkout", dvc / "lock"
                links = file.stat().st_nlink if file.exists() else 0
                if links > 1:  # core.hardlink_lock: the file itself is the lock
                    raise _refusal(busy, file)
                locks.enter_context(held(file, name, busy=busy, timeout_s=DVC_WAIT_S))
                if not links:
                    locks.callback(file.unlink, missing_ok=True)
                _require_no_dvc_stage(project)
        yield


def _refusal(busy: str, file: Path) -> PerennialError:
    return PerennialError(f"{busy} ({_holder(file)}, lock {file}); wait for it or end it, then run this again")


def _require_no_dvc_stage(project: Project) -> None:
    """Raise if `dvc repro` runs a stage of this pipeline: DVC's lock is then free, but its rwlock lists it."""
    file = project.shared(DVC) / "rwlock"
    try:
        listed = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return
    users = [user for path, user in listed.get("write", {}).items() if project.holds(path)]
    read = (readers for path, readers in listed.get("read", {}).items() if project.holds(path))
    users += chain.from_iterable(read)
    if running := {user["pid"] for user in users if is_alive(user["pid"])}:
        raise PerennialError(
            f"a DVC command works in this checkout (process {min(running)}, listed in {file}); "
            "wait for it or end it, then run this again"
        )


def _holder(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace").strip() or "just started"
