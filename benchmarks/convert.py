"""Original files into TFRecord shards: perennial against TensorFlow Datasets and a plain loop of TensorFlow's.

Perennial stores pixels without compression, TensorFlow Datasets and the loop compress them by default. A second
loop stores them too, which is the same work as ours; the bytes that each program wrote stand beside its time.
Photographs are not encoded again, so there the measure is a program that only decodes each of them once.
"""

import gzip
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import data, peers, projects, results
from benchmarks.timing import PERENNIAL, Case, Program, compare

Arrays = dict[str, tuple[NDArray[np.uint8], NDArray[np.uint8]]]


def measure() -> None:
    """Measures every data set and writes the results."""
    cases = {}
    with projects.scratch() as folder:
        originals = {"mnist": data.mnist(), "cifar10": data.cifar10(), "flowers": data.flowers()}
        built = (
            arrays_case("mnist", originals["mnist"], _mnist(originals["mnist"]), folder / "mnist"),
            arrays_case("cifar10", originals["cifar10"], _cifar10(originals["cifar10"]), folder / "cifar10"),
            flowers_case(originals["flowers"], folder / "flowers"),
        )
        for case in built:
            cases[case.name] = compare(case)
    versions = peers.versions("tensorflow-cpu", "tensorflow-datasets", "pillow", "numpy")
    results.write("convert", cases=cases, peer_versions=versions, data=data.origins())


def arrays_case(dataset: str, originals: Path, arrays: Arrays, folder: Path) -> Case:
    """Ours, from the original files, against peers that are given the same images as arrays, uncompressed."""
    project = projects.downloaded(folder / "perennial", dataset, originals)
    given = folder / "arrays"
    given.mkdir()
    for split, (images, labels) in arrays.items():
        np.save(given / f"{split}_images.npy", images)
        np.save(given / f"{split}_labels.npy", labels)
    examples = sum(len(labels) for _, labels in arrays.values())
    programs = [_ours(project, examples)]
    for name, program, options in (
        ("TFDS", "tfds_build", ()),
        ("encode_png loop", "png_loop", (-1,)),
        ("encode_png, stored", "png_loop", (0,)),
    ):
        out = folder / name
        programs.append(
            Program(
                name=name,
                command=peers.command(program, given, out, *options),
                folder=folder,
                outputs=(out,),
                verify=_holds(out, examples),
            )
        )
    targets = {"TFDS": 12 if dataset == "mnist" else 9, "encode_png loop": 6, "encode_png, stored": 6}
    return Case(name=f"convert {dataset}", programs=programs, targets=targets)


def flowers_case(originals: Path, folder: Path) -> Case:
    """Ours, from the archive, against Pillow on every core: on extracted photographs, and on the archive."""
    project = projects.downloaded(folder / "perennial", "flowers", originals)
    extracted = folder / "extracted"
    with tarfile.open(originals / "flower_photos.tgz") as archive:
        archive.extractall(extracted, filter="data")
    examples = sum(1 for _ in extracted.rglob("*.jpg"))

    def decoded(printed: str) -> None:
        assert printed.split(maxsplit=1)[0] == str(examples), f"it decoded {printed}, expected {examples}"

    def pillow(name: str, program: str, source: Path) -> Program:
        return Program(name=name, command=peers.command(program, source), folder=folder, verify=decoded)

    programs = [
        _ours(project, examples),
        pillow("Pillow, every core", "pillow_files", extracted),
        pillow("Pillow, from the archive", "pillow_archive", originals / "flower_photos.tgz"),
    ]
    return Case(name="convert flowers", programs=programs, targets={"Pillow, every core": 0.75})


def _ours(project: Path, examples: int) -> Program:
    records = projects.records(project)
    return Program(
        name="perennial",
        command=(*PERENNIAL, "convert"),
        folder=project,
        outputs=(records,),
        verify=_holds(records, examples),
    )


def _holds(folder: Path, examples: int) -> Callable[[str], None]:
    def verify(_: str) -> None:
        found = projects.count_records(folder)
        assert found == examples, f"{folder} holds {found} records, expected {examples}"

    return verify


def _mnist(folder: Path) -> Arrays:
    arrays = {}
    for split, prefix in (("train", "train"), ("test", "t10k")):
        with gzip.open(folder / f"{prefix}-images-idx3-ubyte.gz") as images:
            pixels = np.frombuffer(images.read(), np.uint8, offset=16)
        with gzip.open(folder / f"{prefix}-labels-idx1-ubyte.gz") as labels:
            classes = np.frombuffer(labels.read(), np.uint8, offset=8)
        arrays[split] = pixels.reshape(len(classes), 28, 28, 1), classes
    return arrays


def _cifar10(folder: Path) -> Arrays:
    parts: dict[str, list[NDArray[np.uint8]]] = {"train": [], "test": []}
    with tarfile.open(folder / "cifar-10-binary.tar.gz") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.name.endswith(".bin") else None
            if content:
                rows = np.frombuffer(content.read(), np.uint8).reshape(-1, 1 + 3 * 32 * 32)
                parts["test" if "test" in member.name else "train"].append(rows)
    arrays = {}
    for split, batches in parts.items():
        rows = np.concatenate(batches)
        images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        arrays[split] = np.ascontiguousarray(images), rows[:, 0]
    return arrays
