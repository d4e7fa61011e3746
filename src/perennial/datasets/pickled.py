"""Dictionaries of arrays and lists as Python 2 pickled them, read without unpickling: nothing is ever called.

Only those opcodes are known that such a dictionary needs, and the functions that numpy names in it stay names.
Source: pickletools of Python; numpy, `ndarray.__reduce__` and `dtype.__reduce__`.
"""

import io
import pickletools
from dataclasses import dataclass
from math import prod

from perennial.errors import DataError

PROTOCOL = 2
RECONSTRUCT, NDARRAY, DTYPE = "numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype"


@dataclass(frozen=True)
class Text:
    """A string of Python 2: a character is a byte."""

    content: str
    offset: int  # bytes from the start of the pickle


@dataclass
class Array:
    """An array of unsigned bytes: where it is, for it stays there."""

    shape: tuple[int, ...] = ()
    fortran: bool = False  # whether the first index runs fastest
    offset: int = -1  # bytes from the start of the pickle to the first value


@dataclass(frozen=True)
class _Name:
    """A function or class that a pickle names."""

    name: str


class _UnsignedByte:
    """The type of an array's values."""


class _Unknown(Exception):
    """What in a pickle is not known."""


def read(content: bytes, where: str) -> dict[str, object]:
    """The dictionary in a pickle: numbers, lists, tuples, its strings as Text, its arrays as Array.

    Raises:
        DataError: the pickle is damaged or holds anything else.
    """
    machine = _Machine()
    try:
        for opcode, argument, position in pickletools.genops(io.BytesIO(content)):
            machine.run(opcode.name, argument, position or 0)
        return machine.result()
    except (_Unknown, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{where} is no pickle of a dictionary of arrays: {error}") from error


class _Machine:
    """The stack and the memo of a pickle."""

    def __init__(self) -> None:
        self._stack: list[object] = []
        self._below: list[list[object]] = []  # the stacks below the marks
        self._memo: dict[int, object] = {}

    def run(self, opcode: str, argument: object, position: int) -> None:
        if opcode in {"NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2"}:
            self._stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}.get(opcode, argument))
        elif opcode in {"SHORT_BINSTRING", "BINSTRING"} and isinstance(argument, str):
            # The opcode is one byte, the length of the string one or four.
            self._stack.append(Text(argument, position + (2 if opcode == "SHORT_BINSTRING" else 5)))
        elif opcode in {"BINPUT", "LONG_BINPUT"} and isinstance(argument, int):
            self._memo[argument] = self._stack[-1]
        elif opcode in {"BINGET", "LONG_BINGET"} and isinstance(argument, int):
            self._stack.append(self._memo[argument])
        elif opcode == "GLOBAL" and argument in {RECONSTRUCT, NDARRAY, DTYPE}:
            self._stack.append(_Name(str(argument)))
        elif opcode in _STEPS:
            _STEPS[opcode](self)
        elif (opcode, argument) not in {("PROTO", PROTOCOL), ("STOP", None)}:
            told = "" if argument is None else f" {argument!r:.80}"
            raise _Unknown(f"{opcode}{told} at byte {position}")

    def result(self) -> dict[str, object]:
        (found,) = self._stack
        if not isinstance(found, dict) or self._below:
            raise _Unknown(f"it holds a {type(found).__name__}")
        return found

    def mark(self) -> None:
        self._below.append(self._stack)
        self._stack = []

    def empty_dict(self) -> None:
        self._stack.append({})

    def empty_list(self) -> None:
        self._stack.append([])

    def tuple(self) -> None:
        values = self._to_mark()
        self._stack.append(tuple(values))

    def tuple_of(self, size: int) -> None:
        values = [self._stack.pop() for _ in range(size)]
        self._stack.append(tuple(values[::-1]))

    def appends(self) -> None:
        values, target = self._to_mark(), self._stack[-1]
        if not isinstance(target, list):
            raise _Unknown(f"values for a {type(target).__name__}")
        target += values

    def set_items(self) -> None:
        items, target = self._to_mark(), self._stack[-1]
        keys = [key.content for key in items[::2] if isinstance(key, Text)]
        if not isinstance(target, dict) or 2 * len(keys) != len(items):
            raise _Unknown(f"{len(items)} keys and values for a {type(target).__name__}")
        target.update(zip(keys, items[1::2], strict=True))

    def reduce(self) -> None:
        """What would be a call; the two that numpy's arrays need give an empty Array and their type."""
        arguments, function = self._stack.pop(), self._stack.pop()
        if function == _Name(RECONSTRUCT):
            self._stack.append(Array())
        elif function == _Name(DTYPE) and isinstance(arguments, tuple) and _is_text(arguments[0], "u1"):
            self._stack.append(_UnsignedByte())
        else:
            raise _Unknown(f"a call of a {type(function).__name__} with a {type(arguments).__name__}")

    def build(self) -> None:
        state, target = self._stack.pop(), self._stack[-1]
        if isinstance(target, Array) and isinstance(state, tuple):
            _fill(target, state)
        elif not isinstance(target, _UnsignedByte):
            raise _Unknown(f"a state for a {type(target).__name__}")

    def _to_mark(self) -> list[object]:
        values = self._stack
        self._stack = self._below.pop()
        return values


def _is_text(value: object, content: str) -> bool:
    return isinstance(value, Text) and value.content == content


def _fill(array: Array, state: tuple[object, ...]) -> None:
    """Gives an array its shape and place."""
    _, shape, dtype, fortran, values = state
    sizes = [size for size in shape if isinstance(size, int) and size > 0] if isinstance(shape, tuple) else []
    if not isinstance(values, Text) or not isinstance(dtype, _UnsignedByte) or not isinstance(shape, tuple):
        raise _Unknown("an array of another type")
    if len(sizes) != len(shape) or prod(sizes) != len(values.content):
        raise _Unknown(f"an array of {shape} with {len(values.content)} bytes")
    array.shape, array.fortran, array.offset = tuple(sizes), bool(fortran), values.offset


_STEPS = {
    "MARK": _Machine.mark,
    "EMPTY_DICT": _Machine.empty_dict,
    "EMPTY_LIST": _Machine.empty_list,
    "TUPLE": _Machine.tuple,
    "TUPLE1": lambda machine: machine.tuple_of(1),
    "TUPLE2": lambda machine: machine.tuple_of(2),
    "TUPLE3": lambda machine: machine.tuple_of(3),
    "APPENDS": _Machine.appends,
    "SETITEMS": _Machine.set_items,
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
}
