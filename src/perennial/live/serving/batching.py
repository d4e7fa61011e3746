"""Batch concurrent requests in a bounded queue for the threads that run the model."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perennial.base.errors import QualityError
from perennial.data.images import BadImage
from perennial.live.serving.requests import RequestRefused, ServingLimits
from perennial.live.serving.served_version import LoadedVersion
from perennial.model.inference.image_inputs import ImageSource

log = logging.getLogger(__name__)
Output = NDArray[np.float32] | BadImage
WORKERS = 2  # threads: one decodes a batch while the other runs the model


@dataclass(eq=False)
class _Work:
    """The images of one request, all for one version, and their outputs so far."""

    version: LoadedVersion
    images: Sequence[ImageSource]
    outputs: list[Output | None]
    remaining: int
    future: "Future[list[Output]]"


class _Entry(NamedTuple):
    work: _Work
    position: int  # of the image in its request


class Batcher:
    """Run images in batches through the model version that each belongs to.

    While all threads are busy, images wait and the next batch gets larger. Neither a batch nor a request mixes
    versions. With `limits.wait_s`, a batch that is not full waits that long for more images.
    """

    def __init__(self, limits: ServingLimits, observe: Callable[[int], object]) -> None:
        self._limits, self._observe = limits, observe
        self._waiting: deque[_Entry] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [threading.Thread(target=self._run, name="batch", daemon=True) for _ in range(WORKERS)]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """The number of images in the queue."""
        return len(self._waiting)

    def submit(self, version: LoadedVersion, images: Sequence[ImageSource]) -> "Future[list[Output]]":
        """Compute the outputs for the images of a request, in order, with one version."""
        work = _Work(version, images, [None] * len(images), len(images), Future())
        with self._changed:
            if self._closed:
                raise RequestRefused(503, "the server is shutting down; try another one")
            if len(self._waiting) + len(images) > self._limits.queue:
                raise RequestRefused(503, f"{len(self._waiting)} images are already waiting; try again")
            self._waiting.extend(_Entry(work, index) for index in range(len(images)))
            self._changed.notify(len(images))
        return work.future

    def close(self, timeout_s: float = 1) -> bool:
        """Stop the threads and drop waiting images; returns False if a thread still runs after the timeout."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout_s)
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while batch := self._next():
            self._observe(len(batch))
            version = batch[0].work.version
            try:
                outputs = version.classifier.outputs([entry.work.images[entry.position] for entry in batch])
            except Exception as error:  # the thread must continue
                if not isinstance(error, QualityError):
                    log.exception("version %s failed on a batch of %d images", version.number, len(batch))
                self._fail(batch, error)
                continue
            self._deliver(batch, outputs)

    def _next(self) -> list[_Entry]:
        """Take the next images of one version from the queue; empty when the batcher is closed."""
        batch: list[_Entry] = []
        with self._changed:
            while not batch and (self._waiting or not self._closed):
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._limits.wait_s and not self._closed:
                    self._changed.wait_for(
                        lambda: self._closed or len(self._waiting) >= self._limits.batch, self._limits.wait_s
                    )
                # Another thread may have taken all of them in the meantime.
                while self._waiting and len(batch) < self._limits.batch:
                    if batch and self._waiting[0].work.version is not batch[0].work.version:
                        break
                    batch.append(self._waiting.popleft())
        return batch

    def _deliver(self, batch: Sequence[_Entry], outputs: Sequence[Output]) -> None:
        done = []
        with self._changed:
            for (work, position), output in zip(batch, outputs, strict=True):
                work.outputs[position] = output
                work.remaining -= 1
                if not work.remaining:
                    done.append(work)
        for work in done:
            if work.future.set_running_or_notify_cancel():
                work.future.set_result([each for each in work.outputs if each is not None])

    def _fail(self, batch: Sequence[_Entry], error: Exception) -> None:
        """Fail the requests of a batch, and drop their other waiting images."""
        failed = {entry.work for entry in batch}
        with self._changed:
            self._waiting = deque(entry for entry in self._waiting if entry.work not in failed)
            for work in failed:  # another thread may have processed some of its images
                if not work.future.done() and work.future.set_running_or_notify_cancel():
                    work.future.set_exception(error)
