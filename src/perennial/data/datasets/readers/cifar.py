"""Read CIFAR-10 batches from tar files, in the binary version and the Python version.

Binary: a record is a label byte, then 3,072 bytes of pixels, plane by plane, red first. Python: a pickled
dictionary with labels and an array of such pixel rows. Source: https://www.cs.toronto.edu/~kriz/cifar.html.
"""

import io
import pickletools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from perennial.base.errors import DataError
from perennial.data import archives
from perennial.data.archives import Member
from perennial.data.datasets.dataset import Examples
from perennial.data.datasets.readers.fixed_size import FixedSizeImages, PixelTable
from perennial.data.images import png

SIDE = 32  # pixels
PIXEL_BYTES = 3 * SIDE * SIDE
RECORD_BYTES = 1 + PIXEL_BYTES
CIFAR100_RECORD_BYTES = 2 + PIXEL_BYTES
CHUNK_BYTES = 1000 * RECORD_BYTES
PROTOCOL = 2
NAMES = RECONSTRUCT, NDARRAY, DTYPE = "numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype"
UNSIGNED_BYTE = "the dtype of unsigned bytes"


def examples(tar: Path, names: Sequence[str], classes: Sequence[str]) -> Examples:
    """Read the examples of the named batches in the given order; `.bin` marks binary batches."""
    members = {member.name: member for member in archives.contents(tar)}
    if missing := [name for name in names if name not in members]:
        raise DataError(f"{tar} does not hold {', '.join(missing)}")
    tables, labels = [], []
    for name in names:
        read_batch = _binary_batch if name.endswith(".bin") else _python_batch
        batch, batch_labels = read_batch(tar, members[name], len(classes))
        tables.append(batch)
        labels.append(batch_labels)
    return Examples(
        labels=np.concatenate(labels),
        images=FixedSizeImages(tuple(tables), (3, SIDE, SIDE)),
        image_bytes=np.full(sum(map(len, labels)), png.encoded_bytes(SIDE, SIDE, 3)),
    )


def check_classes(tar: Path, folder: str, classes: Sequence[str]) -> None:
    """Compare the archive's own list of classes, if it has one, with the expected classes."""
    members = {member.name: member for member in archives.contents(tar)}
    if (member := members.get(f"{folder}/batches.meta.txt")) is not None:
        names = archives.content(tar, member).decode("utf-8", "backslashreplace").split()
    elif (member := members.get(f"{folder}/batches.meta")) is not None:
        listed = read_pickle(archives.content(tar, member), f"{tar}, {member.name}").get("label_names")
        texts = listed if isinstance(listed, list) else []
        names = [text.content for text in texts if isinstance(text, PickledText)]
    else:
        return
    if names != list(classes):
        raise DataError(f"{tar}, {member.name}: the classes are {names}, expected {list(classes)}")


def _binary_batch(tar: Path, member: Member, classes: int) -> tuple[PixelTable, NDArray[np.int64]]:
    rows, remainder = divmod(member.size, RECORD_BYTES)
    if remainder or not rows:
        cifar100 = bool(member.size) and not member.size % CIFAR100_RECORD_BYTES
        hint = f"; records of {CIFAR100_RECORD_BYTES} bytes are CIFAR-100's" if cifar100 else ""
        raise DataError(
            f"{tar}, {member.name}: {member.size} bytes are {rows} records of {RECORD_BYTES} bytes "
            f"and a remainder of {remainder}{hint}"
        )
    starts = range(0, member.size, CHUNK_BYTES)
    chunks = (Member(member.name, member.offset + n, min(CHUNK_BYTES, member.size - n)) for n in starts)
    read = archives.read_members(tar, chunks)
    labels = np.concatenate([np.frombuffer(chunk, np.uint8)[::RECORD_BYTES].astype(np.int64) for chunk in read])
    for index in np.flatnonzero(labels >= classes)[:1]:
        raise DataError(
            f"{tar}, {member.name}: label {labels[index]} in record {index} at byte {index * RECORD_BYTES}, "
            f"expected 0 to {classes - 1}"
        )
    return PixelTable(file=tar, offset=member.offset, rows=rows, row_bytes=RECORD_BYTES), labels


def _python_batch(tar: Path, member: Member, classes: int) -> tuple[PixelTable, NDArray[np.int64]]:
    where = f"{tar}, {member.name}"
    found = read_pickle(archives.content(tar, member), where)
    data, labels = found.get("data"), found.get("labels")
    if not isinstance(data, PickledArray) or len(data.shape) != 2 or data.shape[1] != PIXEL_BYTES:
        shape = data.shape if isinstance(data, PickledArray) else None
        raise DataError(f"{where}: 'data' has the shape {shape}, expected [N, {PIXEL_BYTES}]")
    if not isinstance(labels, list) or len(labels) != data.shape[0]:
        number = len(labels) if isinstance(labels, list) else "no"
        raise DataError(f"{where}: {number} labels for {data.shape[0]} images")
    for index, label in enumerate(labels):
        if not isinstance(label, int) or not 0 <= label < classes:
            shown = label if isinstance(label, int) else type(label).__name__
            raise DataError(f"{where}: label {shown} of image {index}, expected 0 to {classes - 1}")
    order: Literal["C", "F"] = "F" if data.fortran else "C"
    offset = member.offset + data.offset
    batch = PixelTable(file=tar, offset=offset, rows=data.shape[0], row_bytes=PIXEL_BYTES, order=order)
    return batch, np.array(labels, np.int64)


@dataclass(frozen=True)
class PickledText:
    """A Python 2 string, one byte per character."""

    content: str
    offset: int  # bytes from the start of the pickle


