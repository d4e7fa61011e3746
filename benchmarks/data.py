"""Original files to convert: those of a folder that the environment names, or generated ones in their format.

No two generated images are equal: a check for duplicates finds none, as in the real data.
"""

import gzip
import hashlib
import io
import math
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

from benchmarks.timing import ROOT, SCALE

FLOWERS = {"daisy": 633, "dandelion": 898, "roses": 641, "sunflowers": 699, "tulips": 799}  # the original's
PHOTOGRAPH = (333, 500)  # height and width, pixels
LARGE = (4000, 3000)  # width and height of photographs of 12 megapixels
JPEG_QUALITY = 90  # about 60 KB for a generated photograph
CHUNK = 10_000  # images made at once
Pixels = NDArray[np.uint8]


def mnist(train: int = 60_000, test: int = 10_000, *, side: int = 28) -> Path:
    """A folder with MNIST's four files: digits of `side` pixels, grey."""
    if named := _named("MNIST_FOLDER", standard=(train, test, side) == (60_000, 10_000, 28)):
        return named
    counts = {"train": scaled(train), "t10k": scaled(test)}

    def write(folder: Path) -> None:
        for seed, (split, count) in enumerate(counts.items()):
            images = folder / f"{split}-images-idx3-ubyte.gz"
            labels = folder / f"{split}-labels-idx1-ubyte.gz"
            with gzip.open(images, "wb", 1) as pixels, gzip.open(labels, "wb", 1) as classes:
                pixels.write(bytes((0, 0, 8, 3)) + np.array([count, side, side], ">u4").tobytes())
                classes.write(bytes((0, 0, 8, 1)) + np.array([count], ">u4").tobytes())
                for some, theirs in _digits(count, side, seed):
                    pixels.write(some.tobytes())
                    classes.write(theirs.tobytes())

    return _kept(f"mnist-{counts['train']}-{counts['t10k']}-{side}", write)


def cifar10() -> Path:
    """A folder with CIFAR-10's archive in its binary layout."""
    if named := _named("CIFAR10_FOLDER"):
        return named
    names = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]
    each = scaled(10_000)

    def write(folder: Path) -> None:
        classes = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
        bodies = {name: _cifar_batch(each, seed) for seed, name in enumerate(names)}
        bodies["batches.meta.txt"] = ("\n".join(classes) + "\n\n").encode()
        with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz", compresslevel=1) as archive:
            for name, body in bodies.items():
                _add(archive, f"cifar-10-batches-bin/{name}", body)

    return _kept(f"cifar10-tinted-{each}", write)


def flowers(*, distinct: bool = False) -> Path:
    """A folder with flower_photos.tgz, 3,670 photographs.

    The photographs of a smaller archive come again, each with a comment of its own; with `distinct` they
    are generated instead.
    """
    count = scaled(sum(FLOWERS.values()))
    if named := _named("FLOWERS_FOLDER"):
        archive = named / "flower_photos.tgz"
        photographs = _photographs(archive)
        if sum(map(len, photographs.values())) >= count:
            return named
        if not distinct:
            digest = hashlib.sha256(archive.read_bytes()).hexdigest()[:8]
            return _kept(f"flowers-{digest}", lambda folder: _archive(folder, _repeated(photographs)))
    return _kept(f"flowers-tinted-{count}", lambda folder: _archive(folder, _generated()))


def large_photographs(per_class: int = 8) -> Path:
    """A folder with a flower_photos.tgz of photographs of 12 megapixels, enlarged from small ones."""

    def bodies() -> Iterator[tuple[str, bytes]]:
        for number, body in enumerate(photographs(len(FLOWERS), per_class)):
            file = io.BytesIO()
            enlarged = Image.open(io.BytesIO(body)).resize(LARGE, Image.Resampling.BICUBIC)
            enlarged.save(file, "jpeg", quality=JPEG_QUALITY)
            yield f"{list(FLOWERS)[number // per_class]}/{number:05}.jpg", file.getvalue()

    return _kept(f"flowers-large-{per_class}", lambda folder: _archive(folder, bodies()))


