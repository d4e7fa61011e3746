"""Rows of tables as people have them, each with the number of the line that it ends in.

    .csv, .tsv    commas, semicolons, tabs or bars; Excel's first line `sep=;`
    .txt, .lst    the same, or in .txt lines such as `images/1.jpg 3`, of which the last word is the label
    .jsonl        an object in each line, as in metadata.jsonl of Hugging Face
    .json         {"1.jpg": "cat"}, {"1.jpg": ["cat", "dog"]}, or a list of objects

The first row holds the names of the columns, if the file has them; those of a mapping are `file` and `label`.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from perennial.base.errors import DataError
from perennial.data.archives import Member
from perennial.data.datasets.own import foreign
from perennial.data.datasets.own.class_lists import decoded_text
from perennial.data.datasets.own.foreign import Read

TABLES = (".csv", ".tsv")
LISTS = (".txt", ".json", ".jsonl", ".lst")  # which may also hold anything else
MOST_LISTS = 20  # texts of a folder that may be tables; a folder of more has one for each image
DELIMITERS = ",;\t|"
MOST_BYTES = 1 << 28
MOST_COLUMNS, MOST_VALUES = 10_000, 50_000_000
Rows = list[tuple[int, list[str]]]


def is_table(name: str) -> bool:
    """Whether a file has the ending of a table or list."""
    return name.lower().endswith((*TABLES, *LISTS))


def candidates(tree: Mapping[str, Member]) -> list[str]:
    """The names of possible tables beside images or one folder below, in order; 1.jpg.json belongs to 1.jpg."""
    found = [name for name, each in tree.items() if is_table(name) and not each.folder and name.count("/") <= 1]
    first = partial(re.sub, r"\.[^/]*\Z", "")
    others = {first(name) for name, each in tree.items() if not (each.folder or is_table(name))}
    lists = [name for name in found if name.lower().endswith(LISTS) and first(name) not in others]
    counts = Counter(name.rpartition("/")[0] for name in lists)
    few = {name for name in lists if counts[name.rpartition("/")[0]] <= MOST_LISTS}
    return sorted(name for name in found if name.lower().endswith(TABLES) or name in few)


def read(name: str, member: Member, content: Read) -> Rows:
    """Read the rows of a table that are not empty."""
    if member.size > MOST_BYTES:
        raise DataError(f"{name} has more than {MOST_BYTES} bytes")
    text, lower = decoded_text(content(member), name), name.lower()
    if lower.endswith(foreign.MANIFESTS):
        foreign.require_table(name, text)
    if lower.endswith(".jsonl"):
        lines = enumerate(io.StringIO(text, newline=None), 1)
        found = [(number, _json(line, f"{name} line {number}")) for number, line in lines if line.strip()]
        rows = _of_objects(found, name)
    elif lower.endswith(".json"):
        rows = _of_json(_json(text, name), name)
    else:
        rows = _of_lines(text, lower) or _of_csv(text, name)
    if not rows:
        raise DataError(f"{name} is empty")
    return rows


def _bounded(rows: Iterable[tuple[int, list[str]]], name: str) -> Rows:
    """Collect rows, as long as they have not too many values."""
    found, values = list[tuple[int, list[str]]](), 0
    for line, row in rows:
        values += len(row)
        if len(row) > MOST_COLUMNS or values > MOST_VALUES:
            most = f"{MOST_COLUMNS} columns or {MOST_VALUES} values"
            raise DataError(f"{name} has more than {most}, so it is no table of labels")
        found.append((line, row))
    return found


def _of_csv(text: str, name: str) -> Rows:
    text = re.sub(r"\Asep=.(?:\r\n|\n|\r)", "", text)  # a line of Excel
    first = next((line for line in io.StringIO(text, newline=None) if line.strip()), "")
    first = re.sub(r'"[^"]*"', "", first)
    delimiter = "\t" if name.lower().endswith(".tsv") else max(DELIMITERS, key=first.count)
    csv.field_size_limit(MOST_BYTES)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        return _bounded(((reader.line_num, row) for row in reader if any(map(str.strip, row))), name)
    except csv.Error as error:
        raise DataError(f"{name} line {reader.line_num} is not CSV: {error}") from error


def _of_lines(text: str, lower: str) -> Rows:
    """Read lines of a file and a label with blanks between; none if the text has other separators."""
    if not lower.endswith(".txt"):
        return []
    lines = [(number, line.strip()) for number, line in enumerate(io.StringIO(text, newline=None), 1)]
    lines = [(number, line) for number, line in lines if line]
    if not lines or any(mark in lines[0][1] for mark in DELIMITERS):
        return []
    return [(number, line.rsplit(maxsplit=1)) for number, line in lines]


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place} is not JSON: {error}") from error


def _of_json(value: Any, name: str) -> Rows:
    """Read labels by their files, or a list of objects; the number of a row is its place in the document."""
    if isinstance(value, dict) and value and all(isinstance(each, str | int | list) for each in value.values()):
        pairs = ((number, [key, _shown(each)]) for number, (key, each) in enumerate(value.items(), 1))
        return [(0, ["file", "label"]), *pairs]
    if isinstance(value, list):
        return _of_objects(list(enumerate(value, 1)), name)
    raise DataError(f'{name} is not a table: expected {{"1.jpg": "cat"}} or a list of objects')


def _of_objects(found: Sequence[tuple[int, Any]], name: str) -> Rows:
    """Write objects as rows below the names of all their keys."""
    columns: dict[str, None] = {}
    for number, each in found:
        if not isinstance(each, dict):
            raise DataError(f"{name} line {number} is not an object")
        columns.update(dict.fromkeys(each))
        if len(columns) > MOST_COLUMNS:
            raise DataError(f"{name} has more than {MOST_COLUMNS} columns, so it is no table of labels")
    rows = _bounded(((number, [_shown(each.get(key)) for key in columns]) for number, each in found), name)
    return [(0, list(columns)), *rows] if rows else []


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def is_bit(text: str) -> bool:
    """Whether a value is 0 or 1, perhaps with a fraction of zeros."""
    return re.fullmatch(r"\s*[01](?:\.0*)?\s*", text) is not None
