"""Metrics of a server, in Prometheus' text format."""

from collections.abc import Callable, Sequence
from functools import partial

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from perennial.base.choices import UNKNOWN
from perennial.data.images import BadImage
from perennial.live.serving.batching import Output
from perennial.live.serving.requests import Answer
from perennial.live.serving.served_version import LoadedVersion

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
IMAGES = (1, 2, 4, 8, 16, 32, 64, 128)
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter


class ServingMetrics:
    """The counters of one server."""

    def __init__(self, waiting: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self._registry), partial(Gauge, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry)
        self.requests = counter("perennial_requests", "Answered requests.", ("endpoint", "code"))
        text = "Time of a request, from its headers to its response."
        self.seconds = histogram("perennial_request_seconds", text, ("endpoint",), buckets=SECONDS)
        self.batches = histogram("perennial_batch_images", "Images in a batch.", buckets=IMAGES)
        text = "Images by their most probable class, or by each of their labels."
        self._predictions = counter("perennial_predictions", text, ("class",))
        self._unlabelled = counter("perennial_unlabelled_images", "Images that got none of several labels.")
        self._bad = counter("perennial_bad_images", "Rejected images.")
        self._unknown = counter("perennial_unknown_images", "Images answered with `unknown`.")
        text = "Images chosen to be kept, by what became of them."
        kept = counter("perennial_kept_images", text, ("result",))
        self.kept = lambda result: kept.labels(result).inc()
        text = "Images drawn for the candidate in the shadow, by what became of them."
        shadowed = counter("perennial_shadow_images", text, ("result",))
        self.shadowed = lambda result: shadowed.labels(result).inc()
        self._loads = counter("perennial_model_loads", "Loaded and refused versions.", ("result",))
        self._model = gauge("perennial_model_info", "The served version.", ("version", "architecture"))
        self._loaded = gauge("perennial_model_loaded_timestamp_seconds", "When the served version was loaded.")
        queue = gauge("perennial_queue_images", "Images waiting for the model.")
        queue.set_function(waiting)

    def loaded(self, version: LoadedVersion | None) -> None:
        """Record a newly served version; None: a version was refused."""
        self._loads.labels("refused" if version is None else "loaded").inc()
        if version is not None:
            self._model.clear()
            self._model.labels(version.number, str(version.card.get("architecture", ""))).set(1)
            self._loaded.set(version.loaded)

    def predicted(
        self, outputs: Sequence[Output], classes: Sequence[str], answers: Sequence[Answer] | None
    ) -> None:
        """Count the images of a request; `answers` as `Classifier.answers` returns them."""
        self._unknown.inc(sum(each == UNKNOWN for each in answers or ()))
        for each, answer in zip(outputs, answers or [""] * len(outputs), strict=True):
            if isinstance(each, BadImage):
                self._bad.inc()
                continue
            named = [classes[int(each.argmax())]] if isinstance(answer, str) else answer
            self._unlabelled.inc(not named)
            for name in named:
                self._predictions.labels(name).inc()

    def text(self) -> bytes:
        """Return all metrics in the text format."""
        return prometheus_client.generate_latest(self._registry)
