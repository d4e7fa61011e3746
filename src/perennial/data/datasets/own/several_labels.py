"""Several labels in a cell of a table: split by `dataset.table.separator`, or a JSON list."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping

LIST = re.compile(r"\[.*\]", re.DOTALL)
STRONG, WEAK = r"[|;,]", r"[|;,/+&]|\s+and\s+|\s"  # what separates several labels, surely and perhaps
SEPARATORS = ("|", ";", ",", "/", "+", "&", " and ", " ")


def of_cell(cell: str, separator: str | None) -> list[str]:
    """The labels in a cell; without a separator, it is a JSON list or one label. ValueError: neither."""
    if cell.startswith("["):
        found = _json_list(cell)
        if found is None and separator is None:
            raise ValueError('no JSON lists of names, as in ["cat", "dog"]')
        if found is not None and separator is not None:
            raise ValueError(f"JSON lists, but dataset.table.separator is {separator!r}; set it to null")
        if found is not None:
            return found
    parts = [cell] if separator is None else cell.split(separator)
    return [part.strip() for part in parts if part.strip()]


def _json_list(cell: str) -> list[str] | None:
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError):
        return None
    return [str(each).strip() for each in found] if all(type(each) in {str, int} for each in found) else None


def among(labels: Mapping[str, int], weak: str = WEAK) -> list[str]:
    """Those values that hold several labels: lists, objects, and texts whose parts are labels, too."""
    parts = {label: _parts(label, STRONG) for label in labels}
    known = Counter(part for each in parts.values() for part in each)
    found = []
    for label in labels:
        perhaps = _parts(label, weak)
        structured = re.fullmatch(r"\[.*\]|\{.*\[.*\}", label, re.DOTALL) is not None
        strong = len(parts[label]) > 1 and all(known[part] > 1 for part in parts[label])
        strong |= re.search(r"[|;]", label) is not None and any(part in labels for part in parts[label])
        if structured or strong or (len(perhaps) > 1 and all(part in labels for part in perhaps)):
            found.append(label)
    return found


def _parts(label: str, separator: str) -> set[str]:
    return {part.strip() for part in re.split(separator, label) if part.strip()}


def option(cells: Iterable[str]) -> str:
    """Say which keys allow several labels an image, for cells that hold them; null separates those of lists."""
    texts = [cell for cell in cells if not LIST.fullmatch(cell)]
    separator = next((mark for mark in SEPARATORS if any(mark in text for text in texts)), None)
    return f"set dataset.task to multilabel and dataset.table.separator to {json.dumps(separator)}"
