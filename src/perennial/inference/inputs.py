"""Find and read images to classify, and convert them as for a record.

format                               what the model gets
what convert accepts                 exactly what a record would hold, thus what the model was trained on
TIFF, JPEG 2000, AVIF, PPM           8-bit gray or RGB, as PNG; transparency is dropped
animations, several pages, damage    UnusableImage
"""

import io
import os
import struct
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, cast

import numpy as np
import PIL.Image
from numpy.typing import NDArray
from PIL.TiffImagePlugin import TILELENGTH, TILEWIDTH, TiffImageFile

from perennial.datasets.own.layout import is_document
from perennial.errors import ConfigError, DataError
from perennial.images import MOST_PIXELS, BadImage, accept, decode, header, png

STDIN = "-"
MOST_BYTES = 512 << 20  # of a file; MOST_PIXELS of 16 bits without compression take less
FURTHER = ("TIFF", "JPEG2000", "AVIF", "PPM")  # Pillow's names; none of them starts another program
OPENED = ("JPEG", "PNG", "GIF", "BMP", *FURTHER)  # to read the size; opening a WebP would allocate its pixels
KEPT_CHANNELS = (1, 3)
ORIENTED = (b"Exif\0\0", b"eXIf", b"tiff:Orientation")  # marks of files that may have an orientation
ImageInput = str | os.PathLike[str] | bytes | PIL.Image.Image | NDArray[np.uint8]
SINGLE = (str, os.PathLike, bytes, PIL.Image.Image, np.ndarray)  # the types of ImageInput
# Warning filters are global to the process, and an image that is passed twice is loaded once.
_pillow = threading.RLock()


