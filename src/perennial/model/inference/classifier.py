"""An exported model that classifies images in order, several batches at a time."""

import os
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice, repeat
from threading import Event
from typing import Literal, NamedTuple, overload

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.base.choices import UNKNOWN, Transparency
from perennial.base.errors import ConfigError, DataError, QualityError
from perennial.data.images import BadImage, Refused, decode
from perennial.model.inference import image_inputs
from perennial.model.inference.image_inputs import ImageInput, ImageSource, PixelBudget

ON_BAD_IMAGE = ("fail", "skip")
# One batch is decoded while the model processes another; on a GPU, batches take turns.
WORKERS = min(len(os.sched_getaffinity(0)), 8) + 1
BATCH = 32  # images
FIRST_BATCHES = (1, 8)  # smaller, for an early first prediction
BATCH_PIXELS = 8_000_000  # of decoded images
PIECE = 1 << 20  # bytes
LEAST = 1e-6  # probability that counts in log odds
Probabilities = NDArray[np.float32]  # [classes]


@dataclass(frozen=True, kw_only=True)
class Class:
    """A class and its probability."""

    label: str
    index: int  # in the order of the model's outputs
    probability: float  # 0..1


@dataclass(frozen=True, kw_only=True, eq=False)
class Prediction:
    """The prediction for an image."""

    classes: tuple[Class, ...]  # the most probable ones, most probable first
    # Those of the answer, most probable first: one, or none if it is unknown; of several labels, all from their
    # thresholds on.
    given: tuple[Class, ...]
    probabilities: Probabilities  # of all classes, in the order of the model's outputs
    unknown: bool = False  # whether the model is less sure than its threshold, below which it gives no answer

    @property
    def labels(self) -> tuple[str, ...]:
        """The answer: all labels, most probable first; of one label an image, that one or `unknown`."""
        return (UNKNOWN,) if self.unknown else tuple(each.label for each in self.given)

    @property
    def label(self) -> str:
        """The answer as a text: the name of the most probable class, `unknown`, or all labels."""
        return ", ".join(self.labels)

    @property
    def index(self) -> int:
        """The index of the most probable class, from 0."""
        return self.classes[0].index

    @property
    def probability(self) -> float:
        """The probability of the most probable class, 0..1."""
        return self.classes[0].probability


class Statistics(NamedTuple):
    """What is measured of N images, to find drift."""

    features: NDArray[np.float32]  # [N, 256]
    brightness: NDArray[np.float32]  # [N], 0..255


