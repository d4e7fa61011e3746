"""Images as they are named or given: where each comes from, and how it is read."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, cast

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from perennial.datasets.folder import DOCUMENT_NAMES, DOCUMENTS
from perennial.errors import ConfigError, DataError
from perennial.prediction import encoding
from perennial.prediction.encoding import MOST_BYTES, Unusable

STDIN = "-"
Given = str | os.PathLike[str] | bytes | PIL.Image.Image | NDArray[np.uint8]
ONE = (str, os.PathLike, bytes, PIL.Image.Image, np.ndarray)  # what Given stands for


@dataclass(frozen=True)
class Source:
    """An image and its name; `read` gives PNG or JPEG that the model decodes, or raises Unusable."""

    name: str
    read: Callable[[], bytes]


@dataclass(frozen=True)
class Images:
    """Images in their order; of those in folders only the names are held."""

    groups: Sequence["Sequence[Source] | _Folder"]

    def __len__(self) -> int:
        return sum(len(group) for group in self.groups)

    def __iter__(self) -> Iterator[Source]:
        return chain.from_iterable(self.groups)


@dataclass(frozen=True)
class _Folder:
    """Files of a folder, which may be a million."""

    path: str
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Source]:
        return (_file(Path(self.path, name), regular=True) for name in self.names)


def named(arguments: Sequence[str]) -> Images:
    """What a command line names: files, the images in folders, `-` for one image on standard input.

    Folders are walked in the order of names. Hidden files in them and documents (README.md, *.txt) are passed
    over, links to folders are not followed.

    Raises:
        ConfigError: a name is empty; standard input is named twice, or is a terminal.
    """
    if "" in arguments:
        raise ConfigError("the name of an image is empty; is a variable of the shell not set?")
    if arguments.count(STDIN) > 1:
        raise ConfigError(f"{STDIN} stands twice; standard input holds one image")
    return Images([group for argument in arguments for group in _groups(argument)])


def given(images: Given | Iterable[Given]) -> Iterator[Source]:
    """What a program gives: one image, or several; an array [N, height, width, channels] is several.

    Raises:
        DataError: something is neither a path, bytes, an image of Pillow nor an array.
    """
    several = not isinstance(images, ONE) or (isinstance(images, np.ndarray) and images.ndim > 3)
    for number, image in enumerate(cast(Iterable[Given], images) if several else [images]):
        yield _given(image, f"image {number}")


def _given(image: object, name: str) -> Source:
    match image:
        case str() | os.PathLike():
            return _file(Path(image))
        case bytes():
            return Source(name, partial(encoding.encoded, image))
        case PIL.Image.Image():
            return Source(name, partial(encoding.of_picture, image))
        case np.ndarray():
            return Source(name, partial(encoding.of_pixels, image))
    raise DataError(
        f"{name} is a {type(image).__name__}, expected a path, the bytes of a file, an image of Pillow or an "
        "array of NumPy"
    )


def _groups(argument: str) -> Iterator[Sequence[Source] | _Folder]:
    """The image that an argument names, or those of each folder where it is one."""
    if argument == STDIN:
        yield [_stdin()]
        return
    path = Path(argument)
    # Unlike Path's questions, these have an answer where the system refuses one.
    if not os.path.isdir(path):  # noqa: PTH112
        file = _file(path)
        pipe = os.path.exists(path) and not os.path.isfile(path)  # noqa: PTH110, PTH113
        yield [_at_once(file) if pipe else file]
        return
    lost: list[OSError] = []
    for folder, folders, names in os.walk(path, onerror=lost.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield _Folder(folder, sorted(name for name in names if not _passed_over(name)))
    yield [Source(str(error.filename), partial(_refuse, error)) for error in lost]


def _stdin() -> Source:
    if sys.stdin is None or sys.stdin.isatty():
        raise ConfigError(f"{STDIN} reads an image from standard input; pipe one in")
    return _at_once(Source(STDIN, lambda: encoding.encoded(_whole(sys.stdin.buffer))))


def _passed_over(name: str) -> bool:
    path = Path(name)
    return name.startswith(".") or path.suffix.lower() in DOCUMENTS or path.stem.lower() in DOCUMENT_NAMES


def _file(path: Path, *, regular: bool = False) -> Source:
    """`regular`: a pipe of that name is not waited for."""

    def read() -> bytes:
        try:
            if regular and not path.is_file() and path.exists():
                raise Unusable("it is no file")
            with path.open("rb") as stream:
                return encoding.encoded(_whole(stream))
        except OSError as error:
            return _refuse(error)
        except ValueError as error:  # no file can have that name
            raise Unusable(f"it cannot be read: {error}") from error

    return Source(str(path), read)


def _at_once(source: Source) -> Source:
    """The same, read by now: a thread that waits for a pipe could not be interrupted."""
    try:
        content = source.read()
    except Unusable as error:
        return Source(source.name, partial(_raise, error))
    return Source(source.name, lambda: content)


def _refuse(error: OSError) -> bytes:
    raise Unusable(f"it cannot be read: {error.strerror or error}") from error


def _raise(error: Unusable) -> bytes:
    raise error


def _whole(stream: IO[bytes]) -> bytes:
    content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise Unusable(f"it has more than {MOST_BYTES} bytes")
    return content
