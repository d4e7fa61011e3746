"""The two sides where DVC keeps objects: its local cache, and a remote in a folder or in a bucket."""

import hashlib
import logging
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path
from typing import Self

from perennial.base import files
from perennial.base.choices import is_bucket
from perennial.base.dvc import dvc_program
from perennial.base.errors import ConfigError, DataError, PerennialError, redacted
from perennial.base.storage import Changed, Entry, Missing, Store, open_store, s3_requests, together
from perennial.release.audit.needs import DIGEST, FOLDER, members

log = logging.getLogger(__name__)
OBJECTS = "files/md5"
PAGE = 1000  # objects per response
READ_ONLY = 0o444  # as DVC protects its objects
# Options of a remote that affect transfers, but not the location and names of objects.
HARMLESS = re.compile(r"url|verify|jobs|.*timeout|type|shared|acl|grant_.*|sse.*|max_.*|use_ssl")


class Unsupported(PerennialError):
    """A remote that only DVC can read."""


class Side:
    """DVC objects by digest. The methods are thread-safe."""

    def __init__(self, name: str, store: Store, folder: Path | None = None) -> None:
        self.name, self.folder, self.url = name, folder, store.url
        self._store = store
        self.digests_listed = folder is None  # until one proves otherwise

    def listing(self, digests: Collection[str]) -> dict[str, Entry]:
        """Find the objects that exist, with list calls only."""
        wanted, found = set(digests), dict[str, Entry]()
        parts = sorted({digest[:2] for digest in wanted})

        def take(part: str = "") -> list[str]:
            """List a page of all objects, or a part whole; the parts that remain are listed one by one."""
            for number, entry in enumerate(self._store.list(f"{OBJECTS}/{part}"), 1):
                digest = entry.key.removeprefix(f"{OBJECTS}/").replace("/", "")
                if digest in wanted:
                    found[digest] = entry
                if number == PAGE and not part:
                    return [f"{each}/" for each in parts if each >= digest[:2]]
            return []

        with suppress(Missing):  # the folder of a remote that nothing was pushed to
            for _ in together(self._store, take, take() if wanted else []):
                pass
        return found

    def everything(self) -> Iterator[tuple[str, Entry]]:
        """Yield all existing objects by digest, without other files."""
        with suppress(Missing):
            for entry in self._store.list(f"{OBJECTS}/"):
                digest = entry.key.removeprefix(f"{OBJECTS}/").replace("/", "")
                if DIGEST.fullmatch(digest):
                    yield digest, entry

    def linked(self, digest: str) -> bool:
        """Whether a file of this machine is a hard link to an object."""
        return self.folder is not None and (self.folder / object_key(digest)).stat().st_nlink > 1

    def remove(self, digests: Iterable[str], *, versions: bool = False) -> dict[str, str]:
        """Remove objects, and versions that S3 kept; returns why the store refuses to remove some."""

        def take(digest: str) -> tuple[str, str | None]:
            try:
                self._store.delete(object_key(digest))
                if versions:
                    self._store.purge(object_key(digest))
            except (ConfigError, Changed) as refusal:
                return digest, str(refusal)
            return digest, None

        return {digest: why for digest, why in together(self._store, take, digests) if why}

    def content(self, digest: str) -> bytes | None:
        """The content of a small object; None where it is missing or damaged."""
        try:
            found, _ = self._store.get_bytes(object_key(digest))
        except DataError:
            return None
        return found if hashlib.md5(found, usedforsecurity=False).hexdigest() == digest[:32] else None

    def doubtful(self, digest: str, entry: Entry) -> bool:
        """Whether the listing shows another digest, as S3 does with KMS."""
        return self.digests_listed and entry.md5 not in {None, digest[:32]}

    def is_whole(self, digest: str) -> bool:
        """Whether an object exists and matches its digest; reads all of it."""
        if self.folder is not None:
            return _has_digest(self.folder / object_key(digest), digest)
        with tempfile.TemporaryDirectory(prefix="perennial-") as folder:
            return self.fetch(digest, Path(folder, "object"))

    def damaged(self, digests: Collection[str]) -> list[str]:
        """Find objects whose content does not match their digest; reads all of them."""

        def check(digest: str) -> tuple[str, bool]:
            return digest, self.is_whole(digest)

        return [digest for digest, whole in together(self._store, check, digests) if not whole]

    def fetch(self, digest: str, file: Path) -> bool:
        """Write an object to a file, or link it from a folder; returns whether it is there and whole."""
        if self.folder is not None:
            file.symlink_to((self.folder / object_key(digest)).absolute())
            return _has_digest(file, digest)
        try:
            self._store.get(object_key(digest), file)
        except DataError:
            return False
        return _has_digest(file, digest)

    def put(self, digest: str, file: Path) -> None:
        """Write an object from a file, replacing a damaged one; readers see the old or the new content."""
        if self.folder is None:
            self._store.put(object_key(digest), file)
            return
        target = self.folder / object_key(digest)
        files.copy(file, target)
        target.chmod(READ_ONLY)


