r"""Which image each value of a column names: one way of writing for all rows.

    below the table's folder or the folder of all    images/1.jpg
    the end of a path                                1.jpg for train/1.jpg
    the same without its ending                      1 for train/1.jpg

A folder elsewhere, which all values begin with, is left out: `C:\\data\\1.jpg`, `gs://bucket/1.jpg`.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple

from perennial.base.choices import Split, split_named
from perennial.data.archives import Member
from perennial.data.archives.safety import folded

SHOWN = 5  # columns in a message
LEAST = 0.5  # share of the values that name an image in a column of files
MOST_ROWS = 4  # of an image
SAMPLED, LEAST_SAMPLED = 200, 0.2  # rows that are tried first, and the share of them that names an image
Way = Callable[[str], list[str]]
Splits = Sequence[Split | None]
Files = list[list[str]]  # for each value the images that it may mean: one, if it is clear


class Named(NamedTuple):
    """What the values of a column name."""

    files: Files
    root: str = ""  # folder elsewhere that all values begin with
    ambiguous: bool = False  # the values name other images below the table than below the folder of all

    @property
    def clear(self) -> int:
        """The number of values that name one image."""
        return sum(len(each) == 1 for each in self.files)


class Images:
    """The images that a table may name, up to case and Unicode normalization."""

    def __init__(self, images: Mapping[str, Member]) -> None:
        self._paths = {name: f"/{member.name}" for name, member in images.items()}
        self._whole, self._last = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        self._stems = defaultdict[str, list[str]](list)
        for name, path in self._paths.items():
            for each in {folded(path), folded(f"/{name}")}:
                self._whole[each].append(name)
            last = folded(path.rpartition("/")[2])
            self._last[last].append(name)
            self._stems[last.rpartition(".")[0] or last].append(name)

    def named(self, values: Sequence[str], table: str, splits: Splits = ()) -> Named:
        """Find what values name in the way that fits most of them; `splits`: of each row, if they are known."""
        cleaned = [value.strip().replace("\\", "/").removeprefix("./") for value in values]
        found = self._in_a_way(cleaned, table, splits)
        if any(found.files) or not cleaned:
            return found
        for root in _roots(cleaned):
            below = self._in_a_way([value.removeprefix(root) for value in cleaned], table, splits)
            if any(below.files):
                return below._replace(root=root)
        return found

    def with_other_ending(self, value: str) -> str | None:
        """The image whose name differs from a value only in its ending."""
        last = folded(value.strip().replace("\\", "/").rpartition("/")[2])
        found = self._stems.get(re.sub(r"\.\w+\Z", "", last), ()) if last not in self._last else ()
        return found[0] if len(found) == 1 else None

    def unnamed(self, rows: Sequence[tuple[int, Sequence[str]]]) -> str:
        """Why no column of rows names most images: their endings, or an example."""
        for values in zip(*(row for _, row in rows), strict=False):
            found = [(value, image) for value in values if (image := self.with_other_ending(value))]
            if len(found) > LEAST * len(values):
                shown = " for ".join(map(repr, found[0]))
                return f"{len(found)} rows name files with another ending: {shown}; correct the endings"
        row, image = list(rows[-1][1][:SHOWN]), next(iter(self._paths), None)
        return f"no column names most of the images: a row is {row}, an image {image!r}"

    def _in_a_way(self, values: Sequence[str], table: str, splits: Splits) -> Named:
        above = table.rpartition("/")[0]
        folders = {f"{above}/" * bool(above): 0, "": 0}
        ways = [lambda value, each=each: self._whole.get(folded(f"/{each}{value}"), []) for each in folders]
        whole = [self._told_apart(values, way, splits) for way in ways]
        if fitting := [each for each in whole if each.files and each.clear == len(each.files)]:
            return fitting[0]._replace(ambiguous=any(each.files != fitting[0].files for each in fitting))
        ends = (self._ending, partial(self._ending, stem=True))
        parts = [self._told_apart(values, way, splits) for way in ends]
        return max(*whole, *parts, key=lambda each: (each.clear, sum(map(bool, each.files))))

    def _told_apart(self, values: Sequence[str], way: Way, splits: Splits) -> Named:
        """Take of several images those in the same case, then those in a folder of the row's split."""
        files: Files = []
        for number, value in enumerate(values):
            found = way(value) if value else []
            if len(found) > 1:
                found = [name for name in found if self._paths[name].endswith(f"/{value}")] or found
            if len(found) > 1 and splits and (split := splits[number]):
                found = [name for name in found if folder_split(name) == split] or found
            files.append(found)
        return Named(files)

    def _ending(self, value: str, *, stem: bool = False) -> list[str]:
        last, end = folded(value.rpartition("/")[2]), folded(f"/{value}")
        found = (self._stems if stem else self._last).get(last, ())
        above = {name: folded(self._paths[name]).rpartition("/")[0] for name in found}
        return [name for name in found if f"{above[name]}/{last}".endswith(end)]


def _roots(values: Sequence[str]) -> list[str]:
    """The folders that all values begin with, the shortest first."""
    parts = [re.split(r"(?<=/)(?=[^/])", value)[:-1] for value in values if value]
    common = list(takewhile(lambda same: len(set(same)) == 1, zip(*parts, strict=False)))
    return ["".join(each[0] for each in common[:count]) for count in range(1, len(common) + 1)]


def folder_split(name: str) -> Split | None:
    """The split that the first folder of an image names."""
    return split_named(name.partition("/")[0]) if "/" in name else None


def columns_of_files(rows: Sequence[tuple[int, Sequence[str]]], table: str, images: Images) -> dict[int, Named]:
    """The columns of rows without a header in which most values name an image, by their numbers from 0."""
    width = max((len(row) for _, row in rows), default=0)
    few = rows[1 :: max(len(rows) // SAMPLED, 1)] or rows
    found: dict[int, Named] = {}
    for column in range(width):
        for part, least in ((few, LEAST_SAMPLED), (rows, LEAST)):
            values = [row[column] if column < len(row) else "" for _, row in part]
            found[column] = named = images.named(values, table)
            different = {files[0] for files in named.files if len(files) == 1}
            # Labels may be names of a few images, each in many rows.
            if len(different) <= least * len(set(values)) or len(different) * MOST_ROWS <= named.clear:
                del found[column]
                break
    return found
