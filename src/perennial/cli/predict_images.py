"""`perennial predict`: classify the images of the command line, and print each prediction as it is made."""

import csv
import io
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO, cast

from perennial.base import config, documents
from perennial.base.config import Config
from perennial.base.errors import ConfigError, DataError, Interrupted, PerennialError, printable
from perennial.base.processes import process
from perennial.base.processes.tensorflow import import_with_tensorflow
from perennial.data.images import BadImage
from perennial.model import export_layout
from perennial.model.inference import image_inputs
from perennial.model.inference.image_inputs import ImageList
from perennial.release.registry.checkout_state import rejection

if TYPE_CHECKING:
    from perennial.model.inference.classifier import Class, Classifier, Prediction

log = logging.getLogger(__name__)
Named = Iterable[tuple[str, "Prediction | BadImage"]]  # with the names of the files
Kind = Literal["plain", "abstains", "several"]  # of answers: a class, or also unknown, or any number of labels
CSV_HEADER = ("file", "rank", "class", "index", "probability")
CSV_MORE: dict[Kind, tuple[str, ...]] = {"plain": (), "abstains": ("answer",), "several": ("label",)}
NO_LABEL = "no label"


@dataclass
class _Count:
    """The number of images so far, and of bad ones among them."""

    images: int = 0
    bad: int = 0
    started: float = field(default_factory=time.monotonic)


def predict(
    arguments: Sequence[str],
    *,
    model: str | None,
    params: Path,
    output: Literal["lines", "json", "csv"],
    top: int,
    on_bad_image: Literal["fail", "skip"],
) -> None:
    """Print the `top` classes of each image, and all its labels; report each bad image on stderr.

    `model` is a folder or URL; by default it is the export that the parameters name.
    """
    if sys.stdout is None:
        raise ConfigError("standard output is closed (>&-), so nothing can be printed; redirect it to a file")
    try:
        with process.interruptible():
            images = image_inputs.from_arguments(arguments)
            if not images:
                raise DataError(f"no image in {', '.join(map(printable, arguments))}; nothing to predict")
            if model is None and not params.exists():
                raise ConfigError(f"{params} does not exist, so it names no model; name one with --model")
            with tempfile.TemporaryDirectory() as work:
                exports = import_with_tensorflow("perennial.release.publishing.load", Path(work))
            classifier: Classifier = exports.load(model or config.load(params).paths.export)
            if model is None:
                _warn_if_rejected(config.load(params))
            # The import of TensorFlow can swallow the exception that a signal raises.
            process.raise_if_signalled()
            _finish(_print(classifier, images, output, top), on_bad_image)
    except Interrupted as error:
        name = str(error).partition(" ")[0]
        raise Interrupted(f"{name} ended it; the printed predictions are complete; run it again") from None
    except BrokenPipeError:
        # The reader closed the pipe (e.g. `head`); without this, the interpreter's last flush would fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print(classifier: "Classifier", images: ImageList, output: str, top: int) -> _Count:
    if output == "csv":  # file names byte for byte; elsewhere bytes that are not UTF-8 are escaped
        cast(io.TextIOWrapper, sys.stdout).reconfigure(encoding="utf-8", errors="surrogateescape")
    count = _Count()
    named = _predictions(classifier, images, top, count)
    kind: Kind = "plain" if classifier.threshold is None else "abstains"
    if classifier.thresholds is not None:
        kind = "several"
    WRITERS[output](named, sys.stdout, kind)
    sys.stdout.flush()
    return count


def _warn_if_rejected(checked: Config) -> None:
    """Warn that the gate rejected the model of the project's export."""
    with suppress(PerennialError, LookupError, TypeError):
        exported = documents.read_json(checked.paths.export / export_layout.CARD)["weights_sha256"]
        if why := rejection(checked.paths.decision, exported):
            log.warning("this model was rejected: %s", why)


