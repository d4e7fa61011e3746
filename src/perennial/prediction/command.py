"""`perennial predict`: what a model says of the images that are named."""

import io
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from perennial import config, process, tensorflow_process
from perennial.errors import ConfigError, DataError, Interrupted
from perennial.images import BadImage
from perennial.prediction import sources
from perennial.prediction.answers import Prediction
from perennial.prediction.output import FORMS
from perennial.prediction.sources import Images
from perennial.records.problems import printable

if TYPE_CHECKING:
    from perennial.prediction.classifier import Classifier

log = logging.getLogger(__name__)
Form = Literal["lines", "json", "csv"]
OnBadImage = Literal["fail", "skip"]


@dataclass
class _Count:
    """Images so far, and how many of them are bad."""

    images: int = 0
    bad: int = 0
    started: float = field(default_factory=time.monotonic)


def predict(
    arguments: Sequence[str],
    *,
    model: Path | None,
    params: Path,
    form: Form,
    top: int,
    on_bad_image: OnBadImage,
) -> None:
    """Prints what the model says of each image that is named; tells of bad ones on stderr, one by one.

    The model is that of a folder, or where none is named the export of the parameters.

    Raises:
        ConfigError: standard output is closed; or no model is named, and no parameters are there to name it.
        DataError: there is no model, no image or no good one; or one is bad and on_bad_image is fail.
        Interrupted: a signal came.
    """
    if sys.stdout is None:
        raise ConfigError("standard output is closed (>&-), so no answer could be printed; send it somewhere")
    try:
        with process.interruptible():
            images = sources.named(arguments)
            if not images:
                raise DataError(f"no image in {', '.join(map(printable, arguments))}; nothing to predict")
            classifier = _loaded(model or _export(params))
            # Importing TensorFlow was seen to swallow the exception of a signal.
            process.raise_if_signalled()
            _judge(_print(classifier, images, form, top), on_bad_image)
    except Interrupted as error:
        name = str(error).partition(" ")[0]
        raise Interrupted(f"{name} came; what was printed until then holds; run it again") from None
    except BrokenPipeError:
        # Who read has read enough; otherwise the interpreter would try again at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print(classifier: "Classifier", images: Images, form: Form, top: int) -> _Count:
    """Prints the answers; how many there are."""
    # Names may hold what the encoding of the terminal, or any, does not.
    printed = cast(io.TextIOWrapper, sys.stdout)
    if form == "csv":
        printed.reconfigure(encoding="utf-8", errors="surrogateescape")
    else:
        printed.reconfigure(errors="backslashreplace")
    count = _Count()
    with _watched(len(images)) as (advance, tell):
        FORMS[form](_answers(classifier, images, top, count, advance, tell), sys.stdout)
        sys.stdout.flush()
    return count


def _export(params: Path) -> Path:
    if not params.exists():
        raise ConfigError(f"{params} does not exist, and would say where the model is; name one with --model")
    return config.load(params).paths.export


def _loaded(folder: Path) -> "Classifier":
    with tempfile.TemporaryDirectory() as work:
        exports = tensorflow_process.import_module("perennial.prediction.exports", Path(work))
    loaded: Classifier = exports.load(folder)
    return loaded


def _answers(
    classifier: "Classifier",
    images: Images,
    top: int,
    count: _Count,
    advance: Callable[[], object],
    tell: Callable[[str], object],
) -> Iterator[tuple[str, Prediction | BadImage]]:
    """The answers with the names of their images, counted; bad images are told of."""
    with closing(classifier.answers(images, top)) as answers:
        for image, answer in zip(images, answers, strict=True):
            count.images += 1
            if isinstance(answer, BadImage):
                count.bad += 1
                tell(printable(f"{image.name}: {answer.reason}"))
            advance()
            yield image.name, answer


def _judge(count: _Count, on_bad_image: OnBadImage) -> None:
    seconds = time.monotonic() - count.started
    if count.bad == count.images:
        raise DataError(f"no image could be judged; all {count.images} are named above with the reason")
    if count.bad and on_bad_image == "fail":
        raise DataError(
            f"{count.bad} of {count.images} images could not be judged and are named above; the others were; "
            "--on-bad-image skip makes this no failure"
        )
    if count.images > 1:
        skipped = f", {count.bad} skipped" if count.bad else ""
        log.info("%d images in %.1f s%s", count.images, seconds, skipped)


@contextmanager
def _watched(total: int) -> Iterator[tuple[Callable[[], object], Callable[[str], object]]]:
    """Gives who is told of every image, and of every bad one.

    A bar shows them to a person who watches, unless the answers themselves do.
    """
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield (lambda: None), log.warning
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True, highlight=False, markup=False)
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as shown:
        task = shown.add_task("predict", total=total)
        yield (lambda: shown.advance(task)), lambda text: console.print(f"predict: {text}", soft_wrap=True)