class Classifier:
    """The model of an export, with the names of its classes.

    Args:
        model: a loaded SavedModel.
        classes: names, in the order of the model's outputs.
        budget: pixels that all threads together decode at a time, up to 30 bytes each.
        transparency: what became of transparent pixels in the records that the model was trained on.
        max_side: pixels of the longer side to which larger images were reduced there.
        reference: mark of what `statistics` can be compared with.
        threshold: probability below which the answer is `unknown`, 0..1, infinite if it always is.
        thresholds: probability of each class from which an image has that label, 0..1; None: it has one label.
    """

    def __init__(
        self,
        model: tf.Module,
        classes: Sequence[str],
        *,
        budget: PixelBudget | None = None,
        transparency: Transparency = "drop",
        max_side: int | None = None,
        reference: str | None = None,
        threshold: float | None = None,
        thresholds: Sequence[float] | None = None,
    ) -> None:
        self.classes, self.threshold, self.reference = tuple(classes), threshold, reference
        self.thresholds = None if thresholds is None else np.array(thresholds, np.float32)
        self._model = model  # keep a reference: the signatures do not hold the weights
        self._classify = model.signatures["classify_bytes"]
        # Height and width of the images that it takes; None if any size is allowed.
        shape = model.signatures["classify"].structured_input_signature[1]["image"].shape
        self.image_size: tuple[int | None, int | None] = tuple(shape[1:3].as_list())
        self._budget, self._transparency, self._max_side = budget or PixelBudget(), transparency, max_side

    @overload
    def predict(
        self, images: ImageInput | Iterable[ImageInput], *, top: int = 1, on_bad_image: Literal["fail"] = "fail"
    ) -> list[Prediction]: ...

    @overload
    def predict(
        self, images: ImageInput | Iterable[ImageInput], *, top: int = 1, on_bad_image: Literal["skip"]
    ) -> list[Prediction | None]: ...

    def predict(
        self,
        images: ImageInput | Iterable[ImageInput],
        *,
        top: int = 1,
        on_bad_image: Literal["fail", "skip"] = "fail",
    ) -> list[Prediction] | list[Prediction | None]:
        """Classify images; returns a prediction for each, in order, and None for a bad one that is skipped.

        An image is a path, the bytes of a file, a file opened with 'rb', a Pillow image or an array uint8
        [height, width, channels] or [height, width]; an array [N, height, width, channels] is N images. Each
        prediction names the `top` most probable classes.

        Raises:
            ConfigError: `top` is not an integer from 1, or `on_bad_image` has an unknown value.
            DataError: an image is bad and on_bad_image is fail: names the first one and the reason.
            QualityError: the model gives probabilities that are not finite.
        """
        if not isinstance(top, int | np.integer) or top < 1:
            raise ConfigError(f"top must be a whole number from 1, got {top!r}")
        if on_bad_image not in ON_BAD_IMAGE:
            raise ConfigError(f"on_bad_image must be {' or '.join(ON_BAD_IMAGE)}, got {on_bad_image!r}")
        predictions: list[Prediction | None] = []
        for prediction in self.predictions(image_inputs.from_values(images), top):
            if isinstance(prediction, BadImage) and on_bad_image == "fail":
                raise DataError(
                    f"{prediction.filename}: {prediction.reason}; on_bad_image='skip' gives None for it"
                )
            predictions.append(None if isinstance(prediction, BadImage) else prediction)
        return predictions

    def predictions(self, images: Iterable[ImageSource], top: int) -> Generator[Prediction | BadImage]:
        """Yield predictions in order, while the next images are being processed."""
        remaining, stopped = iter(images), Event()
        waiting: deque[Future[list[Probabilities | BadImage]]] = deque()
        pool = ThreadPoolExecutor(WORKERS, "predict")
        try:
            for number, size in enumerate(chain(FIRST_BATCHES, repeat(BATCH))):
                if batch := list(islice(remaining, size)):
                    waiting.append(pool.submit(self._batch, batch, stopped))
                if not waiting:
                    break
                # Run the first batch alone: others would only slow down TensorFlow's initialization of the
                # model.
                if not batch or number == 0 or len(waiting) > WORKERS:
                    for each in waiting.popleft().result():
                        yield each if isinstance(each, BadImage) else self._prediction(each, top)
        finally:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def outputs(self, images: Sequence[ImageSource]) -> list[Probabilities | BadImage]:
        """Compute probabilities [classes] of each image, in order, in this thread; thread-safe."""
        outputs = self._batch(images, Event())
        for each in outputs:
            if not isinstance(each, BadImage):
                _require_finite(each)
        return outputs

    def answers(self, outputs: Iterable[Probabilities | BadImage]) -> Sequence[str | tuple[str, ...]] | None:
        """The answer for each output, or its labels if there may be several; empty for a bad image.

        None if an image has one label, and the model answers every image.
        """
        if self.threshold is None and self.thresholds is None:
            return None
        found = [() if isinstance(each, BadImage) else self.labels(each) for each in outputs]
        return found if self.thresholds is not None else ["".join(each) for each in found]

    def labels(self, probabilities: Probabilities) -> tuple[str, ...]:
        """The answer for an output, as `Prediction.labels`."""
        if self._is_unknown(probabilities):
            return (UNKNOWN,)
        return tuple(self.classes[index] for index in self._given(probabilities))

    def nearest(self, probabilities: Probabilities) -> tuple[str, float]:
        """Of several labels, the one nearest to its threshold, and the distance in log odds.

        The smallest distance to a decision says how unsure a model is of an image: K. Brinker, On Active
        Learning in Multi-label Classification, 2006. Log odds compare classes of different thresholds.
        """
        both = np.array([probabilities, self.thresholds], np.float64)
        limited = np.clip(both, LEAST, 1 - LEAST)
        odds = np.log(limited / (1 - limited))
        distances = np.abs(odds[0] - odds[1])
        index = int(distances.argmin())
        return self.classes[index], round(float(distances[index]), 6)

    def encoded(self, image: ImageSource) -> bytes:
        """Read an image as the model gets it: PNG or JPEG, as a record would hold it."""
        read = image.read(self._budget, self._transparency)
        return image_inputs.limited(read, self._budget, self._max_side)

    def statistics(self, images: Sequence[bytes]) -> Statistics:
        """Measure images as `encoded` reads them, in this thread, for comparison with the reference."""
        with self._budget.reserve(sum(map(self._pixels, images))):
            try:
                found = self._model.statistics(_tensor(images))
            except tf.errors.InvalidArgumentError as error:
                raise Refused(f"it cannot be decoded: {error.message}") from error
        return Statistics(found["features"].numpy(), found["brightness"].numpy())

    def _prediction(self, probabilities: Probabilities, top: int) -> Prediction:
        _require_finite(probabilities)

        def classes(indices: Iterable[int]) -> tuple[Class, ...]:
            found = ((index, float(probabilities[index])) for index in indices)
            return tuple(Class(label=self.classes[index], index=index, probability=p) for index, p in found)

        unknown = self._is_unknown(probabilities)
        return Prediction(
            classes=classes(_by_probability(probabilities)[:top]),
            given=() if unknown else classes(self._given(probabilities)),
            probabilities=probabilities,
            unknown=unknown,
        )

    def _given(self, probabilities: Probabilities) -> list[int]:
        """The indices of the answer, most probable first; of several labels, those from their thresholds on."""
        if self.thresholds is None:
            return [int(probabilities.argmax())]
        above = probabilities >= self.thresholds
        return [index for index in _by_probability(probabilities) if above[index]]

    def _is_unknown(self, probabilities: Probabilities) -> bool:
        return self.threshold is not None and float(probabilities.max()) < self.threshold

    def _batch(self, images: Sequence[ImageSource], stopped: Event) -> list[Probabilities | BadImage]:
        """Outputs for a batch of images; large images are processed in smaller parts."""
        outputs: dict[int, Probabilities | BadImage] = {}
        part: dict[int, bytes] = {}
        pixels = 0
        for index, image in enumerate(images):
            if stopped.is_set():  # the caller is gone
                raise CancelledError
            try:
                encoded = self.encoded(image)
                size = self._pixels(encoded)
            except Refused as error:
                outputs[index] = BadImage(filename=image.name, reason=str(error))
                continue
            if part and pixels + size > BATCH_PIXELS:
                outputs |= self._run(images, part, pixels, stopped)
                part, pixels = {}, 0
            part[index] = encoded
            pixels += size
        outputs |= self._run(images, part, pixels, stopped)
        return [outputs[index] for index in range(len(images))]

    def _run(
        self, images: Sequence[ImageSource], part: Mapping[int, bytes], pixels: int, stopped: Event
    ) -> dict[int, Probabilities | BadImage]:
        """Outputs for encoded images, once there is memory for their pixels."""
        with self._budget.reserve(pixels):
            if stopped.is_set():
                raise CancelledError
            try:
                return dict(zip(part, self._probabilities(part.values()), strict=True)) if part else {}
            except tf.errors.InvalidArgumentError:
                return {index: self._single(images[index].name, image) for index, image in part.items()}

    def _single(self, name: str, image: bytes) -> Probabilities | BadImage:
        """The output for one image of a batch in which at least one does not decode."""
        try:
            return self._probabilities([image])[0]
        except tf.errors.InvalidArgumentError as error:
            return BadImage(filename=name, reason=_reason(image, error))

    def _probabilities(self, images: Iterable[bytes]) -> list[Probabilities]:
        """The probabilities for encoded images of one size, or of any sizes if the model allows that."""
        return list(self._classify(image=_tensor(list(images)))["probabilities"].numpy())

    def _pixels(self, encoded: bytes) -> int:
        """The number of pixels of an image, after a check of its size."""
        found = decode.header(encoded)
        if found is None:  # the decoder gives the reason
            return 0
        for side, expected in zip((found.height, found.width), self.image_size, strict=True):
            if expected not in {None, side}:
                size = " x ".join("any" if each is None else str(each) for each in reversed(self.image_size))
                raise Refused(
                    f"it has {found.width} x {found.height} pixels, the model takes {size} (width x height)"
                )
        return found.height * found.width


