"""What an export makes of images with and without drift: `drift_pools PROJECT IMAGES OUT` writes an .npz file.

For each pool of images it holds the penultimate values, the random features, the predictions and the labels.
"""

import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import PIL.Image
import PIL.ImageEnhance
import PIL.ImageFilter
from numpy.typing import NDArray

NEW = ("deer", "truck")  # classes that the model does not know
TRAINED, TESTED = 2500, 100  # images of each other class in the project, by name
DRIFTED = 3000  # images of each drift
BATCH = 100
Image = PIL.Image.Image


def _noise(deviation: float) -> Callable[[Image], Image]:
    random = np.random.default_rng(0)

    def change(image: Image) -> Image:
        pixels = np.asarray(image, np.float32)
        noisy = pixels + random.normal(0, deviation, pixels.shape)
        return PIL.Image.fromarray(noisy.clip(0, 255).round().astype(np.uint8))

    return change


def _jpeg(quality: int) -> Callable[[Image], Image]:
    def change(image: Image) -> Image:
        image.save(stream := io.BytesIO(), "JPEG", quality=quality)
        return PIL.Image.open(stream).convert("RGB")

    return change


CHANGES: dict[str, Callable[[Image], Image]] = {
    "blur, radius 0.5": lambda image: image.filter(PIL.ImageFilter.GaussianBlur(0.5)),
    "blur, radius 1": lambda image: image.filter(PIL.ImageFilter.GaussianBlur(1)),
    "noise, deviation 8": _noise(8),
    "noise, deviation 16": _noise(16),
    "brightness times 0.8": lambda image: PIL.ImageEnhance.Brightness(image).enhance(0.8),
    "brightness times 0.6": lambda image: PIL.ImageEnhance.Brightness(image).enhance(0.6),
    "contrast times 0.8": lambda image: PIL.ImageEnhance.Contrast(image).enhance(0.8),
    "contrast times 0.6": lambda image: PIL.ImageEnhance.Contrast(image).enhance(0.6),
    "JPEG of quality 30": _jpeg(30),
}


def main() -> None:
    """Measures the pools."""
    import tensorflow as tf  # noqa: PLC0415

    from perennial.model.export import features, reference  # noqa: PLC0415 - imports TensorFlow
    from perennial.model.models import model_folder  # noqa: PLC0415

    project, images, out = map(Path, sys.argv[1:])
    export = project / "models" / "export"
    model, description = model_folder.load_export(export)
    bandwidth = reference.load(export).bandwidth
    measured = tf.function(
        features.Measured(model, description), [tf.TensorSpec((None,), tf.string)], autograph=False
    )
    arrays: dict[str, NDArray[np.generic]] = {}

    def add(name: str, contents: Sequence[bytes], labels: Sequence[int]) -> None:
        parts = [measured(tf.constant(contents[at : at + BATCH])) for at in range(0, len(contents), BATCH)]
        values = np.concatenate([part.penultimate for part in parts])
        arrays[f"{name}/penultimate"] = values
        arrays[f"{name}/features"] = features.random_features(tf.constant(values), bandwidth).numpy()
        arrays[f"{name}/predicted"] = np.concatenate([part.logits for part in parts]).argmax(axis=1)
        arrays[f"{name}/labels"] = np.array(labels)
        print(f"drift: measured {len(values):,} images: {name}", flush=True)

    held, labels = _held_out(images, description.classes)
    add("held out", [file.read_bytes() for file in held], labels)
    new = [file for name in NEW for file in sorted((images / "train" / name).iterdir())[: DRIFTED // len(NEW)]]
    add("new", [file.read_bytes() for file in new], [-1] * len(new))
    for name, change in CHANGES.items():
        changed = [_png(change(PIL.Image.open(file).convert("RGB"))) for file in held[:DRIFTED]]
        add(name, changed, labels[:DRIFTED])
    np.savez(out, allow_pickle=False, **arrays)


def chosen(images: Path) -> list[tuple[Path, str]]:
    """The images of the project, with the folders that they belong into."""
    found = []
    for split, count in (("train", TRAINED), ("test", TESTED)):
        for folder in sorted((images / split).iterdir()):
            if folder.name not in NEW:
                found += [(file, f"{split}/{folder.name}") for file in sorted(folder.iterdir())[:count]]
    return found


def _held_out(images: Path, classes: Sequence[str]) -> tuple[list[Path], list[int]]:
    """The other images of the classes that the model knows, in random order."""
    used = {file for file, _ in chosen(images)}
    pairs = [
        (file, classes.index(file.parent.name))
        for file in sorted(images.glob("*/*/*"))
        if file.parent.name not in NEW and file not in used
    ]
    order = np.random.default_rng(0).permutation(len(pairs)).tolist()
    return [pairs[at][0] for at in order], [pairs[at][1] for at in order]


def _png(image: Image) -> bytes:
    image.save(stream := io.BytesIO(), "PNG", compress_level=1)
    return stream.getvalue()


if __name__ == "__main__":
    main()