class UnusableImage(Exception):
    """The reason why a file cannot be classified."""


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
    """A named image; `read` returns PNG or JPEG for the model, or raises UnusableImage."""

    name: str
    read: Callable[[PixelBudget], bytes]


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

    Raises:
        ConfigError: a name is empty; standard input is named twice, or is a terminal.
    """
    if "" in arguments:
        raise ConfigError("the name of an image is empty; is a variable of the shell not set?")
    if arguments.count(STDIN) > 1:
        raise ConfigError(f"{STDIN} is given twice; standard input holds one image")
    return ImageList([group for argument in arguments for group in _groups(argument)])


def from_values(images: ImageInput | Iterable[ImageInput]) -> Iterator[ImageSource]:
    """Yield the images that a program passes, one or several; an array [N, height, width, channels] is several.

    Raises:
        DataError: something is neither a path, bytes, a Pillow image nor an array.
    """
    several = not isinstance(images, SINGLE) or (isinstance(images, np.ndarray) and images.ndim > 3)
    for index, image in enumerate(cast(Iterable[ImageInput], images) if several else [images]):
        yield _from_value(image, f"image {index}")


def from_record(name: str, encoded: bytes) -> ImageSource:
    """An image from a record, which is passed to the model byte for byte."""
    return ImageSource(name, lambda _: encoded)


def _from_value(image: object, name: str) -> ImageSource:
    match image:
        case str() | os.PathLike():
            return _file(Path(image))
        case bytes():
            return ImageSource(name, partial(to_encoded, image))
        case PIL.Image.Image():
            return ImageSource(name, partial(_encode_pillow, image))
        case np.ndarray():
            return ImageSource(name, partial(_encode_array, image))
    raise DataError(
        f"{name} is a {type(image).__name__}, expected a path, the bytes of a file, a Pillow image or a "
        "NumPy array"
    )


def _groups(argument: str) -> Iterator[Sequence[ImageSource] | _Folder]:
    """The image that an argument names, or those of each folder in it."""
    if argument == STDIN:
        yield [_stdin()]
        return
    path = Path(argument)
    # Unlike Path's methods, these return False if access is denied.
    if not os.path.isdir(path):  # noqa: PTH112
        file = _file(path)
        pipe = os.path.exists(path) and not os.path.isfile(path)  # noqa: PTH110, PTH113
        yield [_read_now(file) if pipe else file]
        return
    unreadable: list[OSError] = []
    for folder, folders, names in os.walk(path, onerror=unreadable.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield _Folder(
            folder, sorted(name for name in names if not name.startswith(".") and not is_document(name))
        )
    yield [ImageSource(str(error.filename), partial(_fail, _unreadable(error))) for error in unreadable]


def _stdin() -> ImageSource:
    if sys.stdin is None or sys.stdin.isatty():
        raise ConfigError(f"{STDIN} reads an image from standard input; pipe one in")
    return _read_now(ImageSource(STDIN, lambda budget: to_encoded(_content(sys.stdin.buffer), budget)))


def _file(path: Path, *, regular: bool = False) -> ImageSource:
    """`regular`: do not wait for a pipe of that name."""

    def read(budget: PixelBudget) -> bytes:
        try:
            if regular and not path.is_file() and path.exists():
                raise UnusableImage("it is not a regular file")
            with path.open("rb") as stream:
                content = _content(stream)
        except OSError as error:
            raise _unreadable(error) from error
        except ValueError as error:  # an impossible name
            raise UnusableImage(f"it cannot be read: {error}") from error
        return to_encoded(content, budget)

    return ImageSource(str(path), read)


def _read_now(source: ImageSource) -> ImageSource:
    """Read the image now, because a thread that waits for a pipe cannot be interrupted."""
    try:
        content = source.read(PixelBudget())
    except UnusableImage as error:
        return ImageSource(source.name, partial(_fail, error))
    return from_record(source.name, content)


def _unreadable(error: OSError) -> UnusableImage:
    return UnusableImage(f"it cannot be read: {error.strerror or error}")


def _fail(error: UnusableImage, _: PixelBudget) -> bytes:
    raise error


def _content(stream: IO[bytes]) -> bytes:
    content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UnusableImage(f"it has more than {MOST_BYTES} bytes")
    return content


def to_encoded(content: bytes, budget: PixelBudget) -> bytes:
    """Convert to PNG or JPEG for the model; damage may be detected only when it is decoded.

    Raises:
        UnusableImage: with the reason.
    """
    return content if _kept(content) else to_decodable(content, budget)


def to_decodable(content: bytes, budget: PixelBudget) -> bytes:
    """Convert to PNG or JPEG for the model, and decode once to find damage.

    Raises:
        UnusableImage: with the reason.
    """
    # Check sizes and reserve memory before any decoder allocates pixels.
    with budget.reserve(pixels(content)), _pillow, warnings.catch_warnings(action="ignore"):
        accepted = accept.accepted(content, "")
        return _convert(content, accepted.reason) if isinstance(accepted, BadImage) else accepted.encoded


def _kept(content: bytes) -> bool:
    """Whether a record would keep these bytes, as far as can be determined without decoding pixels.

    Raises:
        UnusableImage: it is a PNG that is damaged, or has too many pixels.
    """
    if content.startswith(png.SIGNATURE):
        try:
            checked = png.check(content)
        except (ValueError, struct.error) as error:
            raise UnusableImage(str(error)) from error
        return checked.kept and _is_upright(content)
    if not content.startswith(header.JPEG_START) or not header.has_end(content):
        return False
    found = header.header(content)
    if found is None:
        return False
    _check_size(found.width, found.height)
    return found.channels in KEPT_CHANNELS and _is_upright(content)


def _is_upright(content: bytes) -> bool:
    if not any(mark in content for mark in ORIENTED):
        return True
    try:
        with (
            _pillow,
            warnings.catch_warnings(action="ignore"),
            PIL.Image.open(io.BytesIO(content), formats=decode.DECODERS) as opened,
        ):
            return decode.is_upright(opened)
    except Exception:  # noqa: BLE001  the full check names what is wrong
        return False


def pixels(content: bytes) -> int:
    """The number of pixels that decoding a file takes; 0 if its header cannot be read and nothing is decoded.

    Raises:
        UnusableImage: there are too many.
    """
    try:
        if content[8:12] == b"WEBP":
            width, height = accept.webp_size(content)
        else:
            with (
                _pillow,
                warnings.catch_warnings(action="ignore"),
                PIL.Image.open(io.BytesIO(content), formats=OPENED) as opened,
            ):
                width, height = opened.size
                _check_size(*_tile(opened))
    except UnusableImage:
        raise
    except PIL.Image.DecompressionBombError as error:
        raise UnusableImage(f"it cannot be decoded: {error}") from error
    except Exception:  # noqa: BLE001 - of any kind; the decoders' reasons are better
        return 0
    return width * height


def _tile(opened: PIL.Image.Image) -> tuple[int, int]:
    """Width and height of the largest part that is decoded at once: a tile of a TIFF may exceed the image."""
    if not isinstance(opened, TiffImageFile):
        return opened.size
    width, height = (opened.tag_v2.get(tag, 1) for tag in (TILEWIDTH, TILELENGTH))
    if not isinstance(width, int) or not isinstance(height, int):
        raise UnusableImage("it is damaged: its tiles have no size")
    return max(width, opened.width), max(height, opened.height)


def _convert(content: bytes, reason: str) -> bytes:
    """Convert a file of a further format to PNG; `reason`: the error for a file of an unknown format."""
    try:
        with _pillow_errors():
            opened = PIL.Image.open(io.BytesIO(content), formats=FURTHER)
    except PIL.UnidentifiedImageError:
        raise UnusableImage(reason) from None
    with opened:
        with _pillow_errors():
            pages = getattr(opened, "n_frames", 1)
        if pages > 1:
            raise UnusableImage(f"it has {pages} pages or frames, expected one image")
        return _encode(opened)


def _encode_pillow(image: PIL.Image.Image, budget: PixelBudget) -> bytes:
    """Encode a Pillow image of any mode as PNG, unchanged."""
    _check_size(*_tile(image))
    with budget.reserve(image.width * image.height):
        return _encode(image)


def _encode(image: PIL.Image.Image) -> bytes:
    """Encode a Pillow image as PNG.

    Raises:
        UnusableImage: it does not load, or its values have no known range.
    """
    _check_size(*image.size)
    if image.mode in {"F", "I"}:
        raise UnusableImage(f"it has samples of 32 bits (mode {image.mode}), expected 8 or 16")
    with _pillow_errors():
        with _pillow:
            image.load()
        return png.encode(decode.array(decode.plain(decode.upright(image))))


def _encode_array(pixels: NDArray[np.uint8], _: PixelBudget) -> bytes:
    """Encode pixels uint8 [height, width] or [height, width, 1 or 3] as PNG."""
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    if pixels.dtype != np.uint8 or pixels.ndim not in {2, 3} or channels not in KEPT_CHANNELS:
        raise UnusableImage(
            f"it is {pixels.dtype} {list(pixels.shape)}, expected uint8 [height, width, 1 or 3], 0 to 255"
        )
    _check_size(pixels.shape[1], pixels.shape[0])
    return png.encode(np.ascontiguousarray(pixels))


@contextmanager
def _pillow_errors() -> Iterator[None]:
    """Convert any error of Pillow in the block to UnusableImage; its plugins raise almost any type."""
    try:
        yield
    except PIL.UnidentifiedImageError:
        raise
    except Exception as error:
        raise UnusableImage(f"it cannot be decoded: {str(error) or type(error).__name__}") from error


def _check_size(width: int, height: int) -> None:
    if not 0 < width * height <= MOST_PIXELS:
        raise UnusableImage(f"it has {width} x {height} pixels, expected 1 to {MOST_PIXELS}")
