"""The classes of records, by lists in the forms of other programs or by the texts in `image/class/text`.

labels.txt, classes.txt, ...      a name in each line, with or without its id: `0:cat`, `0 cat`, `cat`
label.labels.txt                  TensorFlow Datasets: a name in each line
label_map.pbtxt                   TensorFlow's object detection: item { id: 1 name: "cat" }
labels.json, class_indices.json   {"0": "cat"}, {"cat": 0} or ["cat", "dog"]
"""

import codecs
import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from perennial.base.errors import DataError, listed
from perennial.data.archives.safety import CONTROL

log = logging.getLogger(__name__)
BACKGROUND = "background"
NO_CLASS = (BACKGROUND, "__background__", "_background_", "???", "dummy")  # first lines of lists from 1
ABOVE = "--"  # between the folders and the name of a list in the raw folder
MOST_BYTES = 1 << 24  # of a list; 100,000 names of 160 bytes
TFDS = ".labels.txt"  # of TensorFlow Datasets
MOST_TEXTS = 100_000  # beyond it, texts of records are descriptions of images
SHOWN = 3
Texts = dict[tuple[int, str], str]  # by label and text: the place of the first such record
LIST = "correct the records, or write the classes to labels.txt, as in 0:cat"
_WORDS = "(?:labels?|class|classes|category|categories)"
_FILE = re.compile(
    rf"(?:.*[._-])?{_WORDS}(?:[._-]?(?:names?|list|maps?|index|indices|ids?|labels?|to[._-]?idx))*"
    r"\.(?:txt|json|pbtxt)|names\.(?:txt|json)|id2label\.json|label2id\.json|.*\.pbtxt|.*\.names"
)
_ESCAPED = re.compile(rf"{CONTROL.pattern}|[\ud800-\udfff]")  # JSON may hold a half of a pair
_WITH_COLON = re.compile(r"([0-9]+)\s*:\s*(.*)")
_WITH_BLANK = re.compile(r"([0-9]+)[\t ,;]+(.*)")
_LABEL_MAP = """
name: "label_map.proto" package: "perennial" syntax: "proto2"
message_type { name: "Item"
  field { name: "name" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "id" number: 2 label: LABEL_OPTIONAL type: TYPE_INT32 }
  field { name: "display_name" number: 3 label: LABEL_OPTIONAL type: TYPE_STRING } }
message_type { name: "LabelMap"
  field { name: "item" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: "Item" } }
"""


def is_class_list(name: str) -> bool:
    """Whether a file name, perhaps below folders, is that of a list of classes."""
    return _FILE.fullmatch(re.split(rf"/|{ABOVE}", name.lower())[-1]) is not None


def class_name(text: str) -> str:
    """Return a name of one line: control characters and halves of surrogate pairs become escapes."""
    return _ESCAPED.sub(lambda found: repr(found[0])[1:-1], text)


def parsed_json(text: str, where: object) -> Any:
    """Parse JSON in which no object has a key twice, of which Python would take the last."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if twice := [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]:
            raise ValueError(f"{twice[0]!r} occurs twice in an object")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not valid JSON: {error}") from error


def sorted_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Sort labels by name, or by value if all are numbers."""
    found = sorted(labels)
    if all(label.isascii() and label.isdecimal() for label in found):
        found.sort(key=int)
    return tuple(found)


