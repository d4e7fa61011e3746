"""Queues for Label Studio and labels from it, as JSON and CSV; and a plain table of SHA-256 and class.

Formats: labelstud.io/guide/task_format and /guide/export (JSON, JSON-MIN, CSV). Label Studio gets images from a
folder that it serves; a field `sha256` in each task says which image it is.
"""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from xml.sax.saxutils import quoteattr

from perennial.base import documents
from perennial.base.errors import DataError, listed
from perennial.data.datasets.own import label_table
from perennial.data.datasets.readers import labelled
from perennial.data.datasets.readers.labelled import SHA256, Label
from perennial.live.label.queue import QueuedImage

FROM, TO = "class", "image"  # names of the tags in the labelling interface
CHOICE = (FROM, "choice")  # names of the column of labels: ours, and of Label Studio's templates
NONE = "none of these"
LOCAL = "/data/local-files/?d="  # what Label Studio serves below LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT
SHOWN = 3


class Answer(NamedTuple):
    """What a program says of an image."""

    sha256: str
    name: Any  # its choice; then the class of a row, empty for none
    who: str
    time: str


def interface(classes: Sequence[str], *, several: bool = False) -> str:
    """Label Studio's labelling interface for these classes, as XML."""
    choices = "".join(f"    <Choice value={quoteattr(name)}/>\n" for name in (*classes, NONE))
    return (
        f'<View>\n  <Image name="{TO}" value="${TO}"/>\n'
        f'  <Choices name="{FROM}" toName="{TO}" choice="{"multiple" if several else "single"}" '
        f'required="true">\n{choices}'
        "  </Choices>\n</View>"
    )


def tasks(
    images: Iterable[tuple[QueuedImage, str]], labels: Mapping[str, Label], *, several: bool = False
) -> list[dict[str, Any]]:
    """Tasks in Label Studio's JSON with their labels, and without predictions, which would lead people."""
    found = []
    for each, name in images:
        task: dict[str, Any] = {"data": {TO: f"{LOCAL}{name}", "sha256": each.sha256}, "annotations": []}
        if label := labels.get(each.sha256):
            names = label.labels if several else [label.class_]
            value = {"choices": list(filter(None, names)) or [NONE]}
            choice = {"from_name": FROM, "to_name": TO, "type": "choices", "value": value}
            task["annotations"] = [{"result": [choice], "was_cancelled": False, "created_at": label.time}]
        found.append(task)
    return found


def table(images: Iterable[tuple[QueuedImage, str]]) -> str:
    """The same tasks without labels as CSV, which Label Studio imports, too."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow((TO, "sha256"))
    writer.writerows((f"{LOCAL}{name}", each.sha256) for each, name in images)
    return stream.getvalue()


def read(text: str, where: object, images: Sequence[QueuedImage], *, several: bool = False) -> list[Label]:
    """The labels in an export of Label Studio (JSON, JSON-MIN or CSV), or in a table with sha256 and class."""
    try:
        found = _of_json(documents.parse_json(text)) if text.lstrip().startswith("[") else _of_csv(text)
        answers = [each._replace(name=_name(each.name, several)) for each in found]
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise DataError(
            f"{where} is no export of Label Studio as JSON, JSON-MIN or CSV, and no table with the columns "
            f"sha256 and class: {error}; nothing was taken"
        ) from error
    known = {each.sha256: each for each in images}
    if strange := sorted({each.sha256 for each in answers} - known.keys()):
        raise DataError(
            f"{where} has {len(strange)} images that are not in the queue: {listed(strange, SHOWN)}; nothing "
            "was taken, because it is not known whether they were drawn at random"
        )
    names = defaultdict[str, set[str]](set)
    for each in answers:
        names[each.sha256].add(each.name)
    if twice := sorted(name for name, found in names.items() if len(found) > 1):
        raise DataError(
            f"{where} has several labels of {len(twice)} images: {listed(twice, SHOWN)}; nothing was "
            "taken; leave one of each"
        )
    return [known[each.sha256].labelled(each.name, each.who, each.time) for each in answers]


def _of_json(document: list[dict[str, Any]]) -> Iterator[Answer]:
    for task in document:
        if "annotations" not in task:
            yield from _of_row(task)
            continue
        sha256 = _sha256(task["data"])
        for each in task["annotations"]:
            chosen = [result["value"]["choices"] for result in each["result"] if result["type"] == "choices"]
            if chosen and not each.get("was_cancelled"):
                time = each.get("updated_at") or each.get("created_at") or ""
                yield Answer(sha256, chosen[0], _who(each.get("completed_by")), time)


def _of_csv(text: str) -> Iterator[Answer]:
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    if not {*CHOICE} & {*(rows.fieldnames or ())}:
        raise ValueError(f"its columns are {listed(rows.fieldnames or (), 10)}")
    for row in rows:
        yield from _of_row(row)


def _of_row(row: Mapping[str, Any]) -> Iterator[Answer]:
    """A row of CSV or of JSON-MIN; none if the image has no label."""
    name = next((row[key] for key in CHOICE if row.get(key)), None)
    if name is not None:
        time = row.get("updated_at") or row.get("created_at") or ""
        yield Answer(_sha256(row), name, _who(row.get("annotator") or row.get("who")), time)


def _sha256(data: Mapping[str, Any]) -> str:
    """The digest in a task: in its own field, or in the name of the image."""
    found = data.get("sha256") or next(iter(re.findall(SHA256, str(data.get(TO)))), "")
    if not SHA256.fullmatch(str(found)):
        raise ValueError("a task has neither sha256 nor a file that is named so")
    return str(found)


def _name(choice: Any, several: bool) -> str:
    """The class of a choice: a text, or a list or an object of one; of several labels, all as a list."""
    if several and isinstance(choice, str) and choice.startswith("{"):  # in Label Studio's CSV
        choice = documents.parse_json(choice)
    if isinstance(choice, dict):
        choice = choice["choices"]
    if several:
        names = choice if isinstance(choice, list) else label_table.of_cell(str(choice), None)
        return labelled.cell(name for name in names if name != NONE)
    if isinstance(choice, list):
        if len(choice) != 1:
            raise ValueError(f"an image has the choices {choice}; expected one")
        choice = choice[0]
    return "" if choice == NONE else str(choice)


def _who(found: Any) -> str:
    if isinstance(found, dict):
        found = found.get("email") or found.get("id")
    return str(found or "")
