"""What the names of folders and files say: classes, splits, documents, or nothing."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence, Set
from decimal import Decimal
from pathlib import Path

from perennial.base.choices import SPLIT_WORDS, Split, split_named
from perennial.base.errors import DataError, listed
from perennial.data.datasets.own.class_lists import class_name

# Names of folders that hold images of any class.
_IMAGES = (
    "(?:images?|imgs?|photos?|pictures?|pics?|jpe?gs?|pngs?|jpe?gimages|data|files|masks?|parts?|"
    "batch(?:es)?|chunks?)"
)
CONTAINER = re.compile(rf"(?:.*[^a-z])?{_IMAGES}[^a-z]*", re.IGNORECASE)
ANY_IMAGES = re.compile(rf"{_IMAGES}[^a-z]*", re.IGNORECASE)  # `with_mask` is a class
COPY = re.compile(r"(?: - Copy| copy(?: \d+)?)? ?(?:\(\d+\))?\Z")  # what desktops add to a second one
DATE = re.compile(r"(?:19|20)\d\d([-_. ]?)(?:0[1-9]|1[0-2])(?:\1[0-3]\d)?")
LOOK_ALIKE = str.maketrans("‘’“”`‐‑‒–—−АВЕКМНОРСТХаеорсухіј", "'''''------ABEKMHOPCTXaeopcyxij")  # noqa: RUF001
NO_LABEL = re.compile(r"(?:un|not?[\W_]*)(?:label|annotat).*", re.IGNORECASE)
# Documents that say which images are of which split.
SPLITTING = re.compile(
    r"(?:.*[\W_])?(?:splits?|partitions?|hold[\W_]?out)(?:[\W_].*)?"
    r"\.(?:csv|json|lst|mat|pkl|tsv|txt|xml|ya?ml)",
    re.IGNORECASE,
)
SHOWN = 3
SPLIT_NAMES = ", ".join(SPLIT_WORDS)
DOCUMENTS = {
    ".aae", ".cache", ".csv", ".db", ".htm", ".html", ".ini", ".ipynb", ".json", ".jsonl", ".log", ".lst",
    ".m", ".mat", ".md", ".pdf", ".pkl", ".py", ".rst", ".sh", ".thm", ".tsv", ".txt", ".xml", ".xmp", ".yaml",
    ".yml",
}  # fmt: skip
VIDEOS = {".3gp", ".avi", ".m4v", ".mov", ".mp4"}  # of Live Photos
DOCUMENT_NAMES = {"authors", "changelog", "citation", "copying", "licence", "license", "notice", "readme"}
TABLE = "write a table such as labels.csv with the columns file and label"


def require_classes(classes: Sequence[str], where: Path, counts: Mapping[str, int] | None = None) -> None:
    """Check that there are two or more classes whose names differ visibly; `counts`: of their images."""
    if len(classes) < 2:
        found = f"images of one class, {some(classes)}" if classes else "no image has a label"
        raise DataError(f"{where}: {found}; expected two or more classes")
    seen: dict[object, str] = {}
    for name in classes:
        first = COPY.sub("", name)
        if (other := seen.setdefault(_alike(first if first in classes else name), name)) != name:
            sizes = {each: f" ({counts[each]} images)" if counts else "" for each in (other, name)}
            both = " and ".join(f"{each!a}{size}" for each, size in sizes.items())
            raise DataError(
                f"{where}: one class or two? {both} differ only in blanks, hyphens, case, quotes, last dots, "
                "Unicode form, look-alikes, number format or as copies; write one name for both, or other names"
            )


def _alike(name: str) -> object:
    """What names of one class have in common."""
    shown = unicodedata.normalize("NFKC", class_name(name).translate(LOOK_ALIKE))
    hidden = [mark for mark in shown if unicodedata.category(mark) == "Cf" or "\ufe00" <= mark <= "\ufe0f"]
    shown = " ".join(shown.translate(dict.fromkeys(map(ord, hidden))).strip("'\" ").rstrip(". ").split())
    if re.fullmatch(r"[+-]?[0-9]+(?:[.,][0-9]+)?(?:e[+-]?[0-9]{1,2})?", shown, re.IGNORECASE):
        return Decimal(shown.replace(",", "."))
    # Letters may be classes, in either case.
    return re.sub(r"[\s_-]+", " ", shown).casefold() if len(shown) > 1 else shown


def meant_split(folders: Iterable[str]) -> str:
    """Suggest the name of a split for folders such as `seg_train`."""
    for folder in sorted(folders):
        for word in folder.casefold().replace("-", "_").replace(" ", "_").split("_"):
            if split := split_named(word):
                return f"; if {folder!r} is a split, name it {split!r}"
    return ""


def table_split(name: str) -> Split | None:
    """Return the split that the words of a table's name mean, or its folder, if it is one."""
    last = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.rpartition(".")[0].rpartition("/")[2])  # TestImages
    words = re.split(r"[^a-z]+", last.lower())
    found = {split for word in words if (split := split_named(word))}
    folder = split_named(name.partition("/")[0]) if "/" in name and not found else None
    return found.pop() if len(found) == 1 else folder


def some(names: Iterable[str]) -> str:
    """List the first names and the number of remaining ones."""
    return listed(map(repr, sorted(names)), SHOWN) or "nothing"


def require_no_splits(classes: Sequence[str], where: Path) -> None:
    """Check that folders with images are not splits, or folders of any images, without the classes of these."""
    parts = [[part for part in re.split(r"[^a-z]+", name.casefold()) if part] for name in classes]
    splits = [{split for part in each if (split := split_named(part))} for each in parts]
    rests = {tuple(part for part in each if not split_named(part)) for each in parts}
    what = ""
    if all(len(each) == 1 for each in splits) and len(rests) == 1 and len(set.union(*splits)) > 1:
        what = "splits"
    elif all(map(ANY_IMAGES.fullmatch, classes)):
        what = "folders of any images"
    elif all(map(DATE.fullmatch, classes)):
        what = "dates"
    if what:
        raise DataError(
            f"{where}: {some(classes)} are named like {what}, not like classes; put the images into a folder "
            "for each class, or write a table such as labels.csv with the columns file and label; if these are "
            "classes, rename them"
        )


def is_document_name(name: str, beside: Set[str] = DOCUMENTS | VIDEOS) -> bool:
    """Whether a name is that of a document or video beside the images, such as a licence or a Live Photo's."""
    stem, dot, ending = name.rpartition("/")[2].lower().rpartition(".")
    return (stem if stem and dot else ending) in DOCUMENT_NAMES or (stem != "" and f".{ending}" in beside)
