"""Original files, verified, into the raw folder."""

import gzip
import hashlib
import logging
import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import httpx

from perennial import files
from perennial.config import Config
from perennial.datasets import DATASETS
from perennial.datasets.dataset import SourceFile
from perennial.errors import ConfigError, DataError, PerennialError

log = logging.getLogger(__name__)
TIMEOUT = httpx.Timeout(30, connect=10)  # seconds


def download(config: Config) -> None:
    """Puts the data set's files into the raw folder, each from the first mirror that has the right one.

    A verified file is kept under `<work>/downloads/<data set>/`, where one placed by hand is found too.

    Raises:
        DataError: no mirror has a file with the right digest; says what each answered, and where
            to put the file by hand.
        PerennialError: no mirror could be reached, which may pass.
    """
    dataset = DATASETS[config.dataset.name]
    base_url = config.dataset.base_url
    mirrors = (base_url.rstrip("/") + "/",) if base_url else dataset.mirrors
    if config.dataset.digests == "record" and not base_url:
        raise ConfigError(
            "dataset.digests: record needs dataset.base_url; the built-in mirrors have pinned digests"
        )
    kept = config.paths.work / "downloads" / config.dataset.name
    with files.new_folder(config.paths.raw) as raw:
        for source in dataset.files:
            url = _public(mirrors[0] + source.name)
            expected = source if config.dataset.digests == "pinned" else _recorded(config.paths.digests, url)
            file = _fetch(source.name, mirrors, kept, expected)
            _link(file, raw / source.name)
            if expected is None:
                _record(config.paths.digests, url, files.sha256(file))
    log.info("downloaded %s: %d files", config.dataset.name, len(dataset.files))


def _recorded(file: Path, url: str) -> str | None:
    """The digest that the first download from an address had; None where this is the first."""
    digests: dict[str, str] = files.read_json(file) if file.exists() else {}
    return digests.get(url)


def _record(file: Path, url: str, digest: str) -> None:
    """Notes the digest of a first download, for git to track."""
    digests = files.read_json(file) if file.exists() else {}
    files.write_json(file, {**digests, url: digest})
    log.info("recorded the sha256 of %s in %s; commit that file", url, file)


def _fetch(name: str, mirrors: tuple[str, ...], kept: Path, expected: SourceFile | str | None) -> Path:
    """The verified file in the kept folder, from there or from the first mirror that has it."""
    file, answers, may_pass = kept / name, [], True
    if file.exists() and expected is not None:
        if not (wrong := _wrong_digest(file, expected)):
            return file
        answers.append(f"{file}: {wrong}; it was left there and not used")
        may_pass = False
    partial = kept / f"{name}.part"
    kept.mkdir(parents=True, exist_ok=True)
    for mirror in mirrors:
        url = _public(mirror + name)
        try:
            _save(_chunks(mirror + name), partial)
        except (_Unreadable, httpx.HTTPError, httpx.InvalidURL) as error:
            answers.append(f"{url}: {_reason(error)}")
            may_pass &= _may_pass(error)
            continue
        if wrong := _wrong_digest(partial, expected):
            answers.append(
                f"{url}: {wrong}; the file changed upstream, the transfer broke, or this is an error page"
            )
            may_pass = False
            continue
        partial.replace(file)
        log.info("fetched %s, %d bytes", url, file.stat().st_size)
        return file
    partial.unlink(missing_ok=True)
    by_hand = f" Without a network, put the file at {file} and run this again." if expected else ""
    # What may pass can be tried again by the flow; wrong bytes stay wrong.
    kind = PerennialError if may_pass else DataError
    raise kind(
        f"{name} could not be had:\n"
        + "".join(f"  {answer}\n" for answer in answers)
        + "Nothing was put in its place."
        + by_hand
    )


class _Unreadable(Exception):
    """A file:// address has nothing to read."""


def _save(chunks: Iterator[bytes], file: Path) -> None:
    """Writes what comes to a file; a full disk is this machine's fault and not the mirror's."""
    try:
        with file.open("wb") as stream:
            for chunk in chunks:
                stream.write(chunk)
    except OSError as error:
        raise PerennialError(f"{file} cannot be written: {error}; make room and run this again") from error


def _may_pass(error: Exception) -> bool:
    """Whether a later try may succeed: the network failed, or the server said that it was busy or broken."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code in {408, 429} or error.response.status_code >= 500
    return isinstance(error, httpx.TransportError)


def _chunks(url: str) -> Iterator[bytes]:
    """The content behind an address."""
    if url.startswith("file:"):
        try:
            with Path(url2pathname(urlsplit(url).path)).open("rb") as stream:
                while chunk := stream.read(files.CHUNK_BYTES):
                    yield chunk
        except OSError as error:
            raise _Unreadable(str(error)) from error
        return
    with (
        httpx.Client(timeout=TIMEOUT, follow_redirects=True) as client,
        # A .gz file is wanted as it is, not unpacked on the way.
        client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response,
    ):
        response.raise_for_status()
        yield from response.iter_raw(files.CHUNK_BYTES)


def _wrong_digest(file: Path, expected: SourceFile | str | None) -> str | None:
    """What is wrong with a file's digest; a pinned file may be compressed otherwise than the original."""
    found = files.sha256(file)
    if isinstance(expected, SourceFile):
        right = found == expected.sha256 or _content_sha256(file) == expected.content_sha256
        expected = expected.sha256
    else:
        right = expected in {found, None}
    return None if right else f"sha256 {found}, expected {expected}"


def _content_sha256(file: Path) -> str | None:
    """The SHA-256 of what a gzip file holds."""
    digest = hashlib.sha256()
    try:
        with gzip.open(file) as stream:
            while chunk := stream.read(files.CHUNK_BYTES):
                digest.update(chunk)
    except (OSError, EOFError, zlib.error):
        return None
    return digest.hexdigest()


def _link(file: Path, target: Path) -> None:
    """Gives a file a second name; a copy where the file system has no hard links."""
    try:
        os.link(file, target)
    except OSError:
        shutil.copyfile(file, target)


def _reason(error: Exception) -> str:
    """What went wrong, without the address that httpx repeats."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"HTTP {error.response.status_code}"
    return str(error) or type(error).__name__


def _public(url: str) -> str:
    """An address without the secrets that may stand in it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
