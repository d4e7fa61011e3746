"""Edits of text files, each of which must find what it replaces."""

from pathlib import Path


def edit(file: Path, old: str, new: str, count: int = -1) -> None:
    """Replace a text in a file, in all places or in the first `count`."""
    text = file.read_text(encoding="utf-8")
    assert old in text, f"{file} does not have {old!r}"
    file.write_text(text.replace(old, new, count), encoding="utf-8")
