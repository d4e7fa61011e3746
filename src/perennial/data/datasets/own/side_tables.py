"""Tables that dataset.table does not name: what they hold is never used, and said where it could matter.

Beside class folders, one that speaks of the same classes must agree, and one with splits must be used or moved
away; predictions may differ. Without such folders, the columns `file` and `label` need no naming.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import normalize

from perennial.base.choices import Split, split_named
from perennial.base.config.data import TableConfig
from perennial.base.errors import DataError, listed
from perennial.data.archives import Member
from perennial.data.datasets.own import tables
from perennial.data.datasets.own.class_lists import is_class_list
from perennial.data.datasets.own.foreign import ForeignFormat, Read
from perennial.data.datasets.own.image_names import Images, Named, columns_of_files
from perennial.data.datasets.own.label_table import Labels
from perennial.data.datasets.own.names import SPLITTING, table_split
from perennial.data.datasets.own.split_folders import Layout, Tree
from perennial.data.datasets.own.tables import Rows

SHOWN = 3
ALL_ROWS = "empty the labels of these rows, or to use all rows"
AGREEMENT = 0.6  # Cohen's kappa with the class folders from which a column speaks of the same classes


@dataclass(frozen=True)
class SideTable:
    """A table that names images."""

    name: str
    path: str  # below dataset.path
    rows: Rows  # with the header
    header: bool
    files: Mapping[int, Named]  # the columns of files, from 0

    @property
    def body(self) -> Rows:
        """The rows without the header."""
        return self.rows[1:] if self.header else self.rows

    @property
    def is_plain(self) -> bool:
        """Whether its columns are called `file` and `label`, so that no parameter needs to name them."""
        file, label, split = (list(self.columns).count(name) for name in ("file", "label", "split"))
        return file == label == 1 >= split and self.columns.index("file") in self.files

    @property
    def columns(self) -> Sequence[str | int]:
        """The names of the columns, or their numbers from 1."""
        first = self.rows[0][1]
        return [value.strip() for value in first] if self.header else list(range(1, len(first) + 1))

    @property
    def plain(self) -> TableConfig:
        """The table by its columns `file` and `label`, and perhaps `split`."""
        split = "split" if "split" in self.columns else None
        return TableConfig(path=self.path, file="file", label="label", split=split)

    def values(self, column: int) -> list[str]:
        """The values of a column."""
        return [row[column].strip() if column < len(row) else "" for _, row in self.body]

    def splits(self) -> list[int]:
        """The columns that look like splits, also in part where another column is left for the labels."""
        most = tables.MOST_SPLITS  # codes of splits may be names of images, too
        left = [
            column
            for column in range(len(self.columns))
            if column not in self.files or len(set(self.values(column))) <= most < len(self.body)
        ]
        named = {column: str(self.columns[column]) for column in left if self.columns[column] != "label"}
        found = {column for column, name in named.items() if tables.looks_like_split(name, self.values(column))}
        perhaps = {each for each, name in named.items() if tables.may_be_split(name, self.values(each))}
        return sorted(found | perhaps if set(left) - found - perhaps else found)

    def split_option(self, column: int) -> Any:
        """The value of dataset.table.split for a column."""
        name = self.columns[column]
        meant = tables.flag(str(name), self.values(column)) if self.header else {}
        return {name: meant} if meant else name

    def split_values(self, column: int) -> list[Split | None]:
        """The splits in a column."""
        meant = tables.flag(str(self.columns[column]), self.values(column)) if self.header else {}
        return [meant.get(value) or split_named(value) for value in self.values(column)]

    def require_no_choice(self, labels: Sequence[str | int], all_rows: str, where: Path) -> None:
        """Check that no column but labels may leave images out; `all_rows`: how to use all."""
        for column, name in enumerate(self.columns):
            if name not in labels and tables.may_leave_out(str(name), values := self.values(column)):
                counts = ", ".join(f"{count} {value!r}" for value, count in sorted(Counter(values).items()))
                what = f"column {name!r} of {self.name!r} ({counts}) may leave images out, which nothing does"
                raise DataError(f"{where}: {what}; {all_rows}")


def of_rows(name: str, path: str, rows: Rows, images: Images) -> SideTable | None:
    """The table in some rows, if it names images; its first row is the header if it names none."""
    bare = columns_of_files(rows, path, images)
    below = columns_of_files(rows[1:], path, images) if len(rows) > 1 else {}
    header = not any(named.files[0] for named in bare.values())
    if header and below and len(list(filter(str.strip, rows[0][1]))) < 2 <= len(rows[-1][1]):
        raise DataError(f"{name}: {rows[0][1][0]!r} is no header; remove the lines above the header")
    files = below if header else bare
    return SideTable(name, path, rows, header, files) if files else None


@dataclass(frozen=True)
class SideTables:
    """The tables that name images, further ones, and why some could not be read."""

    tables: Sequence[SideTable]
    others: Mapping[str, str]  # by name: why one that may hold labels was not understood
    problems: Sequence[str]
    splitting: Sequence[str]  # documents that divide the images into splits in another way

    def names(self) -> tuple[str, ...]:
        """The names of all tables."""
        return tuple(sorted([*(each.name for each in self.tables), *self.others]))

    def plain(self) -> list[TableConfig]:
        """The tables that need no naming."""
        return [each.plain for each in self.tables if each.is_plain]

    def asked(self) -> str:
        """Ask for the columns of a table, if there is one."""
        if not self.tables:
            return ""
        found = "; ".join(f"{each.name!r} has {listed(map(repr, each.columns), 20)}" for each in self.tables)
        return (
            f"dataset.table names no table: {found}; `perennial start FOLDER` proposes one; to use it, "
            f"{tables.add(asked_table(self.tables[0]))}"
        )

    def require_agreement(self, found: Layout, names: Mapping[Member, str], where: Path) -> None:
        """Check that no table contradicts the class folders, or holds splits or labels that are not used."""
        classes = _of_layout(found, names)
        if self.splitting and found.splits.keys() == {"train"}:
            raise DataError(
                f"{where}: {listed(map(repr, self.splitting), SHOWN)}: splits of your own, which nothing uses; "
                "write a table with the columns file and split, and name it in dataset.table, or move them away"
            )
        if found.table is None and (wrong := [why for why in self.others.values() if why]):
            raise DataError(f"{where}: {wrong[0]}; correct the table, or move it away")
        for each in self.tables:
            plain = f"{ALL_ROWS}, {tables.add(each.plain.block)}"
            use = "move these images away, and the table" if found.table is None else plain
            each.require_no_choice(["label"], use, where)
            _require_labels(each, classes, where)
            _require_splits(each, found, names, where)


def read_all(tree: Tree, images: Tree, content: Read, named: str | None) -> SideTables:
    """Read the possible tables beside images, and one that is named; what cannot be read is no table."""
    index, kept, problems = Images(images), list[SideTable](), list[str]()
    others, splitting = dict[str, str](), list[str]()
    further = [name for name, each in tree.items() if named in {name, each.name} and not each.folder]
    for name in dict.fromkeys([*tables.candidates(tree), *further]):
        is_list = name.lower().endswith(tables.LISTS)
        try:
            rows = tables.read(name, tree[name], content)
            is_object = rows[0][0] == 0  # its rows are keys and values, or objects
            body = rows[1:] if is_object else rows
            # Rows are ids and names, such as `1 cat`, also where an image is called 1.jpg.
            ids = all(len(row) <= 2 and row[0].strip(" :").isdecimal() for _, row in body)
            ids &= is_class_list(name.rpartition("/")[2]) and len({row[-1] for _, row in body}) == len(body)
            found = None if ids else of_rows(name, tree[name].name, rows, index)
        except DataError as error:
            if not name.lower().endswith((".txt", ".lst")) or isinstance(error, ForeignFormat):
                problems.append(str(error))
            continue
        if found:
            kept.append(found)
            continue
        if is_object and len({split_named(row[0]) for _, row in body} - {None}) > 1:
            splitting.append(name)  # {"train": ["1.jpg"], "test": ["2.jpg"]}
        why = f"{name}: {index.unnamed(rows)}"
        if not is_list:
            others[name] = why if _may_hold_labels(rows, name, index) else ""
        if not ids and images and (not is_list or is_object):  # objects, or a text that may be anything
            problems.append(why)
    known = {each.name for each in kept if each.splits()}
    splitting += [name for name in tree.keys() - known if SPLITTING.fullmatch(name.rpartition("/")[2])]
    return SideTables(kept, others, problems, sorted({*splitting}))


def _may_hold_labels(rows: Rows, name: str, index: Images) -> bool:
    """Whether a column is named like labels, and most values of another name some images."""
    columns = zip(*(row for _, row in rows[1:]), strict=False)
    named = (index.named(values, name).files for values in columns)
    labels = any(map(tables.LABEL.search, rows[0][1]))
    return labels and any(2 * sum(map(bool, files)) > len(files) for files in named)


def require_agreement(found: Layout, labels: Labels, names: Mapping[Member, str], where: Path) -> None:
    """Check that the tables of dataset.table do not contradict class folders of the same classes."""
    classes = _of_layout(found, names)
    pairs = [
        (classes[of], label, row.place)
        for of, row in labels.images.items()
        for label in row.labels or ()
        if of in classes
    ]
    if differing := _differing(pairs):
        raise _contradiction(labels.described, differing, len(pairs), where)


def _of_layout(found: Layout, names: Mapping[Member, str]) -> dict[str, str]:
    return {
        names[item.member]: found.classes[label]
        for part in found.splits.values()
        for item in part
        for label in item.labels
    }


def _require_labels(table: SideTable, classes: Mapping[str, str], where: Path) -> None:
    contradictions: list[DataError] = []
    for column, named in table.files.items():
        files = [found[0] if len(found) == 1 else "" for found in named.files]
        for other in range(len(table.columns)):
            places = (f"{table.name} line {line}" for line, _ in table.body)
            rows = zip(files, table.values(other), places, strict=True)
            pairs = [(classes[file], value, place) for file, value, place in rows if file in classes and value]
            if other == column or not pairs:
                continue
            differing, what = _differing(pairs), f"{table.name!r} (column {table.columns[other]!r})"
            if differing == []:
                return
            if differing:
                contradictions.append(_contradiction(what, differing, len(pairs), where))
            elif table.is_plain and table.columns[other] == "label":
                raise DataError(
                    f"{where}: the class folders and {table.name!r} give different labels; to use it, "
                    f"{tables.add(table.plain.block)}\nElse move it away."
                )
    if contradictions and not _has_probabilities(table):
        raise contradictions[0]


def _differing(pairs: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]] | None:
    """The rows whose value is not the class of the folder; None if the column speaks of something else."""
    pairs = [(normalize("NFC", above), normalize("NFC", value), place) for above, value, place in pairs]
    folders, values = Counter(pair[0] for pair in pairs), Counter(pair[1] for pair in pairs)
    meant: dict[str, str] = {}
    for (folder, value), _ in Counter((folder, value) for folder, value, _ in pairs).most_common():
        if folder not in meant and value not in meant.values():
            meant[folder] = value
    if any(folder in values for folder in folders):
        meant = {folder: folder for folder in folders}
    differing = [pair for pair in pairs if meant.get(pair[0]) != pair[1]]
    named = len(values) > 1 and all(value in folders and _fraction(value) is None for value in values)
    observed = 1 - len(differing) / len(pairs)
    chance = sum(count * values[meant.get(each, "")] for each, count in folders.items()) / len(pairs) ** 2
    agreeing = chance < 1 and (observed - chance) / (1 - chance) > AGREEMENT
    return differing if named or agreeing else None


def _contradiction(what: str, differing: Sequence[tuple[str, str, str]], rows: int, where: Path) -> DataError:
    shown = listed([f"{place}: {value!r} in the folder {above!r}" for above, value, place in differing], SHOWN)
    return DataError(
        f"{where}: {what} contradicts the class folders in {len(differing)} of {rows} rows: {shown}; correct "
        "the rows or the folders, or move the table away"
    )


def _has_probabilities(table: SideTable) -> bool:
    """Whether a column holds fractions between 0 and 1, as predictions do."""
    for column in range(len(table.columns)):
        values = [_fraction(value) for value in table.values(column) if value]
        known = [value for value in values if value is not None and 0 <= value <= 1]
        if len(known) == len(values) and any(value not in {0, 1} for value in known):
            return True
    return False


def _fraction(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _require_splits(table: SideTable, found: Layout, names: Mapping[Member, str], where: Path) -> None:
    """Check that splits of a table are those that are used."""
    used = {names[item.member]: split for split, part in found.splits.items() for item in part}
    named, by_name = next(iter(table.files.values())), table_split(table.name)
    for column in [*table.splits(), *([None] if by_name else [])]:
        splits = [by_name] * len(table.body) if column is None else table.split_values(column)
        files = [each[0] if len(each) == 1 else "" for each in named.files]
        if all(used.get(file, split) == split for file, split in zip(files, splits, strict=True)):
            continue
        proposed = asked_table(table) | {"split": None if column is None else table.split_option(column)}
        if found.table is None:
            proposed["label"] = None
        if column is None:
            proposed["path"] = {"train": "...", str(by_name): table.path}
        what = "is named like a split" if column is None else f"has splits in {table.columns[column]!r}"
        raise DataError(
            f"{where}: {table.name!r} {what}, which nothing uses; to use it, "
            f"{tables.add(proposed)}\nElse move it away."
        )


def asked_table(table: SideTable) -> dict[str, Any]:
    """The value of dataset.table for a table, with what is known; FILE and LABEL stand for columns."""
    file = next(iter(table.files)) if len(table.files) == 1 else None
    splits = table.splits()
    left = [column for column in range(len(table.columns)) if column not in {*table.files, *splits}]
    label = table.columns[left[0]] if len(left) == 1 else "LABEL"
    return {
        "path": table.path,
        "file": "FILE" if file is None else table.columns[file],
        "label": "label" if "label" in table.columns else label,
        "split": table.split_option(splits[0]) if len(splits) == 1 else None,
    }
