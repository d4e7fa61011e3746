"""Digests of files and folders as DVC computes them, without the files that it ignores."""

import hashlib
import importlib
import json
import re
from collections.abc import Callable, Mapping
from fnmatch import translate
from itertools import takewhile
from pathlib import Path
from typing import Any

from perennial.base import files

IGNORE = ".dvcignore"


def digest(path: Path) -> str:
    """Compute the MD5 as DVC 3 does: of a file's content, or of the JSON list of a folder's files."""
    digests = {name: files.md5(file) for name, file in files_of(path).items()}
    return digest_of(digests) if path.is_dir() else digests[""]


def digest_of(members: Mapping[str, str]) -> str:
    """The digest of a folder from the digests of its files by their relative paths."""
    listed = [{"md5": md5, "relpath": name} for name, md5 in sorted(members.items())]
    return f"{hashlib.md5(json.dumps(listed).encode(), usedforsecurity=False).hexdigest()}.dir"


def files_of(path: Path) -> dict[str, Path]:
    """The files of a folder by their relative paths, as DVC sees them; a file itself has an empty one."""
    if not path.is_dir():
        return {"": path}
    ignored = _ignored(path.absolute())
    found = [file for file in path.rglob("*") if file.is_file() and not ignored(file.absolute())]
    return {file.relative_to(path).as_posix(): file for file in found}


def _ignored(path: Path) -> Callable[[Path], bool]:
    """Whether DVC ignores a file below this absolute path: by each .dvcignore up to the project's."""
    inside = list(takewhile(lambda folder: not (folder / ".dvc").is_dir(), path.parents))
    folders = path.parents[: len(inside) + 1]
    specs = [(folder, _patterns(folder, path)) for folder in folders if (folder / IGNORE).is_file()]
    return lambda file: any(spec.match_file(file.relative_to(folder).as_posix()) for folder, spec in specs)


def _patterns(folder: Path, path: Path) -> Any:
    """The patterns of the .dvcignore in a folder; of a path that it ignores as a whole, those of names."""
    read = importlib.import_module("pathspec").GitIgnoreSpec.from_lines  # only where it is needed
    lines = (folder / IGNORE).read_text(encoding="utf-8").splitlines()
    whole = read(lines)
    if whole.match_file(f"{path.relative_to(folder).as_posix()}/"):
        return read([line for line in lines if "/" not in line.strip().rstrip("/")])
    return whole


def ignored_names(path: Path) -> re.Pattern[str]:
    """The names in the .dvcignore above a path; to match names is faster than paths, for many images."""
    above = (folder / IGNORE for folder in path.absolute().parents)
    file = next(filter(Path.is_file, above), None)
    lines = file.read_text(encoding="utf-8").splitlines() if file else []
    names = [line for line in map(str.strip, lines) if line and "/" not in line and line[0] not in "#!"]
    return re.compile("|".join(map(translate, names)) or "(?!)")
