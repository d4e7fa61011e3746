"""A candidate in the shadow: it gets a copy of some images after they were answered, and is compared.

The candidate runs in a process of its own, on the CPU at the lowest priority, so that it can neither delay an
answer nor end the server. Without labels, agreement says nothing about which model is better: it can stop a
candidate that fails, that is slow, or that sees one class everywhere, and never promote one.
"""

import copy
import logging
import os
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from perennial.base.errors import Interrupted, redacted
from perennial.base.parallel import process_pool
from perennial.base.processes.tensorflow import import_with_tensorflow
from perennial.data.images import BadImage
from perennial.live.capture.keeper import Answered, Keeper, Probabilities, Served, Waiting, draw, labels, top
from perennial.live.capture.place import Labels, Top
from perennial.model.evaluation.intervals import wilson
from perennial.model.inference.image_inputs import ImageSource, PixelBudget

log = logging.getLogger(__name__)
VERSIONS = "perennial.live.serving.served_version"  # imports TensorFlow
QUEUED = 64  # images
QUEUED_BYTES = 64 << 20
BATCH = 8  # images
LOOK_S = 10.0  # between checks for a new version of the candidate
LOWEST = 19  # priority of a process
SHOWN = 50  # pairs of classes
MOST_PAIRS = 10_000  # that are counted: there are many sets of labels
INTERVAL = ("share", "low", "high")  # 95 % (Wilson)
TIMED = 1000  # latest images whose times are kept
# When a candidate stops: enough errors, or one class for nearly all images, which the served model tells apart.
ERRORS, ERROR_SHARE = 5, 0.01
JUDGED, ONE_CLASS, SEVERAL = 200, 0.99, 0.9  # images, shares of the most frequent class
Named = str | Labels  # the most probable class, or several labels in the order of their names


class Answers(NamedTuple):
    """What the candidate said of some images."""

    version: str
    classes: tuple[str, ...]
    outputs: list[Probabilities | BadImage]
    labels: list[Labels | None]  # None of a model that gives one, and of a bad image
    seconds: float


