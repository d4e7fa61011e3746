"""Survey a folder or archive of images: classes, splits, formats and sizes, without decoding images."""

import hashlib
import io
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median_low

from PIL import Image, UnidentifiedImageError

from perennial import archives
from perennial.archives import Member
from perennial.choices import Split
from perennial.datasets.readers import class_folders
from perennial.errors import ConfigError, DataError
from perennial.images.decode import PILLOW_ERRORS

SAMPLE = 400  # images whose headers are read
SHOWN = 5  # classes in a message
HASHED_BYTES = 2 << 30  # larger folders are not searched for equal files
GRAY_MODES = {"1", "L", "I;16", "LA"}  # of Pillow
ACCEPTED = {"JPEG", "MPO", "PNG", "WEBP", "BMP", "GIF"}  # Pillow's names of the formats that convert accepts
READS = "JPEG, PNG, WebP, BMP or GIF without animation"
EXPECTED = (
    "expected images as {0}/<class>/<image>, or as {0}/train/<class>/<image> with validation/ and test/ beside "
    "it if you split them yourself; nothing was written"
)


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Content of a folder or archive; sizes are those of a sample of the images."""

    path: Path
    archive: bool
    per_class: Mapping[str, int]  # images, all splits together
    per_split: Mapping[Split, int]  # only train where perennial makes the splits
    split_folders: bool
    bytes: int
    formats: Mapping[str, int]  # of the sample: JPEG, PNG, ...
    unreadable: Sequence[str]  # files of the sample that are not images
    sides: tuple[int, int, int]  # smallest, median and largest shorter side, in pixels
    pixels: int  # median, of an image
    gray: bool  # all of the sample have one channel
    copies: int  # files with the content of another file; 0 if they were not compared

    @property
    def images(self) -> int:
        """The number of images."""
        return sum(self.per_class.values())

    def described(self) -> str:
        """Describe the survey in a line."""
        counts = sorted(self.per_class.values())
        each = f"{counts[0]:,}" if counts[0] == counts[-1] else f"{counts[0]:,} to {counts[-1]:,}"
        low, middle, high = self.sides
        sizes = f"{low} px" if low == high else f"{low} to {high} px (median {middle})"
        splits = ", ".join(f"{name} {count:,}" for name, count in self.per_split.items())
        return (
            f"{self.images:,} images in {len(self.per_class)} classes, {each} in each; "
            f"{', '.join(self.formats)}; shorter side {sizes}"
            + (f"; splits: {splits}" if self.split_folders else "")
            + (f"; {len(self.unreadable):,} cannot be used" if self.unreadable else "")
        )


def look(path: Path, scratch: Path) -> Survey:
    """Survey a folder of images or an archive of one, which is temporarily unpacked in `scratch`.

    Raises:
        ConfigError: the path does not exist.
        DataError: it has no folder for each class, or no image can be read.
    """
    if not path.exists():
        raise ConfigError(f"{path} does not exist; name a folder of images, or an archive of one")
    try:
        with _opened(path, scratch) as (members, read):
            _require_files(path, members)
            layout = class_folders.layout(members, path)
            found = _survey(path, layout, read)
            _require_enough(found)
            return found
    except DataError as error:
        folder = path if path.is_dir() else "FOLDER"
        raise DataError(f"{error}; {EXPECTED.format(folder)}") from error


def _require_files(path: Path, members: Sequence[Member]) -> None:
    if all(member.folder for member in members):
        raise DataError(f"{path} holds no files")


def _require_enough(found: Survey) -> None:
    """Check that each class has an image for each split that is cut from the training images."""
    least = 1 + sum(split not in found.per_split for split in ("validation", "test"))
    few = [f"{name!r} has {count}" for name, count in found.per_class.items() if count < least]
    if few:
        raise DataError(
            f"{found.path}: {', '.join(few[:SHOWN])}{' ...' if len(few) > SHOWN else ''}; each class needs at "
            f"least {least} images, because some are held out"
        )


@contextmanager
def _opened(path: Path, scratch: Path) -> Iterator[tuple[list[Member], Callable[[Member], bytes]]]:
    """Yield the files and folders, and a function that reads a file."""
    if path.is_dir():
        paths = dict(archives.folder_contents(path))
        members = [
            Member(name.rstrip("/"), 0, 0 if name.endswith("/") else file.stat().st_size, name.endswith("/"))
            for name, file in paths.items()
        ]
        # Files in a folder have no offset, so an index takes its place.
        found = list(paths.values())
        yield (
            [Member(m.name, number, m.size, m.folder) for number, m in enumerate(members)],
            (lambda member: found[member.offset].read_bytes()),
        )
        return
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch, prefix="start-") as folder:
        tar = Path(folder) / "images.tar"
        archives.expand(path, tar)
        yield archives.contents(tar), partial(archives.content, tar)


def _survey(path: Path, layout: class_folders.FolderLayout, read: Callable[[Member], bytes]) -> Survey:
    per_class: Counter[str] = Counter(dict.fromkeys(layout.classes, 0))
    found: list[Member] = []
    for part in layout.splits.values():
        images = {name: member for name, member in part.items() if "/" in name and not member.folder}
        per_class.update(name.partition("/")[0] for name in images)
        found += images.values()
    formats, sides, pixels, colours, unreadable = Counter[str](), [], [], set(), []
    for member in _spread(found):
        try:
            with Image.open(io.BytesIO(read(member))) as image:
                _require_accepted(image)
                formats[image.format or "unknown"] += 1
                sides.append(min(image.size))
                pixels.append(image.size[0] * image.size[1])
                colours.add(image.mode in GRAY_MODES)
        except PILLOW_ERRORS:
            unreadable.append(member.name)
    if not sides:
        raise DataError(
            f"{path}: none of {len(unreadable)} sampled files, such as {unreadable[0]}, is a {READS}; "
            "convert other photos, such as HEIC, to JPEG first"
        )
    total = sum(member.size for member in found)
    return Survey(
        path=path,
        archive=not path.is_dir(),
        per_class=dict(per_class),
        per_split={split: _images(part) for split, part in layout.splits.items()},
        split_folders=layout.split_folders,
        bytes=total,
        formats=dict(formats.most_common()),
        unreadable=unreadable,
        sides=(min(sides), median_low(sides), max(sides)),
        pixels=median_low(pixels),
        gray=colours == {True},
        copies=_copies(found, read) if total <= HASHED_BYTES else 0,
    )


def _require_accepted(image: Image.Image) -> None:
    """Raise Pillow's error for unknown images if convert rejects it; an MPO file may hold several views."""
    if image.format not in ACCEPTED or (image.format != "MPO" and getattr(image, "is_animated", False)):
        raise UnidentifiedImageError(image.format)


def _images(part: Mapping[str, Member]) -> int:
    return sum("/" in name and not member.folder for name, member in part.items())


def _spread(found: Sequence[Member]) -> list[Member]:
    """Return at most SAMPLE files, evenly spaced."""
    step = max(len(found) / SAMPLE, 1)
    return [found[int(number * step)] for number in range(min(len(found), SAMPLE))]


def _copies(found: Sequence[Member], read: Callable[[Member], bytes]) -> int:
    """Count the files with the content of another file; only files of equal size are read."""
    by_size = defaultdict[int, list[Member]](list)
    for member in found:
        by_size[member.size].append(member)
    copies = 0
    for same in by_size.values():
        if len(same) > 1:
            contents = {hashlib.sha256(read(member)).digest() for member in same}
            copies += len(same) - len(contents)
    return copies


def relative(path: Path) -> Path:
    """Return a path for dataset.path: relative if it is in the project, else absolute."""
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - a link stays a link
    try:
        return absolute.relative_to(Path.cwd())
    except ValueError:
        return absolute
