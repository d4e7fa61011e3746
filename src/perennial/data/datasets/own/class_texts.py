"""The classes of records: of lists, of the texts in `image/class/text`, or the labels themselves."""

import logging
import re
from collections.abc import Sequence
from pathlib import Path

from perennial.base.errors import DataError, listed
from perennial.data.datasets.own import class_lists
from perennial.data.datasets.own.class_lists import BACKGROUND, class_name

log = logging.getLogger(__name__)
Texts = dict[tuple[int, str], str]  # by label and text: the place of the first such record
MOST_TEXTS = 100_000  # beyond it, texts are descriptions of images
SHOWN = 3
LIST = "correct the records, or write the classes to labels.txt, as in 0:cat"


def classes(lists: Sequence[Path], texts: Texts, used: Sequence[int], *, whole: bool = True) -> tuple[str, ...]:
    """Return the classes of records with these texts and labels, and log where they are from.

    `whole`: whether these are all records of the data, so that they may settle how a list is meant.
    """
    if not lists:
        return _of_texts(texts, used)
    found = class_lists.read_all(lists, used, whole=whole)
    _check(found, texts, " and ".join(file.name for file in lists))
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
    log.info("%s: %s", what, _shown(found))
    return tuple(found)


def _check(classes: Sequence[str], texts: Texts, where: str) -> None:
    """Check that texts are the names of their labels, unless none of them is the name of any class."""
    log.info("the classes are those of %s: %s", where, _shown(classes))
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


def _shown(classes: Sequence[str]) -> str:
    return listed((f"{label}:{name}" for label, name in enumerate(classes)), SHOWN)
