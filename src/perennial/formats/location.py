"""Where an export lies that a person names."""

from pathlib import Path

from perennial.published import CURRENT

GRAPH = "saved_model.pb"


def found(path: Path) -> Path | None:
    """The folder of the export that a path means: its own, or of a publish folder the current version.

    A version that is replaced meanwhile stays the one.
    """
    for folder in (path, path / CURRENT):
        if (folder / GRAPH).is_file():
            return folder.resolve()
    return None
