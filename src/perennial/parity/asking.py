"""The forms of an export, each asked in its own way for the same images."""

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.formats import EXTRA, FORMATS, Answer, saved_model
from perennial.parity import verdicts

BATCH_BYTES = 64 << 20  # of decoded images: photographs are large before they are resized
NO_LOAD = "does not load"
DIFFERENCE = 1e-5  # between probabilities of two compilations of the same arithmetic
Image = tuple[bytes, NDArray[np.uint8]]  # as it was stored; decoded [height, width, channels]
Answers = tuple[NDArray[np.int64], NDArray[np.float32]]  # classes [N], probabilities [N, classes]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A way to ask an export, and how far its answers may be off."""

    form: str
    bytes: int
    answer: Answer
    difference: float
    agreement: float
    encoded: bool = False  # whether it takes images as they were stored

    def answers(self, images: Sequence[Image]) -> Answers:
        """The answers to some images, those of one size asked at once; raises what the form does."""
        groups = defaultdict(list)
        for number, (_, pixels) in enumerate(images):
            groups[None if self.encoded else pixels.shape].append(number)
        parts = [self._answer([images[number] for number in numbers]) for numbers in groups.values()]
        order = np.argsort([number for numbers in groups.values() for number in numbers])
        classes, probabilities = (np.concatenate(each)[order] for each in zip(*parts, strict=True))
        return classes, probabilities

    def milliseconds(self, images: Sequence[Image]) -> float:
        """The median time of one image; the first is asked for once more, to warm up.

        Raises:
            QualityError: the form takes no image alone.
        """
        seconds = []
        with verdicts.judging(self.form, "fails at an image alone"):
            self._answer(images[:1])
            for image in images:
                started = time.perf_counter()
                self._answer([image])
                seconds.append(time.perf_counter() - started)
        return 1000 * statistics.median(seconds)

    def _answer(self, images: Sequence[Image]) -> Answers:
        stored, decoded = zip(*images, strict=True)
        return self.answer(np.array(stored, object) if self.encoded else np.stack(decoded))


def ways(export: Path, formats: Sequence[str]) -> list[Asked]:
    """Every way to ask an export: the SavedModel by both its signatures, then the other forms.

    Raises:
        QualityError: one of them does not load.
    """
    with verdicts.judging("SavedModel", NO_LOAD):
        loaded = saved_model.loaded(export)
    own = [path for path in export.rglob("*") if path.is_file() and path.relative_to(export).parts[0] != EXTRA]
    found = [
        Asked(
            form=form,
            bytes=sum(file.stat().st_size for file in own),
            answer=_signature(loaded, signature),
            difference=DIFFERENCE,
            agreement=1.0,
            encoded=signature == "classify_bytes",
        )
        for form, signature in (("SavedModel", "classify"), ("SavedModel, classify_bytes", "classify_bytes"))
    ]
    for name in formats:
        form, path = FORMATS[name], export / EXTRA / FORMATS[name].file
        with verdicts.judging(name, NO_LOAD):
            answer = form.runner(path)
        found.append(
            Asked(
                form=name,
                bytes=path.stat().st_size,
                answer=answer,
                difference=form.difference,
                agreement=form.agreement,
            )
        )
    return found


def batches(images: Iterable[Image], most: int) -> Iterator[list[Image]]:
    """Images in their order, so many at once or as many as memory is meant for."""
    batch: list[Image] = []
    for image in images:
        batch.append(image)
        if len(batch) == most or sum(pixels.nbytes for _, pixels in batch) >= BATCH_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


def _signature(loaded: tf.Module, name: str) -> Answer:
    def answer(images: NDArray[np.uint8]) -> Answers:
        outputs = loaded.signatures[name](image=tf.constant(images))
        return outputs["classes"].numpy(), outputs["probabilities"].numpy()

    return answer
