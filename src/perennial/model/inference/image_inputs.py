"""Find and read images to classify, and convert them as for a record.

The formats are those that convert accepts, and the model gets exactly what a record would hold, thus what it
was trained on. Programs may also pass images that Pillow has opened, of any format.
"""

import array
import io
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, cast

import numpy as np
import PIL.Image
import PIL.ImageOps
from numpy.typing import NDArray

from perennial.base.choices import Transparency
from perennial.base.errors import ConfigError, DataError
from perennial.data.datasets.own.names import is_document_name
from perennial.data.images import MOST_PIXELS, BadImage, Refused, accept, check_size, decode, png
from perennial.data.images.decode import PILLOW_ERRORS

STDIN = "-"
MOST_BYTES = 768 << 20  # of a file; MOST_PIXELS of 16 bits without compression take less
KEPT_CHANNELS = (1, 3)
Buffer = bytes | bytearray | memoryview
ImageInput = str | os.PathLike[str] | Buffer | IO[bytes] | PIL.Image.Image | NDArray[np.uint8]
SINGLE = (str, os.PathLike, Buffer, PIL.Image.Image, np.ndarray)  # the types of ImageInput, except for files
TAKES = (
    "a path, the bytes of a file, a file opened with 'rb', a Pillow image or a NumPy array of pixels, or a "
    "list of these"
)
MOST_CHARACTERS, SHOWN = 4096, 40  # of a path on Linux; of a text in a message
ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]*://|data:)", re.IGNORECASE)
# Warning filters are global to the process, and an image that is passed twice is loaded once.
_pillow = threading.RLock()


class PixelBudget:
    """A limit on the decoded pixels that threads hold at the same time."""

    def __init__(self, pixels: int = MOST_PIXELS) -> None:
        self._pixels = pixels
        self._used = 0
        self._changed = threading.Condition()

    @contextmanager
    def reserve(self, pixels: int) -> Iterator[None]:
        """Reserve pixels for the block, waiting until they are free; at most the whole budget."""
        pixels = min(pixels, self._pixels)
        with self._changed:
            self._changed.wait_for(lambda: self._used + pixels <= self._pixels)
            self._used += pixels
        try:
            yield
        finally:
            with self._changed:
                self._used -= pixels
                self._changed.notify_all()


@dataclass(frozen=True)
class ImageSource:
    """A named image; `read` returns PNG or JPEG for the model, or raises Refused."""

    name: str
    read: Callable[[PixelBudget, Transparency], bytes]
    size: int = 0  # bytes of it that are in memory already


@dataclass(frozen=True)
class ImageList:
    """Images in order; for folders, only the file names are in memory."""

    groups: Sequence["Sequence[ImageSource] | _Folder"]

    def __len__(self) -> int:
        return sum(len(group) for group in self.groups)

    def __iter__(self) -> Iterator[ImageSource]:
        return chain.from_iterable(self.groups)


@dataclass(frozen=True)
class _Folder:
    """The files of a folder, of which there may be a million."""

    path: str
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[ImageSource]:
        return (_file(Path(self.path, name), regular=True) for name in self.names)


def from_arguments(arguments: Sequence[str]) -> ImageList:
    """List the images that a command line names: files, images in folders, `-` for one image on stdin.

    Folders are walked in name order. Hidden files and documents (README.md, *.txt) in them are skipped, and
    links to folders are not followed.
    """
    if "" in arguments:
        raise ConfigError("the name of an image is empty; is a variable of the shell not set?")
    if arguments.count(STDIN) > 1:
        raise ConfigError(f"{STDIN} is given twice; standard input holds one image")
    return ImageList([group for argument in arguments for group in _groups(argument)])


