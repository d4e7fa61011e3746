"""Safety rules for archives: size limits against bombs, and names that are unambiguous on every file system."""

import logging
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perennial.base.errors import DataError, listed

log = logging.getLogger(__name__)
SHOWN = 10  # names in a message
# Control characters, and characters that change the text direction or end a line.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
LEFTOVERS = {
    ".DS_Store", ".localized", ".Spotlight-V100", ".fseventsd", "__MACOSX", "Thumbs.db", "desktop.ini",
    ".directory", ".nomedia", ".picasa.ini", ".thumbnails", "@eaDir", ".git", ".gitignore", ".gitattributes",
    ".gitkeep", ".keep", ".dvc", ".dvcignore", ".ipynb_checkpoints", ".cache", "Icon\r",
    "$RECYCLE.BIN", "RECYCLER", "#recycle", "System Volume Information", "lost+found",
}  # fmt: skip
_DRIVE = re.compile(r"[A-Za-z]:")
# A file that Git LFS has not fetched begins so.
LFS = b"version https://git-lfs.github.com/spec/v1"
IS_LFS = "a pointer of Git LFS instead of the file; run `git lfs pull`"
# The comment in a pax header of a tar file made from a local folder with names that are not portable.
LOCAL_NAMES = b"perennial: names of a local folder"


@dataclass(frozen=True, kw_only=True)
class ArchiveLimits:
    """Limits on the content of an archive. ImageNet (1.4 million files, 170 GB) passes."""

    members: int = 5_000_000
    bytes: int = 1 << 40  # of the archive as a plain tar file
    ratio: int = 200  # bytes of the plain tar file divided by those of the archive
    ratio_from_bytes: int = 64 << 20  # a small tar file is mostly zeros, whatever it holds
    depth: int = 16  # parts of a name

    def most_bytes(self, archive_bytes: int) -> int:
        """The maximum size of the plain tar file from an archive of this size."""
        return min(self.bytes, max(self.ratio_from_bytes, self.ratio * archive_bytes))


LIMITS = ArchiveLimits()
REPACK = "unpack it with a program that knows its encoding, and give the folder"


class Names:
    """The names so far, each checked against the others; `portable`: unambiguous on other file systems, too."""

    def __init__(self, archive: Path, limits: ArchiveLimits, *, portable: bool = True) -> None:
        self._archive, self._limits = archive, limits
        self.portable = portable
        self._files: set[str] = set()  # folded
        self._folders: dict[str, str] = {}  # folded: as it is spelt
        self._count = 0

    def add(self, encoded: bytes, *, folder: bool) -> str:
        """The name without a leading `./` and a trailing slash; the archive's own folder has none."""
        self._count += 1
        if self._count > self._limits.members:
            raise DataError(f"{self._archive} holds more than {self._limits.members} members")
        try:
            name = encoded.decode().removeprefix("./")
        except UnicodeDecodeError:
            raise self._refused(encoded, f"its name is not UTF-8; {REPACK}") from None
        if folder:
            name = name.removesuffix("/")
            if name in {"", "."}:
                return ""
        if broken := broken_rule(name, self._limits.depth, portable=self.portable):
            raise self._refused(name, broken)
        if not folder:
            key = self._key(name)
            if key in self._files:
                raise self._refused(name, "another member has this name, up to case and normalization")
            if key in self._folders:
                raise self._refused(name, "it is a file and a folder")
            self._files.add(key)
        self._add_folder(name if folder else name.rpartition("/")[0])
        return name

    def _add_folder(self, name: str) -> None:
        while name:
            key = self._key(name)
            if key in self._files:
                raise self._refused(name, "it is a file and a folder")
            spelt = self._folders.setdefault(key, name)
            if spelt != name:
                raise self._refused(name, f"it differs from {spelt!r} only in case or normalization")
            name = name.rpartition("/")[0]

    def _key(self, name: str) -> str:
        return folded(name) if self.portable else name

    def _refused(self, name: str | bytes, rule: str) -> DataError:
        return DataError(f"{self._archive}: member {name!r} is refused: {rule}")


def broken_rule(name: str, depth: int = LIMITS.depth, *, portable: bool = True) -> str | None:
    """Return the rule that a name within an archive breaks, if any."""
    parts = name.split("/")
    dropped = any(part.endswith((".", " ")) and part not in {".", ".."} for part in parts)
    rules = (
        (portable and CONTROL.search(name), "its name holds a control character"),
        (portable and ("\\" in name or _DRIVE.match(name)), "its name holds a backslash or a drive letter"),
        (portable and dropped, "a part of its name ends with a dot or a space, which some file systems drop"),
        (name.startswith("/"), "its name is absolute"),
        (".." in parts, "its name leads out of its folder"),
        (not all(parts) or "." in parts, "its name has an empty part"),
        (len(parts) > depth, f"it is nested deeper than {depth} folders"),
    )
    return next((rule for broken, rule in rules if broken), None)


def leftover(name: str) -> bool:
    """Whether desktops or tools leave a path behind, such as `.DS_Store`, `__MACOSX/` or `.git/`."""
    return any(
        part in LEFTOVERS or part.startswith(("._", ".nfs", ".Trash", ".~lock.", "~$"))
        for part in name.split("/")
    )


def without_leftovers(names: Sequence[str], where: Path) -> list[str]:
    """The names of what no desktop or tool leaves behind; a line names the others."""
    log_leftovers(where, [name for name in names if leftover(name)])
    return [name for name in names if not leftover(name)]


def log_leftovers(where: Path, ignored: Sequence[str]) -> None:
    """Name in a line what was ignored."""
    if ignored:
        what = f"{len(ignored)} files and folders that desktops or tools leave"
        log.info("%s: ignored %s: %s", where, what, listed(map(repr, ignored), SHOWN))


def hidden(name: str) -> bool:
    """Whether a part of a path starts with a dot."""
    return any(part.startswith(".") for part in name.split("/"))


def folded(name: str) -> str:
    """A key that is equal for names that some file systems do not distinguish."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
