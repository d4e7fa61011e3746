"""Answered images that wait for a thread, in bounded memory, without keeping the next answer waiting."""

import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perennial.data.images import BadImage
from perennial.live.capture.place import TOP, Labels, Reason, Top
from perennial.model.inference.image_inputs import ImageSource

if TYPE_CHECKING:  # a process that is forked must not have imported TensorFlow
    from perennial.model.inference.classifier import Classifier

Probabilities = NDArray[np.float32]  # [classes]
random = secrets.SystemRandom()


class Served(NamedTuple):
    """The images of a request, and what the served version said of each."""

    version: str
    classifier: "Classifier"
    images: Sequence[ImageSource]
    outputs: Sequence[Probabilities | BadImage]


class Answered(NamedTuple):
    """An answered image, and why it was chosen."""

    seconds: float  # since 1970
    version: str
    classifier: "Classifier"
    image: ImageSource
    probabilities: Probabilities
    reason: Reason
    probability: float  # with which it was chosen
    candidate: str | None = None  # version of the candidate in the shadow
    candidate_top: Top = ()
    candidate_labels: Labels | None = None

    @property
    def top(self) -> Top:
        """What the served version said."""
        return top(self.classifier.classes, self.probabilities)

    @property
    def labels(self) -> Labels | None:
        """The labels that the served version gave; None if it gives one."""
        return labels(self.classifier, self.probabilities)

    @property
    def nearest(self) -> tuple[str, float] | None:
        """Where it was least sure of a label; None if it gives one."""
        return None if self.labels is None else self.classifier.nearest(self.probabilities)


class Waiting:
    """A queue of images for one thread. An image for which there is no room is refused."""

    def __init__(self, images: int, size: int) -> None:
        self._most, self._most_bytes = images, size
        self._queue: queue.SimpleQueue[Answered | None] = queue.SimpleQueue()
        self._images = self._bytes = 0
        self._lock = threading.Lock()

    def put(self, answered: Answered) -> bool:
        """Add an image; returns False if there is no room."""
        with self._lock:
            room = self._images < self._most and self._bytes + answered.image.size <= self._most_bytes
            if room:
                self._images += 1
                self._bytes += answered.image.size
        if room:
            self._queue.put(answered)
        return room

    def end(self) -> None:
        """Let the thread get None after the images that wait now."""
        self._queue.put(None)

    def get(self, timeout_s: float | None = None) -> Answered | None:
        """Wait for an image; None at the end."""
        answered = self._queue.get(timeout=timeout_s)
        if answered is not None:
            with self._lock:
                self._images -= 1
                self._bytes -= answered.image.size
        return answered

    def empty(self) -> bool:
        """Whether no image waits."""
        return self._queue.empty()


def draw(share: float, reason: Reason, request: Served, put: Callable[[Answered], object]) -> None:
    """Pass a share of the images of a request on; a refused image is never drawn."""
    for image, output in zip(request.images, request.outputs, strict=True):
        if random.random() < share and not isinstance(output, BadImage):
            put(Answered(time.time(), request.version, request.classifier, image, output, reason, share))


def labels(classifier: "Classifier", probabilities: Probabilities) -> Labels | None:
    """The labels of an image, most probable first; None of a model that gives one."""
    return None if classifier.thresholds is None else classifier.labels(probabilities)


def top(classes: Sequence[str], probabilities: Probabilities) -> Top:
    """The most probable classes, most probable first, with probabilities of six digits."""
    first = np.argsort(-probabilities, kind="stable")[:TOP].tolist()
    return tuple((classes[index], round(float(probabilities[index]), 6)) for index in first)
