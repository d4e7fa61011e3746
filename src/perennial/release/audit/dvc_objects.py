"""Fetch outputs of any revision by digest, from DVC's cache or else its remote, and verify them."""

import logging
import tempfile
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Self

from perennial.base.errors import ConfigError, DataError
from perennial.release.audit import sides
from perennial.release.audit.needs import DIGEST, FOLDER, members
from perennial.release.audit.sides import Side

log = logging.getLogger(__name__)


class DvcObjects:
    """DVC objects by digest; files from `file` are removed when the context ends."""

    def __init__(self) -> None:
        """Open the cache and the default remote."""
        self._stack, self._files = ExitStack(), dict[str, Path]()
        self._sides: list[Side]
        try:
            self._sides = [side for side in sides.open_sides() if side is not None]
        except (ConfigError, sides.Unsupported) as error:
            log.warning("only DVC's cache is looked at: %s; `dvc fetch --all-commits` fills it", error)
            self._sides = [sides.open_cache()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def fetch(self, digest: str, file: Path, what: str) -> None:
        """Write the content of an object to a file; `what` names it in a message."""
        if not DIGEST.fullmatch(digest):
            raise DataError(f"{what}: {digest!r:.80} is not an MD5 as DVC writes it")
        for side in self._sides:
            file.unlink(missing_ok=True)  # a link to a damaged one
            if side.fetch(digest, file):
                return
        file.unlink(missing_ok=True)
        raise self._lost(digest, what)

    def file(self, digest: str, what: str) -> Path:
        """A temporary file with the content of an object, fetched once; raises as `fetch` does."""
        if digest not in self._files:
            file = self._folder / str(len(self._files))
            self.fetch(digest, file, what)
            self._files[digest] = file
        return self._files[digest]

    def members(self, digest: str, what: str) -> dict[str, str]:
        """The digests of the files of a folder by their relative paths."""
        if not (DIGEST.fullmatch(digest) and digest.endswith(FOLDER)):
            raise DataError(f"{what} is no folder in dvc.lock, but {digest}")
        if (listed := sides.first_content(self._sides, digest)) is None:
            raise self._lost(digest, what)
        return members(listed, what)

    @cached_property
    def _folder(self) -> Path:
        return Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="perennial-")))

    def _lost(self, digest: str, what: str) -> DataError:
        where = " and the ".join(side.name for side in self._sides)
        return DataError(f"{what} is lost: its object {digest} is missing or damaged in the {where} of DVC")
