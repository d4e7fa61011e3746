"""Finding and loading an export."""

from pathlib import Path

import tensorflow as tf

from perennial.errors import DataError
from perennial.formats import location, saved_model
from perennial.formats.location import GRAPH
from perennial.prediction.classifier import Classifier
from perennial.published import CURRENT

LABELS = Path("assets") / "labels.txt"
SIGNATURES = {"classify", "classify_bytes"}


def load(path: Path) -> Classifier:
    """The model of an export folder, of a version, or of the current version of a publish folder.

    Raises:
        DataError: there is none, or it is not whole.
    """
    folder = _found(path)
    classes = _classes(folder / LABELS)
    try:
        model = saved_model.loaded(folder)
    except (OSError, ValueError, LookupError, TypeError, tf.errors.OpError) as error:
        raise DataError(f"{folder} holds no model that TensorFlow {tf.__version__} loads: {error}") from error
    if missing := SIGNATURES.difference(model.signatures):
        raise DataError(
            f"{folder} has no signature {', '.join(sorted(missing))}; is it an export of perennial?"
        )
    count = model.signatures["classify_bytes"].structured_outputs["probabilities"].shape[-1]
    if count != len(classes):
        raise DataError(f"{folder} tells {count} classes apart, but {LABELS} names {len(classes)}")
    return Classifier(model, classes)


def _found(path: Path) -> Path:
    if folder := location.found(path):
        return folder
    if not path.is_dir():
        raise DataError(f"{path} does not exist; `dvc repro export` makes the export, --model names another")
    raise DataError(f"{path} holds neither {GRAPH} nor {CURRENT}/{GRAPH}; name an export or a publish folder")


def _classes(file: Path) -> list[str]:
    """The names in labels.txt, lines `0:zero` in the order of their numbers."""
    try:
        lines = file.read_bytes().decode().split("\n")[:-1]  # a name may hold any other end of a line
        numbers, names = zip(*(line.split(":", 1) for line in lines), strict=True)
    except (OSError, ValueError) as error:
        raise DataError(f"{file} does not name the classes: {error}") from error
    if list(numbers) != [str(number) for number in range(len(names))]:
        raise DataError(f"{file} does not number the classes from 0")
    return list(names)
