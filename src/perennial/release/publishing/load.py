"""Find and load an export."""

import math
import os
from pathlib import Path
from typing import Any

from perennial.base import documents
from perennial.base.choices import Transparency, is_bucket
from perennial.base.errors import DataError
from perennial.model.export import graphs, loading, reference
from perennial.model.export.saved_model import CLASSIFY, CLASSIFY_BYTES
from perennial.model.export_layout import CARD, DESCRIPTION, GRAPH, LABELS
from perennial.model.inference.classifier import Classifier
from perennial.model.inference.image_inputs import PixelBudget
from perennial.release.publishing import fetch_version
from perennial.release.publishing.version_layout import CURRENT


def load(path: str | os.PathLike[str], *, budget: PixelBudget | None = None) -> Classifier:
    """Load the model of an export, of a published version, or of the current version in a folder or at a URL.

    A version at an S3 URL is first fetched into the user's cache folder and verified. `budget` limits the
    pixels that the classifier decodes at a time.

    Raises:
        DataError: there is no model, or it is incomplete.
        OSError: a file cannot be read; it and TensorFlow's errors of memory and devices may pass.
    """
    location = os.fspath(path)
    folder = fetch_version.cached(location) if is_bucket(location) else _require_export(Path(location))
    classes = _classes(folder / LABELS)
    model = loading.load(folder)
    if missing := ", ".join(sorted({CLASSIFY, CLASSIFY_BYTES}.difference(model.signatures))):
        raise DataError(f"{folder} has no signature {missing}; is it an export of perennial?")
    count = model.signatures[CLASSIFY_BYTES].structured_outputs["probabilities"].shape[-1]
    if count != len(classes):
        raise DataError(f"{folder} predicts {count} classes, but {LABELS} names {len(classes)}")
    several = graphs.LABELS in model.signatures[CLASSIFY_BYTES].structured_outputs
    transparency, max_side = _as_in_records(folder / CARD)
    mark = reference.mark(folder) if hasattr(model, "statistics") else None
    threshold, thresholds = _thresholds(folder / DESCRIPTION, len(classes) if several else None)
    known: dict[str, Any] = {"transparency": transparency, "max_side": max_side, "reference": mark}
    return Classifier(model, classes, budget=budget, threshold=threshold, thresholds=thresholds, **known)


def find_export(path: Path) -> Path | None:
    """Find the export at a path, or the current version of a publish folder; the result has no links."""
    for folder in (path, path / CURRENT):
        if (folder / GRAPH).is_file():
            return folder.resolve()
    return None


def _require_export(path: Path) -> Path:
    if folder := find_export(path):
        return folder
    if not path.is_dir():
        raise DataError(f"{path} does not exist; `dvc repro export` makes the export, --model names another")
    raise DataError(f"{path} holds neither {GRAPH} nor {CURRENT}/{GRAPH}; name an export or a publish folder")


def _as_in_records(card: Path) -> tuple[Transparency, int | None]:
    """What convert did to transparent and to large images, by the model card; nothing in older exports."""
    try:
        given = documents.read_json(card)["input"]
        transparency, max_side = given["transparency"], given.get("max_side")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, DataError):
        return "drop", None
    return "white" if transparency == "white" else "drop", max_side if isinstance(max_side, int) else None


def _thresholds(file: Path, labels: int | None) -> tuple[float | None, list[float] | None]:
    """From which confidence the model answers (None: every image), and from which probability each label is."""
    # `labels`: their number if an image may have several; else there is no probability of each.
    if labels is None and not file.exists():  # a model without assets.extra
        return None, None
    try:
        found = documents.read_json(file).get("confidence", {})
        if (least := found.get("abstention")) is not None:
            least = math.inf if least["threshold"] is None else float(least["threshold"])
        each = None if labels is None else [float(one) for one in found["thresholds"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{file} has no valid confidence: {error!r}; export the model again") from error
    if each is not None and len(each) != labels:
        raise DataError(f"{file} has {len(each)} thresholds for {labels} classes; export the model again")
    return least, each


def _classes(file: Path) -> list[str]:
    """Read the names in labels.txt, from lines such as `0:zero` in index order."""
    try:
        lines = file.read_bytes().decode().split("\n")[:-1]  # a name may hold any other line separator
        indices, names = zip(*(line.split(":", 1) for line in lines), strict=True)
    except (FileNotFoundError, ValueError) as error:
        raise DataError(f"{file} does not list the classes: {error}") from error
    if list(indices) != [str(index) for index in range(len(names))]:
        raise DataError(f"{file} does not number the classes from 0")
    return list(names)