def from_values(images: ImageInput | Iterable[ImageInput]) -> Iterator[ImageSource]:
    """Yield the images that a program passes, one or several; [N, height, width, channels] is several."""
    if isinstance(images, SINGLE) and not (isinstance(images, np.ndarray) and images.ndim > 3):
        images = [images]
    elif _is_file(images):
        images = [cast(IO[bytes], images)]
    try:
        if isinstance(images, Mapping | Set | array.array):
            raise TypeError  # noqa: TRY301 - what they yield is no list of images
        found = iter(images)
    except TypeError as error:
        raise DataError(f"the images are {_type(images)}; expected {TAKES}") from error
    for index, image in enumerate(found):
        yield _from_value(image, f"image {index}")


def from_record(name: str, encoded: bytes) -> ImageSource:
    """An image from a record, which is passed to the model byte for byte."""
    return ImageSource(name, lambda *_: encoded)


def _from_value(image: object, name: str) -> ImageSource:
    match image:
        case str() if ADDRESS.match(image) or len(image) > MOST_CHARACTERS:
            reason = Refused("it is no path but an address or content; pass the bytes")
            return ImageSource(f"{image[:SHOWN]}...", partial(_fail, reason))
        case str() | os.PathLike():
            return _file(Path(image))
        case bytes() | bytearray() | memoryview():
            return ImageSource(name, partial(to_encoded, bytes(image)))
        case PIL.Image.Image():
            return ImageSource(name, partial(_encode_pillow, image))
        case np.ndarray():
            return ImageSource(name, partial(_encode_array, image))
    if _is_file(image):
        return _opened_file(cast(IO[bytes], image), name)
    raise DataError(f"{name} is {_type(image)}; expected {TAKES}")


def _type(value: object) -> str:
    return f"of the type {type(value).__module__}.{type(value).__qualname__}".replace("builtins.", "")


def _is_file(value: object) -> bool:
    return callable(getattr(value, "read", None))


def _opened_file(stream: IO[bytes], name: str) -> ImageSource:
    """Read an open file now, from where it stands: the program may close it or read on."""
    known = getattr(stream, "name", None)
    name = known if isinstance(known, str) and known else name

    def read() -> bytes:
        try:
            return _content(stream)
        except (OSError, ValueError) as error:  # closed, or only open for writing
            raise _unreadable(error) from None

    if isinstance(stream, io.TextIOBase):
        raise DataError(f"{name} is open as text; open it with 'rb'")
    return _read_now(name, read)


