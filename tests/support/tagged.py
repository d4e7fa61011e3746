"""Small pictures of up to three digits, and the table of their labels."""

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import PIL.Image
from sklearn.datasets import load_digits

CLASSES = 4  # the digits 0 to 3
VALUES: Mapping[str, object] = {
    "dataset.name": "image_folder", "dataset.task": "multilabel", "dataset.path": "tagged",
    "dataset.digests": "record",
    "dataset.table": {"path": "tags.csv", "file": "file", "label": "tags", "split": "split", "separator": "|"},
    "gate.min_accuracy": None, "train.stop_metric": "map", "validate.severity.near_duplicate": "ignore",
}  # fmt: skip


def write(folder: Path, **sizes: int) -> None:
    """Write so many pictures of each split, 8 x 24 pixels, of 0 to 3 digits."""
    images, digits = load_digits(return_X_y=True)
    rows = np.flatnonzero(digits < CLASSES)
    random = np.random.default_rng(0)
    folder.mkdir(parents=True)
    with (folder / "tags.csv").open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["file", "tags", "split"])
        for split, size in sizes.items():
            for number in range(size):
                chosen = random.choice(rows, random.integers(0 if number % 9 == 0 else 1, 4))
                picture = np.zeros((8, 24), np.uint8)
                for place, row in zip(random.permutation(3), chosen, strict=False):
                    picture[:, 8 * place : 8 * place + 8] = 15 * images[row].reshape(8, 8)
                picture[0] = random.integers(0, 60, 24)  # no two are equal
                name = f"{split}{number}.png"
                PIL.Image.fromarray(picture).save(folder / name)
                table.writerow([name, "|".join(map(str, sorted({*digits[chosen].tolist()}))), split])