def decoded_text(content: bytes, where: object) -> str:
    """Decode UTF-8 with or without a byte order mark, or UTF-16 with one."""
    marked = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = content.decode("utf-16" if marked else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(
            f"{where} is not UTF-8: byte {content[error.start]:#04x} in line {line}, as in Latin-1 or "
            "Windows-1252; save it as UTF-8"
        ) from error
    if "\0" in text:
        raise DataError(f"{where} holds zero bytes; save it as UTF-8")
    return text


def read(file: Path, used: Sequence[int]) -> tuple[str, ...]:
    """Read the classes in the order of their ids; `used`: the labels that examples have.

    If the ids start at 1 and no example has label 0, class 0 is `background`. A list without ids must fit in
    one way.
    """
    try:
        with file.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    return names_of(content, file, used)


def names_of(content: bytes, file: Path, used: Sequence[int]) -> tuple[str, ...]:
    """Return the classes in the content of a list, as `read` does."""
    if len(content) > MOST_BYTES:
        raise DataError(f"{file} has more than {MOST_BYTES} bytes, so it is no list of classes")
    found = _parsed(content, file)
    names = found if isinstance(found, tuple) else _by_id(found, file, used)
    without_ids = isinstance(found, tuple) and not file.name.lower().endswith(TFDS)
    names = tuple(map(class_name, names))
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise DataError(f"{file} names the class {twice!r} twice")
    if without_ids and used and 0 < min(used) <= max(used) < len(names) and names[0].lower() not in NO_CLASS:
        raise DataError(
            f"{file} has no ids, and no example has label 0: {names[0]!r} may be label 0 or 1; write ids, as "
            f"in 0:{names[0]}, or {BACKGROUND} as the first line"
        )
    if used and len(names) <= max(used):
        first = f"; if labels start at 1, write {BACKGROUND} as the first line" if min(used) > 0 else ""
        raise DataError(f"{file} lists {len(names)} classes, but there are labels up to {max(used)}{first}")
    return names


def _parsed(content: bytes, file: Path) -> tuple[str, ...] | dict[int, str]:
    """Parse a list of classes: the names in order, or by their ids."""
    text, ending = decoded_text(content, file), file.suffix.lower()
    if ending == ".pbtxt":
        return _of_label_map(text, file)
    if ending == ".json":
        return _of_json(text, file)
    lines = [line.strip() for line in re.split(r"\r\n|\n|\r", text) if line.strip()]
    # Those of TensorFlow Datasets are always without ids, from 0.
    return tuple(lines) if file.name.lower().endswith(TFDS) else _of_lines(lines, file)


def _of_lines(lines: Sequence[str], file: Path) -> tuple[str, ...] | dict[int, str]:
    """Read lines with ids, or names in order. Names may start with a number, so blanks prove no id."""
    parts = [_WITH_BLANK.fullmatch(line) for line in lines]
    ids = [int(part[1]) for part in parts if part and part[2]]
    if len(ids) == len(lines) and sorted(ids) in (list(range(len(ids))), list(range(1, len(ids) + 1))):
        return {int(part[1]): part[2] for part in parts if part}
    parts = [_WITH_COLON.fullmatch(line) for line in lines]
    if not any(parts):
        return tuple(lines)
    names: dict[int, str] = {}
    for line, part in zip(lines, parts, strict=True):
        if part is None or not part[2]:
            raise DataError(f"{file}: the line {line!r} is not an id and a name, as in 0:cat")
        _add(names, int(part[1]), part[2], file)
    return names


def _of_json(text: str, file: Path) -> tuple[str, ...] | dict[int, str]:
    value = parsed_json(text, file)
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return tuple(value)
    names: dict[int, str] = {}
    for key, entry in value.items() if isinstance(value, dict) else ():
        if key.isascii() and key.isdecimal() and isinstance(entry, str):
            _add(names, int(key), entry, file)
        elif type(entry) is int:
            _add(names, entry, key, file)
        else:
            names.clear()
            break
    if not names:
        raise DataError(f'{file} is not a list of classes: expected {{"0": "cat"}}, {{"cat": 0}} or ["cat"]')
    return names


def _of_label_map(text: str, file: Path) -> dict[int, str]:
    pool = descriptor_pool.DescriptorPool()  # not the one of other programs
    pool.Add(text_format.Parse(_LABEL_MAP, descriptor_pb2.FileDescriptorProto()))
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("perennial.LabelMap"))
    try:
        found: Any = text_format.Parse(text, message(), allow_unknown_field=True)
    except text_format.ParseError as error:
        raise DataError(f"{file} is not a label map: {error}") from error
    shown = all(item.display_name for item in found.item)
    names: dict[int, str] = {}
    for item in found.item:
        if not item.HasField("id") or not (name := item.display_name if shown else item.name):
            raise DataError(f'{file}: an item without an id or a name; expected item {{ id: 1 name: "cat" }}')
        _add(names, item.id, name, file)
    if not names:
        raise DataError(f'{file} lists no classes; expected item {{ id: 1 name: "cat" }}')
    return names