@dataclass(kw_only=True)
class Comparison:
    """What is known of one candidate beside one served version."""

    served: str
    candidate: str
    images: int = 0  # that both have answered
    agreed: int = 0  # of these, with the same class or labels
    pairs: Counter[tuple[Named, Named]] = field(default_factory=Counter)  # of served model and candidate
    confidence: tuple[float, float] = (0.0, 0.0)  # sums of the highest probabilities
    other_task: bool = False  # whether one gives several labels an image, and the other one
    errors: int = 0  # refused images, and calls that failed: a crash is one, however many images it took
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=TIMED))  # of the candidate, an image
    stopped: str = ""  # the reason

    def add(self, served: Named, other: Named, confidence: tuple[float, float], seconds: float) -> None:
        """Add an image that both have answered."""
        self.images += 1
        self.agreed += served == other
        if (served, other) in self.pairs or len(self.pairs) < MOST_PAIRS:
            self.pairs[served, other] += 1
        self.confidence = (self.confidence[0] + confidence[0], self.confidence[1] + confidence[1])
        self.seconds.append(seconds)

    def reason_to_stop(self, max_ms: float | None) -> str:
        """Why the candidate must not be promoted; empty without a reason, which is no reason to promote it."""
        if self.other_task:
            return "it is of another task: one of the two gives one label an image, the other several"
        if self.errors >= ERRORS and self.errors > ERROR_SHARE * (self.images + self.errors):
            return f"{self.errors} failures beside {self.images} answers"
        if self.images < JUDGED:
            return ""
        (name, most), served = self._most(1), self._most(0)[1]
        if most > ONE_CLASS * self.images and served < SEVERAL * self.images:
            shown = name if isinstance(name, str) else ", ".join(name) or "without a label"
            return (
                f"{most} of {self.images} images are {shown}; of the served version's, {served} are one class"
            )
        typical = 1000 * float(np.median(self.seconds))
        if max_ms is not None and typical > max_ms:
            return f"an image takes {typical:.1f} ms, the limit is {max_ms:g}"
        return ""

    def document(self, failure: str) -> dict[str, Any]:
        """The comparison as JSON; shares and times are null without images."""
        agreement: dict[str, float] | None = None
        per_image: Sequence[float | None] = (None, None)
        times: Sequence[float | None] = (None, None)
        if images := self.images:
            agreement = dict(zip(INTERVAL, (self.agreed / images, *wilson(self.agreed, images)), strict=True))
            per_image = [total / images for total in self.confidence]
            times = [round(1000 * each, 2) for each in np.quantile(self.seconds, (0.5, 0.95)).tolist()]
        pairs = sorted(self.pairs.items(), key=lambda each: (-each[1], each[0]))
        return {
            "served": self.served,
            "candidate": self.candidate,
            "images": images,
            "agreed": self.agreed,
            "agreement": agreement,
            "confidence": dict(zip(("served", "candidate"), per_image, strict=True)),
            "milliseconds": dict(zip(("median", "p95"), times, strict=True)),
            "errors": self.errors,
            "stopped": self.stopped or None,
            "failure": failure or None,
            "disagreements": [
                {"served": one, "candidate": other, "images": count}
                for (one, other), count in pairs
                if one != other
            ][:SHOWN],
        }

    def _most(self, side: int) -> tuple[Named, int]:
        """The most frequent class or labels of the served model (0) or the candidate (1)."""
        found: Counter[Named] = Counter()
        for pair, count in self.pairs.items():
            found[pair[side]] += count
        return found.most_common(1)[0]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What runs in the shadow."""

    model: str  # export, publish folder or URL
    share: float  # of the answered images, 0..1
    max_ms: float | None  # median time of an image, at the lowest priority, above which the candidate stops


class Shadow:
    """Compares a candidate with the served version on a share of the traffic."""

    def __init__(
        self, candidate: Candidate, count: Callable[[str], object], keeper: Keeper | None = None
    ) -> None:
        self.comparison = Comparison(served="", candidate="")
        self.failure = ""  # of loading or calling the candidate
        self._candidate, self._count, self._keeper = candidate, count, keeper
        self._waiting = Waiting(QUEUED, QUEUED_BYTES)
        self._lock = threading.Lock()  # of the comparison
        self._closing = False
        self._look_at = 0.0  # for a new version of a stopped candidate
        self._worker = process_pool.Worker(answer, {"model": candidate.model})
        self._thread = threading.Thread(target=self._run, name="shadow", daemon=True)

    def start(self, _failed: Callable[[Exception], object]) -> None:
        """Start the thread."""
        self._thread.start()

    def offer(self, request: Served) -> None:
        """Draw images of an answered request; never waits."""
        draw(self._candidate.share, "disagreement", request, self._put)

    def snapshot(self) -> Comparison:
        """A copy of the comparison of the present versions."""
        with self._lock:
            return copy.deepcopy(self.comparison)

    def close(self) -> None:
        """Stop; what still waits is not compared."""
        self._closing = True
        self._waiting.end()
        self._worker.close()
        self._thread.join(1)

    def _put(self, answered: Answered) -> None:
        if self.comparison.stopped:  # an image now and then shows whether there is a new version
            if time.monotonic() < self._look_at:
                self._count("stopped")
                return
            self._look_at = time.monotonic() + LOOK_S
        if not self._waiting.put(answered):
            self._count("busy")

    def _run(self) -> None:
        self._use([])  # so that the candidate is loaded when the first images come
        while not self._closing and (batch := self._next()):
            self._use(batch)

    def _use(self, batch: Sequence[Answered]) -> None:
        """Let the candidate classify images, and compare its answers."""
        try:
            found: Answers | str = self._worker([each.image for each in batch])
        except BrokenProcessPool:
            found = "its process was killed"
        except (RuntimeError, Interrupted):  # the server stops; SIGTERM may have reached the candidate, too
            return
        if self._closing:
            return
        if isinstance(found, str):
            self._failed(found, len(batch))
        elif batch:
            self._compare(batch, found)
        else:
            log.info("loaded the candidate %s", found.version)

    def _next(self) -> list[Answered]:
        """Wait for images; empty at the end."""
        batch: list[Answered] = []
        while len(batch) < BATCH and (not batch or not self._waiting.empty()):
            if (answered := self._waiting.get()) is None:
                return []
            batch.append(answered)
        return batch

    def _failed(self, reason: str, images: int) -> None:
        if reason != self.failure:
            log.warning("the candidate %s failed: %s", redacted(self._candidate.model), reason)
        self.failure = reason
        for _ in range(images):
            self._count("error")
        with self._lock:
            self.comparison.errors += images > 0
            self._judge()

    def _compare(self, batch: Sequence[Answered], found: Answers) -> None:
        self.failure = ""
        with self._lock:
            for answered, output, given in zip(batch, found.outputs, found.labels, strict=True):
                self._begin(answered.version, found.version)
                if isinstance(output, BadImage):
                    self.comparison.errors += 1
                    self._count("error")
                elif (given is None) != (answered.labels is None):
                    self.comparison.other_task = True
                else:
                    best = top(found.classes, output)
                    other = answered._replace(
                        candidate=found.version, candidate_top=best, candidate_labels=given
                    )
                    self._add(other, found.seconds / len(batch))
            self._judge()

    def _begin(self, served: str, candidate: str) -> None:
        """Begin a new comparison when one of the two has a new version."""
        if (self.comparison.served, self.comparison.candidate) != (served, candidate):
            self.comparison = Comparison(served=served, candidate=candidate)
            log.info("comparing version %s with the candidate %s", served, candidate)

    def _add(self, answered: Answered, seconds: float) -> None:
        served, other = answered.top, answered.candidate_top
        one, another = _named(served, answered.labels), _named(other, answered.candidate_labels)
        self.comparison.add(one, another, (served[0][1], other[0][1]), seconds)
        self._count("agreed" if one == another else "disagreed")
        if one != another and self._keeper:
            self._keeper.put(answered)

    def _judge(self) -> None:
        reason = self.comparison.reason_to_stop(self._candidate.max_ms)
        if reason and not self.comparison.stopped:
            candidate = self.comparison.candidate or redacted(self._candidate.model)
            log.warning("stop the candidate %s: %s", candidate, reason)
        self.comparison.stopped = self.comparison.stopped or reason


def _named(top: Top, given: Labels | None) -> Named:
    return top[0][0] if given is None else tuple(sorted(given))


def answer(state: dict[str, Any], images: Sequence[ImageSource]) -> Answers | str:
    """Classify images with the candidate, in its own process; the reason if it cannot be loaded or fails."""
    if "versions" not in state:
        os.nice(LOWEST)
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the GPU is the served model's
        with tempfile.TemporaryDirectory() as work:
            state["versions"] = import_with_tensorflow(VERSIONS, Path(work))
    return classify(state, images)


def classify(state: dict[str, Any], images: Sequence[ImageSource]) -> Answers | str:
    """Classify images; `state` has the place as `model`, the module `versions`, and what is loaded."""
    try:
        _look(state)
        loaded = state["loaded"]
        started = time.perf_counter()
        outputs = loaded.classifier.outputs(images) if images else []
    except state["versions"].ERRORS as error:
        return str(error) or type(error).__name__
    seconds, model = time.perf_counter() - started, loaded.classifier
    given = [None if isinstance(each, BadImage) else labels(model, each) for each in outputs]
    return Answers(loaded.number, model.classes, outputs, given, seconds)


def _look(state: dict[str, Any]) -> None:
    """Load the candidate, and now and then its new version; while its place is away, the loaded one stays."""
    if time.monotonic() < state.get("look", 0.0):
        return
    versions = state["versions"]
    try:
        place = versions.place(state["model"])
        key = place.key()
        if key != state.get("key") or "loaded" not in state:
            state["loaded"], state["key"] = versions.load_version(place.folder(), PixelBudget()), key
    except versions.ERRORS:
        if "loaded" not in state:
            raise
    state["look"] = time.monotonic() + LOOK_S
