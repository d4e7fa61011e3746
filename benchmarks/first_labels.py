"""What the first labels of a set of images teach, by which images they are of.

Of the UCI digits and of CIFAR-10 as JPEG files (CIFAR10_IMAGES), 20 to 200 images get a label: typical ones as
`perennial label` chooses them, random ones, those with the smallest margin of a model of the labels so far, and
half random, half typical ones. A logistic regression on the same features without a network then answers other
images. REPEATS (default 10) is the number of draws of 1,000 or 2,000 images to choose from.
"""

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from benchmarks import results
from perennial.live.label import typical

REPEATS = int(os.environ.get("REPEATS", "10"))
LABELS = (20, 50, 100, 200)
PER_CLASS = {"train": 300, "test": 100}  # JPEG files
POOLS = {"digits": 1000, "CIFAR-10": 2000}
Rows = NDArray[np.int64]
ORDERS: dict[int, Rows] = {}  # of typical images, by seed, for both ways that use it


def measure() -> None:
    """Labels, trains, prints a table and writes the results."""
    sets = {"digits": _digits, "CIFAR-10": _cifar10}
    if "CIFAR10_IMAGES" not in os.environ:
        sets.pop("CIFAR-10")
    rows = {name: _rows(name, *read()) for name, read in sets.items()}
    for name, found in rows.items():
        print(f"\n{name}, accuracy with {', '.join(map(str, LABELS))} labels")
        for way, scores in found.items():
            print(f"  {way:<24}" + "".join(f"{each['mean']:>8.1%}" for each in scores))
    results.write("first_labels", rows=rows, repeats=REPEATS, labels=LABELS, pools=POOLS)


def _rows(name: str, train: Any, train_labels: Rows, test: Any, test_labels: Rows) -> dict[str, Any]:
    """The accuracy of each way and number of labels."""
    found = {way: [list[float]() for _ in LABELS] for way in WAYS}
    ORDERS.clear()
    for seed in range(REPEATS):
        pool = np.random.default_rng(seed).permutation(len(train))[: POOLS[name]]
        images, labels = train[pool], train_labels[pool]
        for way, choose in WAYS.items():
            for scores, rows in zip(found[way], choose(images, labels, seed), strict=True):
                scores.append(float(_model(images, labels, rows).score(test, test_labels)))
    return {
        way: [{"mean": mean(scores), "deviation": stdev(scores)} for scores in of_way]
        for way, of_way in found.items()
    }


def _model(images: Any, labels: Rows, rows: Rows) -> Any:
    return LogisticRegression(max_iter=300).fit(images[rows] / 10, labels[rows])


def _typical(images: Any, _: Rows, seed: int) -> Iterator[Rows]:
    if seed not in ORDERS:
        ORDERS[seed] = np.array(typical.order(images, 0, max(LABELS), seed))
    return (ORDERS[seed][:count] for count in LABELS)


def _random(images: Any, _: Rows, seed: int) -> Iterator[Rows]:
    order = np.random.default_rng((seed, 1)).permutation(len(images))
    return (order[:count] for count in LABELS)


def _both(images: Any, labels: Rows, seed: int) -> Iterator[Rows]:
    """Half random, half typical ones, as in a queue."""
    ways = zip(_typical(images, labels, seed), _random(images, labels, seed), strict=True)
    for chosen, drawn in ways:
        half = chosen[: len(chosen) // 2]
        yield np.concatenate((half, np.setdiff1d(drawn, half, assume_unique=True)[: len(half)]))


def _margin(images: Any, labels: Rows, seed: int) -> Iterator[Rows]:
    """Ten random ones, then those with the smallest margin: ten at a time, from 50 on 25."""
    rows = np.random.default_rng((seed, 1)).permutation(len(images))[:10]
    for count in LABELS:
        while len(rows) < count:
            model = _model(images, labels, rows)
            shares = np.sort(model.predict_proba(images / 10), axis=1)
            margins = shares[:, -1] - shares[:, -2]
            margins[rows] = np.inf
            rows = np.concatenate((rows, margins.argsort()[: 10 if len(rows) < 50 else 25]))
        yield rows


WAYS: dict[str, Callable[[Any, Rows, int], Iterator[Rows]]] = {
    "typical": _typical,
    "random": _random,
    "margin": _margin,
    "half random, half typical": _both,
}


def _digits() -> tuple[Any, Rows, Any, Rows]:
    found = load_digits()
    images = [PIL.Image.fromarray(np.uint8(each * 15)) for each in found.images]
    values = typical.features(np.stack([_small(each) for each in images]))
    test = np.arange(len(images)) % 3 == 0
    return values[~test], found.target[~test], values[test], found.target[test]


def _cifar10() -> tuple[Any, Rows, Any, Rows]:
    folder = Path(os.environ["CIFAR10_IMAGES"])
    classes = sorted(each.name for each in (folder / "train").iterdir())
    files = {
        split: [(file, label) for label, name in enumerate(classes)
                for file in sorted((folder / split / name).glob("*.jpg"))[:count]]
        for split, count in PER_CLASS.items()
    }  # fmt: skip
    both = [*files["train"], *files["test"]]
    values = typical.features(np.stack([_small(PIL.Image.open(file)) for file, _ in both]))
    labels, count = np.array([label for _, label in both]), len(files["train"])
    return values[:count], labels[:count], values[count:], labels[count:]


def _small(image: PIL.Image.Image) -> Any:
    """The picture that the program compares."""
    stream = io.BytesIO()
    image.convert("RGB").save(stream, "PNG")
    return typical.small_picture(stream.getvalue())


if __name__ == "__main__":
    measure()