def first_content(sides: Iterable[Side], digest: str) -> bytes | None:
    """Read a small object from the first side with an intact copy; None if there is none."""
    return next((found for side in sides if (found := side.content(digest)) is not None), None)


def open_sides(remote: str | None = None, options: Mapping[str, str] | None = None) -> tuple[Side, Side | None]:
    """Open DVC's cache and a remote, by default the default one, if there is any; `options`: DVC's."""
    options = dvc_program.configuration() if options is None else options
    name = remote or options.get("core.remote")
    return open_cache(options), _remote(name, options) if name else None


def open_cache(options: Mapping[str, str] | None = None) -> Side:
    """Open DVC's cache; `options`: DVC's options, if already known."""
    cache = dvc_program.cache_folder(dvc_program.configuration() if options is None else options)
    return Side("cache", open_store(str(cache)), cache)


def open_cache_of_runs(home: Path) -> Side | None:
    """Open the cache that the deployed runs on this machine share; None if there is none."""
    cache = home / "cache"
    return Side("cache of runs", open_store(str(cache)), cache) if cache.is_dir() else None


def _remote(name: str, options: Mapping[str, str]) -> Side:
    own = dvc_program.remote_options(name, options)
    url = own["url"]
    if not is_bucket(url) and not Path(url).is_absolute():
        raise Unsupported(f"the remote {name} at {redacted(url)} is neither a folder nor in S3")
    understood = s3_requests.OPTIONS if is_bucket(url) else frozenset()
    unknown = sorted(key for key in own.keys() - understood if not HARMLESS.fullmatch(key))
    if unknown:
        raise Unsupported(f"the remote {name} has options that only DVC knows: {', '.join(unknown)}")
    return Side("remote", open_store(url, own), None if is_bucket(url) else Path(url))


def object_key(digest: str) -> str:
    """Where DVC keeps an object, below its cache or remote."""
    return f"{OBJECTS}/{digest[:2]}/{digest[2:]}"


def _has_digest(file: Path, digest: str) -> bool:
    try:
        return files.md5(file) == digest[:32]
    except FileNotFoundError:
        return False


class DvcObjects:
    """DVC objects by digest; files from `file` are removed when the context ends."""

    def __init__(self) -> None:
        """Open the cache and the default remote."""
        self._stack, self._files = ExitStack(), dict[str, Path]()
        self._sides: list[Side]
        try:
            self._sides = [side for side in open_sides() if side is not None]
        except (ConfigError, Unsupported) as error:
            log.warning("only DVC's cache is looked at: %s; `dvc fetch --all-commits` fills it", error)
            self._sides = [open_cache()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def fetch(self, digest: str, file: Path, what: str) -> None:
        """Write the content of an object to a file; `what` names it in a message."""
        if not DIGEST.fullmatch(digest):
            raise DataError(f"{what}: {digest!r:.80} is not an MD5 as DVC writes it")
        for side in self._sides:
            if side.fetch(digest, file):
                return
            file.unlink(missing_ok=True)  # a link to a damaged one
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
        if (listed := first_content(self._sides, digest)) is None:
            raise self._lost(digest, what)
        return members(listed, what)

    @cached_property
    def _folder(self) -> Path:
        return Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="perennial-")))

    def _lost(self, digest: str, what: str) -> DataError:
        where = " and the ".join(side.name for side in self._sides)
        return DataError(f"{what} is lost: its object {digest} is missing or damaged in the {where} of DVC")
