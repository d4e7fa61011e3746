"""What the scored model said of each example of a split, as one NumPy archive."""

import io
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial import files
from perennial.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """One row an example, in the order of the manifest, with what they are of."""

    labels: NDArray[np.int64]  # [N]
    probabilities: NDArray[np.float32]  # [N, classes], as the model gave them
    classes: tuple[str, ...]
    split: str
    data: str  # digest of the manifest
    model: str  # digest of the weights

    def write(self, file: Path) -> None:
        """Writes a NumPy archive whose bytes depend on nothing else."""
        content = io.BytesIO()
        np.savez_compressed(
            content,
            labels=self.labels,
            probabilities=self.probabilities,
            predicted=self.probabilities.argmax(axis=1),
            classes=np.array(self.classes),
            split=np.array(self.split),
            data=np.array(self.data),
            model=np.array(self.model),
        )
        files.write_bytes(file, content.getvalue())


def read(file: Path) -> Predictions:
    """The predictions that `write` wrote.

    Raises:
        DataError: the file is not there or holds no predictions.
    """
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            return Predictions(
                labels=arrays["labels"],
                probabilities=arrays["probabilities"],
                classes=tuple(arrays["classes"].tolist()),
                split=str(arrays["split"]),
                data=str(arrays["data"]),
                model=str(arrays["model"]),
            )
    except FileNotFoundError as error:
        raise DataError(f"{file} does not exist; `dvc repro evaluate` makes it") from error
    except (ValueError, LookupError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{file} holds no predictions: {error}; `dvc repro -f evaluate` makes it anew"
        ) from error
