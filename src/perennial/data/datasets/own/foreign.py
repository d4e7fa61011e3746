"""Formats that are not read: recognized by content or name, and refused by their own name with a remedy.

pointers of Git LFS              instead of images and tables
files that hold the images       Parquet, Arrow, WebDataset, HDF5, NumPy, LMDB, ...
a document for all images        Vertex AI, SageMaker Ground Truth, COCO, CVAT, Label Studio, ...
a document for each image        YOLO, Pascal VOC, LabelMe
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from perennial.base.errors import DataError, listed
from perennial.data.archives import Member
from perennial.data.archives.safety import IS_LFS, LFS
from perennial.data.datasets.own.names import TABLE, is_document_name

Files = Mapping[str, Member]
Read = Callable[[Member], bytes]  # the content of a file
LFS_BYTES = range(100, 200)  # of a pointer
TRIED = 50  # files that are read to recognize a format
MOST_BYTES = 64 << 20  # of a document that is read
SHOWN = 3
LINES_READ = 100  # of a text
ONE_CLASS = f"an image needs one class: {TABLE}"
FOLDERS = "save the images as files, in a folder for each class"
RECORDS = "write it as TFRecords, and set dataset.name to tfrecord"
LINES = "write its lines as a CSV file with the columns file and label"
UNPACK = "unpack them"
IDX = "set dataset.name to mnist, and dataset.base_url to their folder"
# By the end of the name, in lower case and without the number of a shard.
CONTAINERS = {
    ".parquet": ("Parquet, as of Hugging Face", FOLDERS), ".arrow": ("Arrow, as of Hugging Face", FOLDERS),
    ".array_record": ("ArrayRecord", RECORDS), ".riegeli": ("Riegeli", RECORDS), ".h5": ("HDF5", FOLDERS),
    ".hdf5": ("HDF5", FOLDERS), ".npz": ("NumPy", FOLDERS), ".npy": ("NumPy", FOLDERS),
    ".mdb": ("LMDB", FOLDERS), ".beton": ("FFCV", FOLDERS), ".rec": ("RecordIO, as of MXNet", FOLDERS),
    "-ubyte": ("IDX, as of MNIST", IDX), "-ubyte.gz": ("IDX, as of MNIST", IDX),
    ".mat": ("MATLAB", FOLDERS), ".pkl": ("pickle", FOLDERS), ".pickle": ("pickle", FOLDERS),
    ".lance": ("Lance", FOLDERS), ".tar": ("tar, as of WebDataset", f"unpack them; {FOLDERS}"),
    ".tgz": ("tar", UNPACK), ".tar.gz": ("tar", UNPACK), ".zip": ("zip", UNPACK), ".7z": ("7z", UNPACK),
    ".rar": ("rar", UNPACK),
}  # fmt: skip
MANIFESTS = (".json", ".jsonl")
TEXTS = {".json", ".jsonl", ".ndjson", ".manifest", ".txt", ".xml"}
TFDS = {"dataset_info.json", "features.json"}
_BOX = re.compile(r"\d+(?:\s+-?\d*\.?\d+(?:e-?\d+)?){4,}")
_XML = (
    (re.compile(r"<annotations\b.*<(?:meta|image|version)\b", re.DOTALL), "annotations of CVAT"),
    (re.compile(r"(?s)<annotation\b.*<(?:object|filename|size)\b"), "annotations of objects, as in Pascal VOC"),
)
# By the keys of a JSON object, of a line, or of the first of a list.
_KEYS = (
    ({"imageGcsUri"}, "an import manifest of Vertex AI", LINES),
    ({"source-ref"}, "an output manifest of SageMaker Ground Truth", LINES),
    ({"annotations", "images"}, "annotations of objects, as in COCO", ONE_CLASS),
    ({"annotations", "data"}, "tasks of Label Studio", "export them as CSV or JSON-MIN"),
    ({"annotations", "image"}, "annotations of objects, as of CreateML", ONE_CLASS),
    ({"shapes", "imagePath"}, "annotations of objects, as of LabelMe", ONE_CLASS),
    ({"objects", "size"}, "annotations of objects, as of Supervisely", ONE_CLASS),
    ({"data_row", "projects"}, "an export of Labelbox", LINES),
    ({"classes", "labels"}, "labels of FiftyOne", 'write {"1.jpg": "cat"}'),
    ({"regions", "filename"}, "annotations of objects, as of VGG Image Annotator", ONE_CLASS),
)


class ForeignFormat(DataError):
    """A document that other programs read, and that gives no labels here."""


def require_fetched(files: Files, read: Read, where: Path) -> None:
    """Check that no file is a pointer of Git LFS, by a sample of those as small."""
    small = [name for name, each in files.items() if not each.folder and each.size in LFS_BYTES]
    if missing := [name for name in _sample(small) if read(files[name]).startswith(LFS)]:
        raise DataError(f"{where}: {listed(map(repr, missing), SHOWN)}: {IS_LFS}")


def require_images(names: Sequence[str], where: Path) -> None:
    """Check that files of classes are not, by their names, files that hold images."""
    held = {name: what for name in names if (what := container(name))}
    if 2 * len(held) > len(names):
        raise DataError(f"{where}: {_counted(held, names, 'is', 'are')}")


def container(name: str) -> str | None:
    """Say what a file is by its name if it holds images in a format that is not read, and what to do."""
    lower = re.sub(r"[-_.]\d+-of-\d+", "", name.lower())
    known = (what for end, what in CONTAINERS.items() if lower.endswith(end))
    return next((f"in the format {kind}; {remedy}" for kind, remedy in known), None)


def require_table(name: str, text: str) -> None:
    """Check that a document is not one that other programs read."""
    if what := _document(name, text):
        raise ForeignFormat(f"{name!r} holds {what}")


def _document(name: str, text: str) -> str | None:
    """Say what a document is by its content if other programs read it, and what to do."""
    ending = PurePosixPath(name).suffix.lower()
    if ending == ".xml":
        return next((f"{kind}; {ONE_CLASS}" for form, kind in _XML if form.search(text)), None)
    if ending == ".txt":
        lines = text.splitlines()[:LINES_READ]
        boxes = lines and all(_BOX.fullmatch(line.strip()) for line in lines)
        return f"boxes of objects, as in YOLO; {ONE_CLASS}" if boxes else None
    keys = _keys(text)
    return next((f"{kind}; {remedy}" for needed, kind, remedy in _KEYS if needed <= keys), None)


def described(files: Files, read: Read) -> str | None:
    """Say in which format the data are that were not understood, and what to do."""
    names = [name for name, each in files.items() if not each.folder]
    if len(TFDS.intersection(PurePosixPath(name).name for name in names)) == len(TFDS):
        return "the folder is of TensorFlow Datasets; set dataset.name to tfrecord"
    held = {name: what for name in names if (what := container(name))}
    if held and len(held) >= sum(not is_document_name(name) for name in names if name not in held):
        return _counted(held, list(held), "is", "are")
    if tagged := [name for name in names if name.endswith(".cls")]:
        return f"{len(tagged)} files such as {tagged[0]!r} give classes, as of WebDataset; {FOLDERS}"
    texts = [name for name in names if PurePosixPath(name).suffix.lower() in TEXTS]
    readable = [name for name in _sample(texts) if files[name].size <= MOST_BYTES]
    kinds = {of: _document(of, read(files[of]).decode("utf-8-sig", "replace").strip()) for of in readable}
    found = {name: what for name, what in kinds.items() if what}
    if found:
        return _counted(found, texts, "holds", "hold")
    images = {PurePosixPath(name).stem for name in names if name not in texts}
    beside = [name for name in texts if PurePosixPath(name).name.split(".")[0] in images]
    if beside and 2 * len(beside) >= len(images):
        return f"{len(beside)} documents such as {beside[0]!r} are each of a single image; {ONE_CLASS}"
    return None


def _counted(found: Mapping[str, str], of: Sequence[str], verb: str, plural: str) -> str:
    """Name the first file of the most frequent kind, and the number of files that end like it."""
    kinds = list(found.values())
    kind = max(dict.fromkeys(kinds), key=kinds.count)
    first = next(name for name, what in found.items() if what == kind)
    count = sum(PurePosixPath(name).suffix == PurePosixPath(first).suffix for name in of)
    return f"{first!r} {verb if count == 1 else f'and others like it, {count} in all, {plural}'} {kind}"


def _keys(text: str) -> set[str]:
    """The keys of a JSON object, of the first of a list, of that below the first key, or of the first line."""
    for part in (text, text.partition("\n")[0]):
        try:
            value: Any = json.loads(part)
        except (ValueError, RecursionError):
            continue
        first = value[0] if isinstance(value, list) and value else value
        inner = next(iter(first.values()), None) if isinstance(first, dict) else None
        return {key for each in (first, inner) if isinstance(each, dict) for key in each}
    return set()


def _sample(names: Sequence[str]) -> Sequence[str]:
    return names[:: -(-len(names) // TRIED) or 1]
