"""Keep a share of the images that a server has answered, without ever delaying an answer.

The event loop only draws a number and puts chosen images into a bounded queue; a thread writes them. While the
place is full, slow or away, images are not kept but counted.
"""

import hashlib
import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perennial.base.errors import ConfigError, PerennialError, redacted
from perennial.base.storage import Store
from perennial.data.images import BadImage, Refused, accept
from perennial.live.capture import place
from perennial.live.capture.place import TOP, KeptImage, Labels, Reason, Top
from perennial.model.export import reference
from perennial.model.inference.image_inputs import ImageSource

if TYPE_CHECKING:  # a process that is forked must not have imported TensorFlow
    from perennial.model.inference.classifier import Classifier

log = logging.getLogger(__name__)
QUEUED = 256  # images
QUEUED_BYTES = 64 << 20
STATISTICS_BYTES = 1200  # of a record with statistics, about
FLUSH_S, FLUSH_RECORDS = 10.0, 500  # records are written after so long, or so many
PAUSE_S, PAUSE_MAX_S = 1.0, 60.0  # after the place failed; doubled at every failure
CLOSE_S = 2.0  # for the last records of a server that stops
Probabilities = NDArray[np.float32]  # [classes]
What = Literal["image", "statistics"]
Result = Literal["kept", "limit", "full", "busy", "away", "unusable"]
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


@dataclass(frozen=True, kw_only=True)
class CaptureLimits:
    """What is kept, and how much at most."""

    share: float  # of the images, 0..1
    per_day: int  # images of this place and day
    bytes: int  # of the place
    days: int  # after which a day is removed
    what: What = "image"  # of an image: itself, or statistics without pixels


class Keeper:
    """Keeps images of a model's traffic in a place."""

    def __init__(
        self, store: Store, limits: CaptureLimits, model: str, count: Callable[[Result], object]
    ) -> None:
        self._store, self._model, self._limits, self._count = store, model, limits, count
        self._waiting = Waiting(QUEUED, QUEUED_BYTES)
        self._away_until, self._pause_s = 0.0, PAUSE_S
        self._records: list[KeptImage] = []
        self._flush_at = time.monotonic() + FLUSH_S
        self._day, self._bytes, self._images = "", 0, 0
        self._closing, self._warned = False, ""
        self._thread = threading.Thread(target=self._run, name="keep", daemon=True)

    def start(self, failed: Callable[[Exception], object]) -> None:
        """Start the thread; `failed` gets a ConfigError, such as a bucket that does not exist."""
        self._failed = failed
        self._thread.start()

    def offer(self, request: Served) -> None:
        """Draw images of an answered request; never waits."""
        draw(self._limits.share, "random", request, self.put)

    def put(self, answered: Answered) -> None:
        """Keep a chosen image, or count why not; never waits."""
        if time.monotonic() < self._away_until:
            self._count("away")
        elif not self._waiting.put(answered):
            self._count("busy")

    def close(self) -> None:
        """Write the records of kept images, and stop; what still waits is not kept."""
        self._closing = True
        self._waiting.end()
        self._thread.join(CLOSE_S)
        self._store.stop()

    def _run(self) -> None:
        try:
            self._begin(place.today())
        except ConfigError as error:
            self._failed(error)
            return
        except (PerennialError, OSError) as error:
            self._pause(error)
        while True:
            try:
                chosen = self._waiting.get(max(self._flush_at - time.monotonic(), 0))
            except queue.Empty:
                self._attempt_flush()
                continue
            if chosen is None:
                self._attempt_flush()
                return
            result = self._attempt(lambda: self._keep(chosen))  # noqa: B023 - called at once
            self._count(result or "away")

    def _attempt_flush(self) -> None:
        self._flush_at = time.monotonic() + FLUSH_S
        if self._records:  # an empty write would say that the place works
            self._attempt(self._flush)

    def _attempt(self, work: Callable[[], "Result"]) -> "Result | None":
        """Use the place; None if it fails, and then nothing is kept for a while."""
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - the thread must go on
            self._pause(error)
            return None
        if self._pause_s > PAUSE_S:
            log.info("images are kept in %s again", redacted(self._store.url))
        self._pause_s = PAUSE_S
        return result

    def _pause(self, error: Exception) -> None:
        if self._pause_s == PAUSE_S and not self._closing:
            log.warning("images are not kept while %s fails: %s", redacted(self._store.url), error)
        self._away_until = self._flush_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)

    def _keep(self, chosen: Answered) -> Result:
        day = datetime.fromtimestamp(chosen.seconds, UTC).date().isoformat()
        if day > self._day:
            self._begin(day)
        if self._images >= self._limits.per_day:
            return "limit"
        if self._bytes >= self._limits.bytes:
            return "full"
        try:
            encoded = accept.without_metadata(chosen.classifier.encoded(chosen.image))
        except Refused:
            return "unusable"
        if self._limits.what == "image":
            record = self._record(chosen, place.put_image(self._store, self._day, encoded))
            self._bytes += len(encoded)
        else:
            if chosen.classifier.reference is None:
                if self._warned != (version := chosen.version):
                    self._warned = version
                    log.warning("no statistics are kept of %s: its export has no reference for drift", version)
                return "unusable"
            found = chosen.classifier.statistics([encoded])
            record = replace(
                self._record(chosen, hashlib.sha256(encoded).hexdigest()),
                features=reference.packed(found.features[0]),
                brightness=round(float(found.brightness[0]), 3),
            )
            self._bytes += STATISTICS_BYTES
        self._records.append(record)
        self._images += 1
        if len(self._records) >= FLUSH_RECORDS:
            self._flush()
        return "kept"

    def _begin(self, day: str) -> None:
        """Begin a day: write the records of the last one, remove old days, and count what is there."""
        self._flush()
        removed = place.remove_before(self._store, self._limits.days)
        if removed:
            log.info("removed %d kept files older than %d days", removed, self._limits.days)
        self._bytes, self._images = place.usage(self._store, day)
        self._day = day

    def _record(self, chosen: Answered, sha256: str) -> KeptImage:
        return KeptImage(
            time=datetime.fromtimestamp(chosen.seconds, UTC).isoformat(timespec="milliseconds"),
            model=self._model, version=chosen.version, sha256=sha256, top=chosen.top, reason=chosen.reason,
            probability=chosen.probability, candidate=chosen.candidate, candidate_top=chosen.candidate_top,
            labels=chosen.labels, nearest=chosen.nearest, candidate_labels=chosen.candidate_labels,
            reference=chosen.classifier.reference or "",
        )  # fmt: skip

    def _flush(self) -> Result:
        """Write the records of a day since the last time."""
        if self._records:
            name = f"{datetime.now(UTC):%H%M%S}-{secrets.token_hex(8)}"
            if self._limits.what == "statistics":
                name += f"-n{len(self._records)}"
            place.put_records(self._store, self._day, name, self._records)
            self._records = []
        self._flush_at = time.monotonic() + FLUSH_S
        return "kept"