@dataclass
class PickledArray:
    """Shape and position of an array of unsigned bytes; its values are not copied."""

    shape: tuple[int, ...] = ()
    fortran: bool = False  # whether the first index varies fastest
    offset: int = -1  # bytes from the start of the pickle to the first value


class _UnknownPickleError(Exception):
    """An opcode, name or type that does not occur in these pickles."""


def read_pickle(content: bytes, where: str) -> dict[str, object]:
    """Read the dictionary in a pickle by simulating its opcodes: nothing is imported or called."""
    machine = _PickleMachine()
    try:
        for opcode, argument, position in pickletools.genops(io.BytesIO(content)):
            machine.run(opcode.name, argument, position or 0)
        return machine.result()
    except (_UnknownPickleError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{where} is not a pickle of a dictionary of arrays: {error}") from error


class _PickleMachine:
    """Stack and memo of a pickle. Functions and classes are represented by name, as str."""

    def __init__(self) -> None:
        self._stack: list[object] = []
        self._below: list[list[object]] = []  # the stacks below the marks
        self._memo: dict[int, object] = {}

    def run(self, opcode: str, argument: object, position: int) -> None:
        if opcode in _NEW:
            self._stack.append(_NEW[opcode]())
        elif opcode in {"BININT", "BININT1", "BININT2"} or (opcode == "GLOBAL" and argument in NAMES):
            self._stack.append(argument)
        elif opcode in {"SHORT_BINSTRING", "BINSTRING"} and isinstance(argument, str):
            # The opcode is one byte, the length of the string one or four.
            self._stack.append(PickledText(argument, position + (2 if opcode == "SHORT_BINSTRING" else 5)))
        elif opcode in {"BINPUT", "LONG_BINPUT"} and isinstance(argument, int):
            self._memo[argument] = self._stack[-1]
        elif opcode in {"BINGET", "LONG_BINGET"} and isinstance(argument, int):
            self._stack.append(self._memo[argument])
        elif opcode in _OPERATIONS:
            _OPERATIONS[opcode](self)
        elif (opcode, argument) not in {("PROTO", PROTOCOL), ("STOP", None)}:
            shown = "" if argument is None else f" {argument!r:.80}"
            raise _UnknownPickleError(f"{opcode}{shown} at byte {position}")

    def result(self) -> dict[str, object]:
        (found,) = self._stack
        if not isinstance(found, dict) or self._below:
            raise _UnknownPickleError(f"it holds a {type(found).__name__}")
        return found

    def mark(self) -> None:
        self._below.append(self._stack)
        self._stack = []

    def tuple(self, size: int | None = None) -> None:
        """Replace the last `size` values by a tuple; without a size, all values after the mark."""
        values = self._to_mark() if size is None else [self._stack.pop() for _ in range(size)][::-1]
        self._stack.append(tuple(values))

    def appends(self) -> None:
        values, target = self._to_mark(), self._stack[-1]
        if not isinstance(target, list):
            raise _UnknownPickleError(f"values for a {type(target).__name__}")
        target += values

    def set_items(self) -> None:
        items, target = self._to_mark(), self._stack[-1]
        keys = [key.content for key in items[::2] if isinstance(key, PickledText)]
        if not isinstance(target, dict) or 2 * len(keys) != len(items):
            raise _UnknownPickleError(f"{len(items)} keys and values for a {type(target).__name__}")
        target.update(zip(keys, items[1::2], strict=True))

    def reduce(self) -> None:
        """Simulate the two calls that numpy arrays need; they return an empty PickledArray and its dtype."""
        arguments, function = self._stack.pop(), self._stack.pop()
        first = arguments[0] if isinstance(arguments, tuple) else None
        if function == RECONSTRUCT:
            self._stack.append(PickledArray())
        elif function == DTYPE and isinstance(first, PickledText) and first.content == "u1":
            self._stack.append(UNSIGNED_BYTE)
        else:
            raise _UnknownPickleError(
                f"a call of a {type(function).__name__} with a {type(arguments).__name__}"
            )

    def build(self) -> None:
        """Set shape and position of an array; the state of a dtype does not matter for bytes."""
        state, array = self._stack.pop(), self._stack[-1]
        if array == UNSIGNED_BYTE:
            return
        if not isinstance(array, PickledArray) or not isinstance(state, tuple):
            raise _UnknownPickleError(f"a state for a {type(array).__name__}")
        _, shape, dtype, fortran, values = state
        if not isinstance(values, PickledText) or dtype != UNSIGNED_BYTE or not isinstance(shape, tuple):
            raise _UnknownPickleError("an array of another type")
        sizes = tuple(size for size in shape if isinstance(size, int) and size > 0)
        if len(sizes) != len(shape) or prod(sizes) != len(values.content):
            raise _UnknownPickleError(f"an array of {sizes} with {len(values.content)} bytes")
        array.shape, array.fortran, array.offset = sizes, bool(fortran), values.offset

    def _to_mark(self) -> list[object]:
        values = self._stack
        self._stack = self._below.pop()
        return values


_NEW: dict[str, Callable[[], object]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False, "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
}  # fmt: skip
_OPERATIONS: dict[str, Callable[[_PickleMachine], None]] = {
    "MARK": _PickleMachine.mark,
    "TUPLE": _PickleMachine.tuple,
    "TUPLE1": lambda machine: machine.tuple(1),
    "TUPLE2": lambda machine: machine.tuple(2),
    "TUPLE3": lambda machine: machine.tuple(3),
    "APPENDS": _PickleMachine.appends,
    "SETITEMS": _PickleMachine.set_items,
    "REDUCE": _PickleMachine.reduce,
    "BUILD": _PickleMachine.build,
}