def _groups(argument: str) -> Iterator[Sequence[ImageSource] | _Folder]:
    """The image that an argument names, or those of each folder in it."""
    if argument == STDIN:
        if sys.stdin is None or sys.stdin.isatty():
            raise ConfigError(f"{STDIN} reads an image from standard input; pipe one in")
        yield [_read_now(STDIN, lambda: _content(sys.stdin.buffer))]
        return
    path = Path(argument)
    # Unlike Path's methods, these return False if access is denied.
    if not os.path.isdir(path):  # noqa: PTH112
        file = _file(path)
        pipe = os.path.exists(path) and not os.path.isfile(path)  # noqa: PTH110, PTH113
        yield [_read_now(str(path), partial(_file_content, path)) if pipe else file]
        return
    unreadable: list[OSError] = []
    for folder, folders, names in os.walk(path, onerror=unreadable.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield _Folder(
            folder, sorted(name for name in names if not name.startswith(".") and not is_document_name(name))
        )
    yield [ImageSource(str(error.filename), partial(_fail, _unreadable(error))) for error in unreadable]


def _file(path: Path, *, regular: bool = False) -> ImageSource:
    """`regular`: do not wait for a pipe of that name."""

    def read(budget: PixelBudget, transparency: Transparency) -> bytes:
        return to_encoded(_file_content(path, regular=regular), budget, transparency)

    return ImageSource(str(path), read)


def _file_content(path: Path, *, regular: bool = False) -> bytes:
    try:
        if regular and not path.is_file() and path.exists():
            raise Refused("it is not a regular file")
        with path.open("rb") as stream:
            return _content(stream)
    except (OSError, ValueError) as error:  # ValueError: an impossible name
        raise _unreadable(error) from None


def _read_now(name: str, read: Callable[[], bytes]) -> ImageSource:
    """Read the content now, because a thread that waits for a pipe cannot be interrupted."""
    try:
        return ImageSource(name, partial(to_encoded, read()))
    except Refused as error:
        return ImageSource(name, partial(_fail, error))


def _unreadable(error: OSError | ValueError) -> Refused:
    if isinstance(error, Refused):
        return error
    return Refused(f"it cannot be read: {getattr(error, 'strerror', None) or error}")


def _fail(error: Refused, *_: object) -> bytes:
    raise error


def _content(stream: IO[bytes]) -> bytes:
    parts, size = list[bytes](), 0
    while True:  # a raw stream may read less than it has
        part = stream.read(MOST_BYTES + 1 - size)
        if not isinstance(part, bytes):
            raise DataError(f"the file reads {type(part).__name__}, expected bytes; open it with 'rb'")
        if not part:
            break
        parts.append(part)
        if (size := size + len(part)) > MOST_BYTES:
            raise Refused(f"it has more than {MOST_BYTES} bytes")
    return b"".join(parts)


def to_encoded(content: bytes, budget: PixelBudget, transparency: Transparency = "drop") -> bytes:
    """Convert to PNG or JPEG for the model; damage may be detected only when it is decoded."""
    return content if accept.is_kept(content) else to_decodable(content, budget, transparency)


def to_decodable(content: bytes, budget: PixelBudget, transparency: Transparency = "drop") -> bytes:
    """Convert to PNG or JPEG for the model, and decode once to find damage."""
    # Check the size and reserve memory before any decoder allocates pixels.
    with budget.reserve(pixels(content)):
        accepted = accept.accepted(content, "", transparency)
    if isinstance(accepted, BadImage):
        raise Refused(accepted.reason)
    return accepted.encoded


def limited(encoded: bytes, budget: PixelBudget, max_side: int | None) -> bytes:
    """Reduce an encoded image as convert reduces those of records; a damaged one is left to the model."""
    found = decode.header(encoded)
    if max_side is None or found is None or max(found.height, found.width) <= max_side:
        return encoded
    with budget.reserve(found.height * found.width), suppress(*PILLOW_ERRORS):
        return accept.smaller(encoded, max_side)
    return encoded


def pixels(content: bytes) -> int:
    """The number of pixels of a file; 0 if it has no known format."""
    width, height = accept.size(content) or (0, 0)
    return width * height


def _encode_pillow(image: PIL.Image.Image, budget: PixelBudget, transparency: Transparency) -> bytes:
    """Encode a Pillow image of any mode as PNG, unchanged."""
    check_size(*image.size)
    with budget.reserve(image.width * image.height):
        with _pillow, _pillow_errors(), warnings.catch_warnings(action="ignore"):  # about its metadata
            image.load()
            image = PIL.ImageOps.exif_transpose(image)
        if image.mode in {"F", "I"}:
            raise Refused(f"it has samples of 32 bits (mode {image.mode}), expected 8 or 16")
        with _pillow_errors():
            return png.encode(decode.array(decode.plain(image, transparency)))


def _encode_array(pixels: NDArray[np.uint8], *_: object) -> bytes:
    """Encode pixels uint8 [height, width] or [height, width, 1 or 3] as PNG."""
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    if pixels.dtype != np.uint8 or pixels.ndim not in {2, 3} or channels not in KEPT_CHANNELS:
        raise Refused(
            f"it is {pixels.dtype} {list(pixels.shape)}, expected uint8 [height, width, 1 or 3], 0 to 255"
        )
    check_size(pixels.shape[1], pixels.shape[0])
    return png.encode(np.ascontiguousarray(pixels))


@contextmanager
def _pillow_errors() -> Iterator[None]:
    """Convert any error of Pillow in the block to Refused; its plugins raise almost any type."""
    try:
        yield
    except Exception as error:
        raise Refused(f"it cannot be decoded: {str(error) or type(error).__name__}") from error