def _predictions(
    classifier: "Classifier", images: ImageList, top: int, count: _Count
) -> Iterator[tuple[str, "Prediction | BadImage"]]:
    """Yield image names and predictions; count images and report bad ones."""
    with closing(classifier.predictions(images, top)) as predictions:
        for image, prediction in zip(images, predictions, strict=True):
            count.images += 1
            if isinstance(prediction, BadImage):
                count.bad += 1
                log.warning("%s", printable(f"{image.name}: {prediction.reason}"))
            yield image.name, prediction


def _finish(count: _Count, on_bad_image: str) -> None:
    seconds = time.monotonic() - count.started
    if count.bad == count.images:
        raise DataError(f"none of {count.images} images could be read; each is named above with the reason")
    if count.bad and on_bad_image == "fail":
        raise DataError(
            f"{count.bad} of {count.images} images could not be read and are named above; the others are "
            "predicted; --on-bad-image skip ends with code 0"
        )
    if count.images > 1:
        skipped = f", {count.bad} skipped" if count.bad else ""
        log.info("%d images in %.1f s%s", count.images, seconds, skipped)


def _write_lines(predictions: Named, stream: TextIO, kind: Kind) -> None:
    """Write one line per image: its name, and the classes with their probabilities.

    Below the model's threshold, the answer is `unknown`, and the classes stand in brackets. Of several labels,
    all from their thresholds on are there, and in brackets the most probable others.
    """
    for file, answer in predictions:
        if not isinstance(answer, BadImage):
            given = answer.classes if kind != "several" and not answer.unknown else answer.given
            answered = _with_probabilities(given) or (answer.label if answer.unknown else NO_LABEL)
            others = [each for each in answer.classes if each not in given]
            rest = f" ({_with_probabilities(others)})" if others else ""
            stream.write(printable(f"{file}: {answered}{rest}") + "\n")
            stream.flush()


def _with_probabilities(classes: Iterable["Class"]) -> str:
    return ", ".join(f"{each.label} {each.probability:.4f}" for each in classes)


def _shown(answer: "Prediction") -> list["Class"]:
    """The `top` classes and all labels, most probable first."""
    others = (each for each in answer.given if each not in answer.classes)
    return [*answer.classes, *others]


def _write_json(predictions: Named, stream: TextIO, kind: Kind) -> None:
    """Write a list with one object per image; bad images have an error."""
    before = "[\n"
    for file, answer in predictions:
        stream.write(f"{before}  {json.dumps(_as_json(file, answer, kind))}")
        stream.flush()
        before = ",\n"
    stream.write("\n]\n" if before == ",\n" else "[]\n")


def _write_csv(predictions: Named, stream: TextIO, kind: Kind) -> None:
    """Write a header, and one row for each class of each image, with the answer if the model abstains.

    Of several labels, there is a row for each, and a column says whether a class is one (1) or not (0).
    """
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow((*CSV_HEADER, *CSV_MORE[kind]))
    for file, answer in predictions:
        if not isinstance(answer, BadImage):
            for rank, each in enumerate(_shown(answer), 1):
                more = {"plain": (), "abstains": (answer.label,), "several": (int(each in answer.given),)}[kind]
                writer.writerow((file, rank, each.label, each.index, each.probability, *more))
            stream.flush()


def _as_json(file: str, answer: "Prediction | BadImage", kind: Kind) -> dict[str, object]:
    if isinstance(answer, BadImage):
        return {"file": file, "error": answer.reason}
    classes = [
        {"class": each.label, "index": each.index, "probability": each.probability} for each in _shown(answer)
    ]
    more: dict[Kind, dict[str, object]] = {
        "plain": {}, "abstains": {"answer": answer.label}, "several": {"labels": answer.labels},
    }  # fmt: skip
    return {"file": file, **more[kind], "classes": classes}


WRITERS = {"lines": _write_lines, "json": _write_json, "csv": _write_csv}
