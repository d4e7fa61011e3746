"""Outputs of any revision by their digests: from DVC's cache, else from its remote, each verified."""

import json
import logging
import tempfile
from pathlib import Path, PurePosixPath
from typing import Self

from perennial.audit import sides
from perennial.audit.needs import DIGEST, FOLDER
from perennial.audit.sides import Side
from perennial.errors import ConfigError, DataError

log = logging.getLogger(__name__)


class Objects:
    """Objects of DVC as files in a temporary folder, each fetched once."""

    def __init__(self) -> None:
        """Opens the cache and the default remote.

        Raises:
            DvcError: DVC's configuration cannot be read.
        """
        self._sides: tuple[Side, ...]
        try:
            cache, remote = sides.open_sides()
            self._sides = (cache,) if remote is None else (cache, remote)
        except (ConfigError, sides.Unsupported) as error:
            log.warning("only DVC's cache is looked at: %s; `dvc fetch --all-commits` fills it", error)
            self._sides = (sides.open_cache(),)
        self._folder = tempfile.TemporaryDirectory(prefix="perennial-")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()

    def file(self, digest: str, what: str) -> Path:
        """A file with the content of an object; `what` names it in a message.

        Raises:
            DataError: it is whole nowhere.
            PerennialError: the remote cannot be reached.
        """
        if not DIGEST.fullmatch(digest):
            raise DataError(f"{what}: {digest!r:.80} is not an MD5 as DVC writes it")
        file = Path(self._folder.name, digest)
        if file.exists():
            return file
        for side in self._sides:
            file.unlink(missing_ok=True)  # a link to a damaged one
            if side.fetch(digest, file):
                return file
        file.unlink(missing_ok=True)
        where = " and the ".join(side.name for side in self._sides)
        raise DataError(f"{what} is lost: its object {digest} is missing or damaged in the {where} of DVC")

    def members(self, digest: str, what: str) -> dict[str, str]:
        """The digests of the files of a folder by their relative paths.

        Raises:
            DataError: the list is whole nowhere, or not valid.
        """
        if not digest.endswith(FOLDER):
            raise DataError(f"{what} is no folder in dvc.lock, but {digest}")
        try:
            listed = json.loads(self.file(digest, what).read_bytes())
            found = {str(each["relpath"]): str(each["md5"]) for each in listed}
        except (ValueError, LookupError, TypeError) as error:
            raise DataError(f"{what}: the object {digest} is no list of a folder") from error
        if any(PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts for name in found):
            raise DataError(f"{what}: the object {digest} names a file outside of the folder")
        return found
