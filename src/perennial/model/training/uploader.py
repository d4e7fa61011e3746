"""Background upload of checkpoints to the remote. A training neither waits for it nor fails because of it."""

import importlib
import logging
import shutil
import threading
import time
from pathlib import Path
from typing import Self

from perennial.base.config.training import CheckpointsConfig
from perennial.base.errors import PerennialError
from perennial.base.retries import COPY_PAUSE_S
from perennial.model.training.distributed import Peers
from perennial.model.training.remote import FetchedCheckpoint, RemoteRun

log = logging.getLogger(__name__)
END_S = 60.0  # wait for the last copy at the end of a training
SHORT_S = 10.0  # after a signal (limits.SAVE_GRACE_S), or if the remote could not be reached


def prepared(config: CheckpointsConfig, folder: Path, peers: Peers, *, clean: bool) -> "Uploader | None":
    """The uploader of the chief, after it fetched a newer checkpoint, or with `clean` removed this training."""
    if clean and peers.is_chief and folder.exists():
        shutil.rmtree(folder)
    if config.remote is None:
        return None
    uploader = None
    if peers.is_chief:
        options = {}
        if config.dvc_remote:  # DVC is no code of a training
            dvc_program = importlib.import_module("perennial.base.dvc.dvc_program")
            options = dvc_program.remote_options(config.dvc_remote)
        uploader = Uploader(RemoteRun(config.remote, folder, options), interval_s=config.remote_interval_s)
        uploader.prepare(clean=clean)
    peers.barrier()  # all resume from what the chief fetched
    return uploader


class Uploader:
    """Uploads the newest checkpoint in a thread; a newer one replaces one that is waiting.

    Leaving the context waits for the last copy: at most a minute, or ten seconds after an error or a signal.
    """

    def __init__(self, run: RemoteRun, *, interval_s: float) -> None:
        """`interval_s`: seconds between the starts of two copies."""
        self.url, self._run, self._interval_s = run.url, run, interval_s
        self.fetched: FetchedCheckpoint | None = None
        self._changed = threading.Condition()
        self._waiting: Path | None = None
        self._sending: Path | None = None
        self._due = 0.0
        self._closing = self._failing = self._finished = False
        # A daemon thread: a hanging request must not keep the process alive.
        self._thread = threading.Thread(target=self._work, name="copies", daemon=True)

    def prepare(self, *, clean: bool) -> None:
        """Fetch the newest checkpoint if it is newer than those here; with `clean`, remove all copies."""
        try:
            if clean:
                self._run.clear()
            else:
                self.fetched = self._run.fetch()
        except (OSError, PerennialError) as error:
            self._failing = True
            log.warning("checkpoints.remote: %s; training continues with what is on this machine", error)

    def submit(self, checkpoint: Path) -> None:
        """Queue a checkpoint; it replaces one that is waiting."""
        with self._changed:
            self._waiting = checkpoint
            self._changed.notify()

    def holds(self, checkpoint: Path) -> bool:
        """Whether a checkpoint is being copied or waiting to be copied."""
        with self._changed:
            return checkpoint in {self._waiting, self._sending}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._changed:
            self._closing, self._finished = True, error is None
            self._changed.notify()
        wait_s = END_S if error is None and not self._failing else SHORT_S
        self._thread.join(wait_s)
        if self._thread.is_alive():
            self._run.stop()
            log.warning(
                "the newest checkpoint was not copied to %s within %.0f s; it is on this machine, and the one "
                "that was copied before it stays", self.url, wait_s,
            )  # fmt: skip

    def _work(self) -> None:
        while (checkpoint := self._next()) is not None:
            self._copy(checkpoint)
        if self._finished:
            try:
                self._run.finish()
            except Exception as error:  # noqa: BLE001 - see `_fail`
                self._fail(error)

    def _next(self) -> Path | None:
        """Wait until a checkpoint is due and return it; None at the end."""
        with self._changed:
            self._sending = None
            while not self._closing:
                wait_s = self._due - time.monotonic() if self._waiting else None
                if wait_s is not None and wait_s <= 0:
                    break
                self._changed.wait(wait_s)
            self._sending, self._waiting = self._waiting, None
            return self._sending

    def _copy(self, checkpoint: Path) -> None:
        started = time.monotonic()
        self._due = started + self._interval_s
        try:
            size = self._run.put(checkpoint)
        except Exception as error:  # noqa: BLE001 - see `_fail`
            self._fail(error)
            with self._changed:
                self._due = max(self._due, started + COPY_PAUSE_S)
                if not self._closing:
                    self._waiting = self._waiting or checkpoint
            return
        if self._failing:
            log.info("checkpoints are copied to %s again", self.url)
        self._failing = False
        if size:
            seconds = time.monotonic() - started
            log.info("copied %s, %.1f MB in %.2f s, to %s", checkpoint.name, size / 1e6, seconds, self.url)

    def _fail(self, error: Exception) -> None:
        """Report the first failure; the training continues in any case."""
        if not self._failing:
            log.warning(
                "checkpoints.remote: %s; training continues, and its checkpoints stay on this machine until "
                "%s can be reached", error, self.url,
            )  # fmt: skip
        self._failing = True
