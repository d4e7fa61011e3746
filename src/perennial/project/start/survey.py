"""Survey a folder or archive of images, and this machine; both without TensorFlow."""

import hashlib
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median_low
from typing import Any

import psutil

from perennial.base.choices import Split, Task
from perennial.base.devices import gpus
from perennial.base.errors import ConfigError, DataError, listed
from perennial.data import archives
from perennial.data.archives import Member
from perennial.data.datasets.own import tables
from perennial.data.datasets.own.foreign import Read
from perennial.data.datasets.own.split_folders import Layout
from perennial.data.images import BadImage, Image, Refused, accept, decode
from perennial.project.start import proposals
from perennial.project.start.candidates import Named

NOTHING = Named()
SAMPLE = 400  # images that are read; only those that convert would encode again are decoded
SHOWN = 5  # classes in a message
HASHED_BYTES = 2 << 30  # larger folders are not searched for equal files
EXPECTED = (
    "expected images as {0}/<class>/<image>, or as {0}/train/<class>/<image> with validation/ and test/ beside "
    "it if you split them yourself, or with their labels in a table such as {0}/labels.csv; nothing was written"
)
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
GB = 1e9
# Multiply-adds per second: of a 2 GHz core with mobilenet_v2, and of a laptop GPU.
CORE_RATE, GPU_RATE = 4e9, 1e12
DECODED_PIXELS_PER_S = 50e6  # per core
TRAIN_COST = 3  # forward passes: forward, backward and update
# Published multiply-adds per image, and the image side in pixels that they are for.
COSTS = {
    "mobilenet_v2": (3.0e8, 224), "efficientnet_v2_b0": (7.2e8, 224), "cifarnet": (3.1e7, 32),
    "mnist_cnn": (1.4e7, 28),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Content of a folder or archive; sizes are those of a sample of the images."""

    path: Path
    archive: bool
    per_class: Mapping[str, int]  # images, all splits together
    count: int | None = None  # images, where they may have several labels
    task: Task = "multiclass"
    per_split: Mapping[Split, int]  # only train where perennial makes the splits
    split_folders: bool
    bytes: int
    formats: Mapping[str, int]  # of the sample: JPEG, PNG, ...
    unreadable: Mapping[str, str]  # files of the sample that cannot be used, and why
    sides: tuple[int, int, int]  # smallest, median and largest shorter side, in pixels
    pixels: int  # median, of an image
    gray: bool  # all of the sample have one channel
    hidden: int  # of the sample, whose picture is in the alpha channel
    copies: int  # files with the content of another file; 0 if they were not compared
    table: str | None = None  # the files that give the labels, if folders do not
    left_out: Sequence[str] = ()  # files beside the images
    block: Mapping[str, Any] | None = None  # the value of dataset.table
    chosen: bool = False  # whether it was chosen among columns that nobody named
    examples: Sequence[Mapping[str, str]] = ()  # five images with their class and split
    understood: Sequence[str] = ()  # the same in lines

    @property
    def images(self) -> int:
        """The number of images."""
        return sum(self.per_class.values()) if self.count is None else self.count

    def described(self) -> str:
        """Describe the survey in a line."""
        counts = sorted(self.per_class.values())
        each = f"{counts[0]:,}" if counts[0] == counts[-1] else f"{counts[0]:,} to {counts[-1]:,}"
        low, middle, high = self.sides
        sizes = f"{low} px" if low == high else f"{low} to {high} px (median {middle})"
        return (
            f"{self.images:,} images in {len(self.per_class)} classes, {each} in each; "
            f"{', '.join(self.formats)}; shorter side {sizes}"
            + (f"; {len(self.unreadable):,} cannot be used" if self.unreadable else "")
        )


def look(path: Path, scratch: Path, named: Named = NOTHING) -> Survey:
    """Survey a folder of images or an archive of one, which is temporarily unpacked in `scratch`."""
    if not path.exists():
        raise ConfigError(f"{path} does not exist; name a folder of images, or an archive of one")
    names: list[str] = []
    try:
        with _opened(path, scratch) as (members, read):
            names += [each.name for each in members]
            table, found, chosen = proposals.choose(members, read, path, named)
            survey = _survey(path, found, read)
            _require_enough(path, found, read)
            block = None if table is None else table.block
            return replace(survey, block=block, chosen=chosen)
    except DataError as error:
        if any(map(tables.is_table, names)):
            end = "\nNothing was written." if "\n" in str(error) else "; nothing was written"
            raise DataError(f"{error}{end}") from error
        folder = path if path.is_dir() else "FOLDER"
        raise DataError(f"{error}; {EXPECTED.format(folder)}") from error


def _require_enough(path: Path, found: Layout, read: Read) -> None:
    """Check that each class has an image that can be used for each split that is cut from those to train on."""
    least = 1 + sum(split not in found.splits for split in ("validation", "test"))
    for split, items in found.splits.items():
        by_class = defaultdict[int, list[Member]](list)
        for item in items:
            for label in item.labels:
                by_class[label].append(item.member)
        few = []
        for label, members in sorted(by_class.items()):
            wanted, name = least if split == "train" else 1, found.classes[label]
            usable, bad = _usable(members, read, wanted)
            if usable < wanted:
                few.append(f"{name!r} has {usable}{bad}")
        if few:
            needed = f"{least} images in the training split, because some are held out"
            if split != "train" or least == 1:
                needed = f"1 image in the {split} split"
            raise DataError(f"{path}: {listed(few, SHOWN)}; each class needs at least {needed}")


def _usable(members: Sequence[Member], read: Read, wanted: int) -> tuple[int, str]:
    """Count the images that can be used, up to `wanted`, and say why the first of the others cannot."""
    count, why = 0, ""
    for each in members:
        if not isinstance(image := accept.accepted(read(each), ""), BadImage):
            count += 1
        elif not why:
            why = f" that can be used of {len(members)} ({each.name}: {image.reason})"
        if count == wanted:
            break
    return count, why


@contextmanager
def _opened(path: Path, scratch: Path) -> Iterator[tuple[Sequence[Member], Read]]:
    """Yield the members, and a function that reads a file."""
    if path.is_dir():
        yield archives.folder_contents(path), lambda member: (path / member.name).read_bytes()
        return
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch, prefix="start-") as folder:
        tar = Path(folder) / "images.tar"
        archives.expand(path, tar)
        yield archives.contents(tar), partial(archives.content, tar)


def _survey(path: Path, classes: Layout, read: Read) -> Survey:
    items = [item for part in classes.splits.values() for item in part]
    counts = Counter(label for item in items for label in item.labels)
    found = [item.member for item in items]
    formats, sides, pixels, colours = Counter[str](), [], [], set()
    unreadable: dict[str, str] = {}
    hidden = 0
    step = max(len(found) / SAMPLE, 1)
    for member in (found[int(number * step)] for number in range(min(len(found), SAMPLE))):
        image = _sampled(content := read(member))
        if isinstance(image, BadImage):
            unreadable[member.name] = image.reason
            continue
        formats[accept.format_name(content)] += 1
        sides.append(min(image.height, image.width))
        pixels.append(image.height * image.width)
        colours.add((shown := decode.header(image.encoded)) is not None and shown.size[2] == 1)
        hidden += image.hidden
    if not sides:
        name, reason = next(iter(unreadable.items()))
        raise DataError(
            f"{path}: none of {len(unreadable)} sampled files can be used, such as {name}: {reason}"
        )
    total = sum(member.size for member in found)
    return Survey(
        path=path, archive=not path.is_dir(),
        per_class={name: counts[label] for label, name in enumerate(classes.classes)},
        count=len(items) if classes.task == "multilabel" else None, task=classes.task,
        per_split={split: len(part) for split, part in classes.splits.items()},
        split_folders=set(classes.splits) != {"train"} or classes.folders["train"] != "", table=classes.table,
        examples=classes.examples(), understood=classes.lines(), left_out=classes.left_out, bytes=total,
        formats=dict(formats.most_common()), unreadable=unreadable,
        sides=(min(sides), median_low(sides), max(sides)), pixels=median_low(pixels), gray=colours == {True},
        hidden=hidden, copies=_copies(found, read) if total <= HASHED_BYTES else 0,
    )  # fmt: skip


def _sampled(content: bytes) -> Image | BadImage:
    """An image as convert makes it; damage in the pixels of a JPEG that is kept is not detected."""
    try:
        kept, found = accept.is_kept(content), decode.header(content)
    except Refused as error:
        return BadImage(filename="", reason=str(error))
    if kept and found:
        return Image(encoded=content, format=found.format, height=found.height, width=found.width)
    return accept.accepted(content, "")


def _copies(found: Sequence[Member], read: Callable[[Member], bytes]) -> int:
    """Count the files with the content of another file; only files of equal size are read."""
    sizes = Counter(member.size for member in found)
    contents = [hashlib.sha256(read(member)).digest() for member in found if sizes[member.size] > 1]
    return len(contents) - len(set(contents))


def relative(path: Path) -> Path:
    """Return a path for dataset.path: relative if it is in the project, else absolute."""
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - a link stays a link
    try:
        return absolute.relative_to(Path.cwd())
    except ValueError:
        return absolute


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The properties of this machine that the choice of parameters depends on."""

    cores: int
    memory_gb: float
    gpus: int

    def described(self) -> str:
        """Describe the machine in a line."""
        return f"{_count(self.cores, 'core')}, {self.memory_gb:.0f} GB, {_count(self.gpus, 'GPU')}"

    def seconds(self, network: str, size: int, images: int, *, trained: bool, pixels: int = 0) -> float:
        """Estimate the time of one pass of images through a network; `pixels` of each image are decoded."""
        macs, published = COSTS.get(network, COSTS["efficientnet_v2_b0"])
        cost = macs * (size / published) ** 2 * (TRAIN_COST if trained else 1)
        rate = GPU_RATE if self.gpus else CORE_RATE * self.cores
        return images * (cost / rate + pixels / (DECODED_PIXELS_PER_S * self.cores))


def this_machine() -> Machine:
    """Detect the properties of this machine, and the memory that this process may use."""
    limits = [int(psutil.virtual_memory().total)]
    with suppress(OSError, ValueError):
        limits.append(int(CGROUP_LIMIT.read_text(encoding="ascii")))  # `max` where there is no limit
    cores = len(os.sched_getaffinity(0))
    return Machine(cores=cores, memory_gb=min(limits) / GB, gpus=len(gpus.visible()))


def _count(number: int, name: str) -> str:
    return f"{number or 'no'} {name}{'' if number == 1 else 's'}"
