"""An exported model that answers images, several batches at a time, in the order they come in."""

import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from itertools import chain, islice, repeat
from threading import Event
from typing import Literal, overload

import numpy as np
import tensorflow as tf

from perennial.errors import ConfigError, DataError, QualityError
from perennial.images import MOST_PIXELS, BadImage
from perennial.images.header import header
from perennial.prediction import encoding, sources
from perennial.prediction.answers import Class, Prediction, Probabilities
from perennial.prediction.budget import Budget
from perennial.prediction.encoding import Unusable
from perennial.prediction.sources import Given, Source

ON_BAD_IMAGE = ("fail", "skip")
# One batch is decoded while another is in the model, which takes turns where there is a GPU.
WORKERS = min(len(os.sched_getaffinity(0)), 8) + 1
BATCH = 32  # images
FIRST_BATCHES = (1, 8)  # smaller: the first answer is soon there
BATCH_PIXELS = 8_000_000
PIXELS = MOST_PIXELS  # of all workers; up to 30 bytes for each, which the largest image needs anyway


class Classifier:
    """A model of an export folder, with the names of its classes."""

    def __init__(self, model: tf.Module, classes: Sequence[str]) -> None:
        self.classes = tuple(classes)
        self._model = model  # it holds the weights, which its signatures do not
        self._classify = model.signatures["classify_bytes"]
        self._sides = _sides(model.signatures)
        self._budget = Budget(PIXELS)

    @overload
    def predict(
        self, images: Given | Iterable[Given], *, top: int = 1, on_bad_image: Literal["fail"] = "fail"
    ) -> list[Prediction]: ...

    @overload
    def predict(
        self, images: Given | Iterable[Given], *, top: int = 1, on_bad_image: Literal["skip"]
    ) -> list[Prediction | None]: ...

    def predict(
        self,
        images: Given | Iterable[Given],
        *,
        top: int = 1,
        on_bad_image: Literal["fail", "skip"] = "fail",
    ) -> list[Prediction] | list[Prediction | None]:
        """A prediction for each image, in their order; None for a bad one where those are skipped.

        An image is a path, the bytes of a file, an image of Pillow or an array uint8 [height, width, channels];
        an array [N, height, width, channels] is N images. Each prediction names the `top` likeliest classes.

        Raises:
            ConfigError: `top` is no whole number from 1, or there is no such way with bad images.
            DataError: an image is bad and on_bad_image is fail: names the first one and says why.
            QualityError: the model gives probabilities that are not finite.
        """
        if not isinstance(top, int | np.integer) or top < 1:
            raise ConfigError(f"top must be a whole number from 1, got {top!r}")
        if on_bad_image not in ON_BAD_IMAGE:
            raise ConfigError(f"on_bad_image must be {' or '.join(ON_BAD_IMAGE)}, got {on_bad_image!r}")
        found: list[Prediction | None] = []
        for answer in self.answers(sources.given(images), top):
            if isinstance(answer, BadImage) and on_bad_image == "fail":
                raise DataError(f"{answer.filename}: {answer.reason}; on_bad_image='skip' gives None for it")
            found.append(None if isinstance(answer, BadImage) else answer)
        return found

    def answers(self, images: Iterable[Source], top: int) -> Generator[Prediction | BadImage]:
        """What there is to say of each image, in their order, while the next ones are worked on."""
        remaining, stopped = iter(images), Event()
        waiting: deque[Future[list[Probabilities | BadImage]]] = deque()
        pool = ThreadPoolExecutor(WORKERS, "predict")
        try:
            for number, size in enumerate(chain(FIRST_BATCHES, repeat(BATCH))):
                if not (batch := list(islice(remaining, size))):
                    break
                waiting.append(pool.submit(self._batch, batch, stopped))
                # The first one alone: while TensorFlow readies the model, others would only be in its way.
                if number == 0 or len(waiting) > WORKERS:
                    yield from self._told(waiting.popleft(), top)
            while waiting:
                yield from self._told(waiting.popleft(), top)
        finally:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _told(
        self, answered: Future[list[Probabilities | BadImage]], top: int
    ) -> Iterator[Prediction | BadImage]:
        for answer in answered.result():
            yield answer if isinstance(answer, BadImage) else self._prediction(answer, top)

    def _prediction(self, probabilities: Probabilities, top: int) -> Prediction:
        if not np.isfinite(probabilities).all():
            raise QualityError("the model gives probabilities that are not finite; train and export it anew")
        likeliest = np.argsort(-probabilities, kind="stable")[:top].tolist()
        return Prediction(
            classes=tuple(
                Class(label=self.classes[index], index=index, probability=float(probabilities[index]))
                for index in likeliest
            ),
            probabilities=probabilities,
        )

    def _batch(self, images: Sequence[Source], stopped: Event) -> list[Probabilities | BadImage]:
        """The answers for some images; large ones go through the model in smaller parts."""
        answers: dict[int, Probabilities | BadImage] = {}
        part: dict[int, bytes] = {}
        pixels = 0
        for number, image in enumerate(images):
            _raise_if_set(stopped)
            try:
                encoded = image.read()
                size = self._size(encoded)
            except Unusable as error:
                answers[number] = BadImage(filename=image.name, reason=str(error))
                continue
            if part and pixels + size > BATCH_PIXELS:
                answers |= self._in_turn(images, part, pixels, stopped)
                part, pixels = {}, 0
            part[number] = encoded
            pixels += size
        answers |= self._in_turn(images, part, pixels, stopped)
        return [answers[number] for number in range(len(images))]

    def _in_turn(
        self, images: Sequence[Source], part: Mapping[int, bytes], pixels: int, stopped: Event
    ) -> dict[int, Probabilities | BadImage]:
        """The answers for encoded images, once there is memory for them."""
        with self._budget.taken(pixels):
            _raise_if_set(stopped)
            return self._answered(images, part)

    def _answered(
        self, images: Sequence[Source], part: Mapping[int, bytes]
    ) -> dict[int, Probabilities | BadImage]:
        """The answers for encoded images; where one of them does not decode, all go one by one."""
        if not part:
            return {}
        try:
            answered = self._classify(image=tf.constant(list(part.values())))["probabilities"].numpy()
        except tf.errors.InvalidArgumentError as error:
            if len(part) > 1:
                singles = (self._answered(images, {number: image}) for number, image in part.items())
                return {number: answer for single in singles for number, answer in single.items()}
            ((number, image),) = part.items()
            return {number: BadImage(filename=images[number].name, reason=_reason(image, error))}
        return dict(zip(part, answered, strict=True))

    def _size(self, encoded: bytes) -> int:
        """Pixels of an image that the model takes.

        Raises:
            Unusable: it takes images of another size.
        """
        said = header(encoded)
        if said is None:  # the decoder says what is wrong
            return 0
        for side, expected in zip((said.height, said.width), self._sides, strict=True):
            if expected not in {None, side}:
                wanted = " x ".join("any" if each is None else str(each) for each in reversed(self._sides))
                raise Unusable(
                    f"it has {said.width} x {said.height} pixels, the model takes {wanted} (width x height)"
                )
        return said.height * said.width


def _raise_if_set(stopped: Event) -> None:
    if stopped.is_set():  # nobody waits for the answers any more
        raise CancelledError


def _sides(signatures: Mapping[str, tf.types.experimental.ConcreteFunction]) -> tuple[int | None, int | None]:
    """Height and width of the images that a model takes; None where any will do."""
    height, width, _ = signatures["classify"].structured_input_signature[1]["image"].shape[1:]
    return height, width


def _reason(image: bytes, error: tf.errors.OpError) -> str:
    """Why an image does not decode: as convert says it, or else as TensorFlow does."""
    try:
        encoding.checked(image)
    except Unusable as unusable:
        return str(unusable)
    told = str(error.message).strip().splitlines() or ["unknown"]
    return f"it cannot be decoded: {told[0]}"