def _add(names: dict[int, str], number: int, name: str, file: Path) -> None:
    if number in names:
        raise DataError(f"{file}: the id {number} occurs twice")
    names[number] = name


def _by_id(names: Mapping[int, str], file: Path, used: Sequence[int]) -> tuple[str, ...]:
    """Order names by id; without an id 0 that an example needs, class 0 is the background."""
    found = dict(names)
    if 0 not in found and 0 not in used and BACKGROUND not in found.values():
        found[0] = BACKGROUND
    if gap := sorted(set(range(len(found))) - set(found)):
        raise DataError(
            f"{file}: no class has the id {gap[0]}, but one has {max(found)}; ids run from 0 without a gap"
            + (f"; add a line such as 0:{BACKGROUND} if no example has that label" if gap[0] == 0 else "")
        )
    if 0 not in names:
        log.info("%s: its ids start at 1, so class 0 is %r, without examples", file, BACKGROUND)
    return tuple(found[number] for number in range(len(found)))


def classes(lists: Sequence[Path], texts: Texts, used: Sequence[int]) -> tuple[str, ...]:
    """The classes of records, of which all lists must say the same."""
    if not lists:
        return _of_texts(texts, used)
    (first, found), *others = ((file, read(file, used)) for file in lists)
    for file, names in others:
        if names != found:
            raise DataError(f"{file} lists other classes than {first.name}; remove the wrong one")
    _require_texts(found, texts, " and ".join(file.name for file in lists))
    return found


def _of_texts(texts: Texts, used: Sequence[int]) -> tuple[str, ...]:
    """Return the classes that texts name, by label; where no record has a text, the labels themselves."""
    labels: dict[str, tuple[int, str]] = {}
    names: dict[int, tuple[str, str]] = {}
    for (label, text), place in texts.items():
        one = names.setdefault(label, (text, place))
        if _plain(one[0]) != _plain(text):
            raise DataError(f"{place}: label {label} is {text!r}, but {one[0]!r} in {one[1]}; {LIST}")
        two = labels.setdefault(_plain(text), (label, place))
        if two[0] != label:
            raise DataError(f"{place}: {text!r} is label {label}, but label {two[0]} in {two[1]}; {LIST}")
    found = [class_name(names[label][0]) if label in names else str(label) for label in range(max(used) + 1)]
    if names and 0 not in names and 0 not in used:
        found[0] = BACKGROUND
    what = "image/class/text names the classes" if names else "no list of classes, so labels name themselves"
    log.info("%s: %s", what, _first(found))
    return tuple(found)


def _require_texts(classes: Sequence[str], texts: Texts, where: str) -> None:
    """Check that texts are the names of their labels, unless none of them is the name of any class."""
    log.info("the classes are those of %s: %s", where, _first(classes))
    names = [_plain(name) for name in classes]
    known = set(names)
    if not any(_plain(text) in known for _, text in texts):
        if texts:
            _, text = next(iter(texts))
            log.info("image/class/text has other words than %s, such as %r, and is not used", where, text)
        return
    wrong = [
        f"{place}: label {label} is {text!r}, but {classes[label]!r} in {where}"
        for (label, text), place in texts.items()
        if _plain(text) != names[label]
    ]
    if wrong:
        raise DataError(f"{listed(wrong, SHOWN)}; correct the list or the records")


def _plain(name: str) -> str:
    """A name without what programs change in it: case, blanks and the signs that stand for blanks."""
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


def _first(classes: Sequence[str]) -> str:
    return listed((f"{label}:{name}" for label, name in enumerate(classes)), SHOWN)
