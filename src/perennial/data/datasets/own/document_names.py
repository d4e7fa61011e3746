"""Documents beside images: their names, and what those of images say of a folder without classes."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

DOCUMENTS = {
    ".csv", ".htm", ".html", ".ipynb", ".json", ".jsonl", ".log", ".lst", ".m", ".mat", ".md", ".pdf", ".pkl",
    ".py", ".rst", ".sh", ".tsv", ".txt", ".xml", ".yaml", ".yml",
}  # fmt: skip
DOCUMENT_NAMES = {"authors", "changelog", "citation", "copying", "licence", "license", "notice", "readme"}
TABLE = "write a table such as labels.csv with the columns file and label"
# A name that ends with a number: what is before it may be a class.
NUMBERED = re.compile(r"(.*[^\W\d_].*?)[\W_]*\d+\)?")


def is_document(name: str) -> bool:
    """Whether a name is that of a document, such as a licence, beside the class folders."""
    stem, dot, ending = name.rpartition("/")[2].lower().rpartition(".")
    return (stem if stem and dot else ending) in DOCUMENT_NAMES or (stem != "" and f".{ending}" in DOCUMENTS)


def hints(images: Iterable[str]) -> list[str]:
    """Return what the names of images say, if they begin with classes."""
    return _named_like_classes([PurePosixPath(name).stem for name in images])


def _named_like_classes(stems: list[str]) -> list[str]:
    found = [match[1] for stem in stems if (match := NUMBERED.fullmatch(stem))]
    names = sorted(set(found))
    if len(found) < len(stems) or not 2 <= len(names) <= len(stems) / 2:
        return []
    text = f"the names of the images begin like {len(names)} classes, {names[0]!r} to {names[-1]!r}"
    return [f"{text}; move the images into a folder for each class, or {TABLE}"]
