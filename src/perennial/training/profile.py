"""A look at what the machine does during some updates, with TensorFlow's profiler."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tensorflow as tf

from perennial.config.training import LoggingConfig


class Profile:
    """Profiles the updates that the config names into TensorBoard's folder, one at a time."""

    def __init__(self, config: LoggingConfig, logs: Path) -> None:
        first = config.profile_from_step
        self._window = range(0) if first is None else range(first - 1, first - 1 + config.profile_steps)
        self._logs, self._running = logs, False

    def resume(self, step: int) -> None:
        """Forgets a profile of updates that come again."""
        if step < self._window.stop:
            shutil.rmtree(self._logs / "plugins", ignore_errors=True)

    def stops(self, step: int) -> list[int]:
        """The steps ahead that a call of several updates must not go beyond."""
        if step in self._window:
            return [step + 1]
        return [self._window.start] if step < self._window.start else []

    @contextmanager
    def watching(self, step: int) -> Iterator[None]:
        """Around the update that follows `step` others, or several outside of the window."""
        if step not in self._window:
            yield
            return
        if not self._running:
            tf.profiler.experimental.start(str(self._logs))
            self._running = True
        with tf.profiler.experimental.Trace("update", step_num=step + 1, _r=1):  # `_r` makes it a step
            yield
        if step + 1 == self._window.stop:
            self.stop()

    def stop(self) -> None:
        """Writes what was seen, if the window is open."""
        if self._running:
            self._running = False
            tf.profiler.experimental.stop()