def _tensor(images: Sequence[bytes]) -> tf.Tensor:
    """Encoded images as a tensor, string [N]; a large one in pieces, as each is copied under Python's lock."""
    if max(map(len, images)) <= PIECE:
        return tf.constant(images)
    pieces = ([each[start : start + PIECE] for start in range(0, len(each), PIECE)] for each in images)
    joined = [tf.strings.join([tf.constant(piece) for piece in each]) for each in pieces]
    return tf.stack(joined) if len(joined) > 1 else tf.reshape(joined[0], [1])


def _by_probability(probabilities: Probabilities) -> list[int]:
    """The indices of all classes, most probable first."""
    found: list[int] = np.argsort(-probabilities, kind="stable").tolist()
    return found


def _require_finite(probabilities: Probabilities) -> None:
    if not np.isfinite(probabilities).all():
        raise QualityError("the model gives probabilities that are not finite; train and export it again")


def _reason(image: bytes, error: tf.errors.OpError) -> str:
    """The reason why an image does not decode: convert's, or else TensorFlow's."""
    try:
        image_inputs.to_decodable(image, PixelBudget())  # its pixels are reserved already
    except Refused as unusable:
        return str(unusable)
    lines = str(error.message).strip().splitlines() or ["unknown"]
    return f"it cannot be decoded: {lines[0]}"