def photographs(classes: int, per_class: int) -> Iterator[bytes]:
    """Different JPEG files, class after class: of FLOWERS_FOLDER if that has as many, else generated."""
    if (named := _named("FLOWERS_FOLDER")) and classes == len(FLOWERS):
        found = _photographs(named / "flower_photos.tgz")
        if min(map(len, found.values())) >= per_class:
            yield from chain.from_iterable(bodies[:per_class] for bodies in found.values())
            return
    random = np.random.default_rng(0)
    scenes = [_scene(random) for _ in range(20)]
    for number in range(classes * per_class):
        yield _photograph(scenes, random, _tint(number // per_class, classes))


def origins() -> dict[str, str]:
    """Where the data sets come from."""
    named = {name: _named(f"{name.upper()}_FOLDER") for name in ("mnist", "cifar10", "flowers")}
    return {name: "named folder" if folder else "generated" for name, folder in named.items()}


def scaled(count: int) -> int:
    """A number of examples, times SCALE; enough for a few of each class."""
    return max(round(count * SCALE), 60)


def _named(variable: str, *, standard: bool = True) -> Path | None:
    folder = os.environ.get(variable)
    return Path(folder).resolve() if folder and standard and SCALE == 1 else None


def _kept(name: str, write: Callable[[Path], None]) -> Path:
    """The folder of this name; made whole or not at all."""
    folder = ROOT / ".work" / "benchmarks" / "data" / name
    if not folder.exists():
        print(f"generating {folder.relative_to(ROOT)} (once)", flush=True)
        unfinished = folder.with_name(f"{name}.part")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        write(unfinished)
        unfinished.rename(folder)
    return folder


def _digits(count: int, side: int, seed: int) -> Iterator[tuple[Pixels, Pixels]]:
    """Images uint8 [n, side, side] and labels uint8 [n], a chunk at a time."""
    source = load_digits()
    random = np.random.default_rng(seed)
    times = max((side - 4) // 8, 1)
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)
        chosen = random.integers(len(source.target), size=size)
        ink = np.repeat(np.repeat(source.images[chosen] * 15.9, times, axis=1), times, axis=2)
        pixels = np.zeros((size, side, side), np.uint8)
        top, left = random.integers(side - 8 * times + 1, size=2)
        pixels[:, top : top + 8 * times, left : left + 8 * times] = ink
        pixels[:, side // 2] ^= random.integers(32, size=(size, side), dtype=np.uint8)  # makes each unique
        yield pixels, source.target[chosen].astype(np.uint8)


def _cifar_batch(count: int, seed: int) -> bytes:
    """Records of a label byte and planes of 32x32 R, G, B; patches under noise compress like photographs."""
    random = np.random.default_rng(seed)
    labels = (np.arange(count) % 10).astype(np.uint8)
    tints = np.array([_tint(int(label), 10) for label in labels])[:, :, None, None]
    patches = random.integers(30, 226, size=(count, 3, 8, 8)).repeat(4, axis=2).repeat(4, axis=3)
    planes = (patches * tints + random.normal(0, 8, size=patches.shape)).clip(0, 255).astype(np.uint8)
    return np.concatenate([labels[:, None], planes.reshape(count, -1)], axis=1).tobytes()


def _generated() -> Iterator[tuple[str, bytes]]:
    """Photograph-like JPEG files: noise whose strength falls with its frequency, as in photographs."""
    random = np.random.default_rng(0)
    scenes = [_scene(random) for _ in range(20)]
    for label, (name, count) in enumerate(FLOWERS.items()):
        for number in range(math.ceil(count * SCALE)):
            yield f"{name}/{number:05}.jpg", _photograph(scenes, random, _tint(label, len(FLOWERS)))


def _photograph(scenes: list[Pixels], random: np.random.Generator, tint: NDArray[np.float64]) -> bytes:
    shift = random.integers(PHOTOGRAPH[0]), random.integers(PHOTOGRAPH[1])
    pixels = (np.roll(scenes[random.integers(len(scenes))], shift, axis=(0, 1)) * tint).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "jpeg", quality=JPEG_QUALITY)
    return file.getvalue()


def _tint(label: int, classes: int) -> NDArray[np.float64]:
    """What the red, green and blue of a class are multiplied by, so that a network can learn the classes."""
    hue = np.array([0, 1, 2]) / 3 + label / classes
    return 0.75 + 0.25 * np.cos(2 * np.pi * hue)


def _scene(random: np.random.Generator) -> Pixels:
    height, width = PHOTOGRAPH
    pixels = np.full((height, width, 3), 128.0)
    for octave in range(1, 9):
        cells = random.integers(256, size=(2**octave, 2**octave, 3), dtype=np.uint8)
        layer = Image.fromarray(cells).resize((width, height), Image.Resampling.BICUBIC)
        pixels += (np.asarray(layer, float) - 128) * 0.7 / 1.25**octave
    return pixels.clip(0, 255).astype(np.uint8)


def _photographs(archive: Path) -> dict[str, list[bytes]]:
    """The photographs of each class, in the order of their names."""
    found: dict[str, dict[str, bytes]] = {}
    with tarfile.open(archive) as members:
        for member in members:
            if member.isfile() and member.name.endswith(".jpg"):
                content, label = members.extractfile(member), member.name.split("/")[-2]
                found.setdefault(label, {})[member.name] = content.read() if content else b""
    return {name: [files[file] for file in sorted(files)] for name, files in found.items()}


def _repeated(photographs: dict[str, list[bytes]]) -> Iterator[tuple[str, bytes]]:
    """As many of each class as the original archive has, each with a comment segment of its own."""
    for name, count in FLOWERS.items():
        for number in range(count):
            jpeg, comment = photographs[name][number % len(photographs[name])], f"{number:08}".encode()
            segment = b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment
            yield f"{name}/{number:05}.jpg", jpeg[:2] + segment + jpeg[2:]


def _archive(folder: Path, photographs: Iterator[tuple[str, bytes]]) -> None:
    with tarfile.open(folder / "flower_photos.tgz", "w:gz", compresslevel=1) as archive:
        for name, body in photographs:
            _add(archive, f"flower_photos/{name}", body)


def _add(archive: tarfile.TarFile, name: str, body: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(body)
    archive.addfile(member, io.BytesIO(body))
