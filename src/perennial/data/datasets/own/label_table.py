"""Tables of labels, with a file, its label and further columns, as spreadsheets and other programs write them.

    labels.csv beside the images or beside images/    file,label[,split][,further columns]
                                                      file,cat,dog with one 1 in each row
    train.csv beside train/, val.txt beside val/      the name of the table gives the split

A file is named below the table, below the folder of all, or alone; also without its ending, or below a folder
elsewhere that is the same for all files.
"""

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from perennial.base.choices import SPLIT_WORDS, Split, split_named
from perennial.base.errors import DataError, listed
from perennial.data.archives import Member
from perennial.data.datasets.own import table_columns, table_rows
from perennial.data.datasets.own.class_lists import class_name, is_class_list
from perennial.data.datasets.own.table_columns import Images, Table, split_of_name
from perennial.data.datasets.own.table_rows import LISTS, TABLES, Read, Rows

log = logging.getLogger(__name__)
MOST_LISTS = 20  # texts of a folder that may be tables; a folder of more has one for each image
SHOWN = 3
PROGRAMS = ("COCO", "Label Studio")  # whose documents are no tables, and are named


class Labelled(NamedTuple):
    """An image of a table."""

    name: str  # in the tree
    label: str
    split: Split
    further: tuple[str, ...]  # values of the further columns


def candidates(tree: Mapping[str, Member]) -> list[str]:
    """Return the names that a table of labels may have, in order; of texts, those of folders with few."""
    found = [
        name
        for name, member in tree.items()
        if name.lower().endswith((*TABLES, *LISTS))
        and not member.folder
        and name.count("/") <= 1
        and "submission" not in name.lower()
    ]
    lists = Counter(name.rpartition("/")[0] for name in found if is_list(name))
    return sorted(name for name in found if not is_list(name) or lists[name.rpartition("/")[0]] <= MOST_LISTS)


def is_list(name: str) -> bool:
    """Whether a name is that of a text that may hold labels or anything else."""
    return name.lower().endswith(LISTS)


def find(
    names: Sequence[str], tree: Mapping[str, Member], images: Mapping[str, Member], read: Read
) -> tuple[list[Table], list[str]]:
    """Find the tables that give labels of images, and why others do not; texts without images are no tables."""
    tables, problems = list[Table](), list[str]()
    index = Images(images)
    for name in names:
        rows: Rows = []
        try:
            rows = table_rows.read(name, tree[name], read)
            ids = is_class_list(name.rpartition("/")[2]) and rows[0][0] > 0  # else its columns have names
            tables.append(table_columns.table_of(name, rows, index, whole=ids))
        except DataError as error:
            told = any(program in str(error) for program in PROGRAMS)
            if not is_list(name) or table_columns.mentions_images(rows, index) or told:
                problems.append(str(error))
    return tables, problems


def labelled(images: Mapping[str, Member], tables: Sequence[Table], where: Path) -> dict[str, Labelled]:
    """Return the rows of all tables by the file that they name.

    Raises:
        DataError: rows name no file, several or one outside, contradict each other, or lack a label.
    """
    wrong, index = defaultdict[str, list[str]](list), Images(images)
    found, repeated = dict[str, Labelled](), 0
    splits: dict[str, Split | None] = {}
    columns = further_columns(tables)
    for table in tables:
        for place, row, name in _rows(table, index, wrong):
            label = class_name(row[table.label].strip())
            split = _split(table, row, name)
            if not label:
                wrong["rows without a label"].append(place)
            elif table.split is not None and split is None:
                wrong[f"rows whose split is none of {', '.join(SPLIT_WORDS)}"].append(
                    f"{place}: {row[table.split]!r}"
                )
            elif (other := found.get(name)) and other.label != label:
                wrong["images with two labels"].append(f"{place}: {name!r} is {label!r} and {other.label!r}")
            elif other and splits[name] != split:
                wrong["images in two splits"].append(f"{place}: {name!r}")
            else:
                repeated += other is not None
                values = {table.columns[number]: row[number].strip() for number in table.further}
                further = tuple(values.get(column, "") for column in columns)
                found[name] = Labelled(name, label, split or "train", further)
                splits[name] = split
    wrong["labels of several classes; an image has one"] += _of_several_classes(found)
    if any(splits.values()):
        wrong["images of no split, though others have one"] += [
            repr(name) for name, split in splits.items() if split is None
        ]
    if any(wrong.values()):
        kinds = "".join(
            f"\n  {len(each)} {kind}: {listed(each, SHOWN)}" for kind, each in wrong.items() if each
        )
        raise DataError(f"{where}: the labels cannot be used:{kinds}\nCorrect the table, or move it away.")
    if repeated:
        log.warning("%s: %d rows of the tables repeat others", where, repeated)
    return found


def _of_several_classes(found: Mapping[str, Labelled]) -> list[str]:
    """Return labels such as `cat|dog` whose parts are labels, too."""
    labels = {each.label for each in found.values()}
    parts = {label: {part.strip() for part in re.split(r"[|;,]", label)} for label in sorted(labels)}
    return [repr(label) for label, each in parts.items() if len(each) > 1 and each <= labels]


def further_columns(tables: Sequence[Table]) -> tuple[str, ...]:
    """Return the further columns of all tables, each once."""
    return tuple(dict.fromkeys(table.columns[number] for table in tables for number in table.further))


def _rows(table: Table, index: Images, wrong: dict[str, list[str]]) -> Iterator[tuple[str, Sequence[str], str]]:
    """Yield the place, the values and the file of each row that names exactly one; collect the others."""
    named = split_of_name(table.name)
    for line, row in table.rows:
        place = f"{table.name} line {line}"
        if len(row) != len(table.columns):
            wrong[f"rows without {len(table.columns)} columns"].append(place)
            continue
        value = row[table.file].strip()
        if not value:
            wrong["rows without a file"].append(place)
        elif re.match(r"[/\\]|[A-Za-z]:", value) or ".." in re.split(r"[/\\]", value):
            wrong["rows whose file is not named below the folder"].append(f"{place}: {value!r}")
        elif len(files := index.of(value, table.name, named)) == 1:
            yield place, row, files[0]
        elif files:
            meant = listed(map(repr, files), SHOWN)
            wrong["rows whose file is ambiguous"].append(f"{place}: {value!r} may be {meant}")
        else:
            wrong["rows whose file does not exist"].append(f"{place}: {value!r}")


def _split(table: Table, row: Sequence[str], name: str) -> Split | None:
    """Return the split of a row: by its column, else by the table's name or the file's folder."""
    if table.split is not None:
        return split_named(row[table.split])
    return split_of_name(table.name) or split_named(name.partition("/")[0])
