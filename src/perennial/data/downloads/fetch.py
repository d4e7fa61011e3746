"""Verified source files in a folder, each from the first mirror that has it, with retries."""

import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from perennial.base.errors import DataError, PerennialError
from perennial.base.processes import locks
from perennial.data.downloads import spec as specs
from perennial.data.downloads.connection import Client
from perennial.data.downloads.partial import Download, Partial, disk_errors
from perennial.data.downloads.spec import Failure, FileSpec, TemporaryFailure, TransferLimits, WrongBytes

log = logging.getLogger(__name__)


class Unavailable(Exception):
    """No mirror has the valid file; the message lists the failure of each."""

    def __init__(self, failures: Sequence[str], *, temporary: bool) -> None:
        super().__init__("".join(f"\n  {failure}" for failure in failures) or "\n  no mirrors configured")
        self.temporary = temporary


@dataclass(frozen=True, kw_only=True)
class Fetcher:
    """Downloads verified files into a folder from the first of the mirrors (base URLs) that has them."""

    mirrors: Sequence[str]
    folder: Path
    limits: TransferLimits = specs.LIMITS
    credentials: tuple[str, str] | None = None  # user, password

    def fetch_all(
        self, wanted: Sequence[FileSpec], on_file: Callable[[Path], None] = lambda _: None
    ) -> list[Path]:
        """Return the files of a data set; `on_file` is called after each."""
        fetched = []
        for spec in wanted:
            try:
                fetched.append(self.fetch(spec))
            except Unavailable as error:
                kind = PerennialError if error.temporary else DataError
                raise kind(
                    f"{spec.name} is not available:{error}\nNothing was replaced.{self._by_hand(wanted)}"
                ) from error
            on_file(fetched[-1])
        return fetched

    def fetch(self, spec: FileSpec) -> Path:
        """Return the verified file: the present one, or a download."""
        file = self.folder / spec.name
        # First without the lock: the folder may be read-only.
        if not specs.is_verified(file, spec):
            with disk_errors(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
            lock, busy = self.folder / f"{spec.name}.lock", f"another process downloads {spec.name}"
            with ExitStack() as stack:
                with disk_errors(lock):
                    stack.enter_context(locks.held(lock, "download", busy=busy, timeout_s=self.limits.total_s))
                # Another process may have fetched it meanwhile.
                if not specs.is_verified(file, spec):
                    self._fetch(spec, file)
                    return file
        log.info("%s already downloaded and verified, %d bytes", file, file.stat().st_size)
        return file

    def _fetch(self, spec: FileSpec, file: Path) -> None:
        started = time.monotonic()
        deadline_s = started + self.limits.total_s
        client = Client(limits=self.limits, deadline_s=deadline_s, credentials=self.credentials)
        failures, temporary, retries = [], False, 0
        present = specs.file_mismatch(file, spec) if file.exists() else None
        if present:
            failures.append(f"{file}: {present}; the file was not changed and not used")
        with closing(Partial(self.folder, spec.name)) as partial:
            for mirror in self.mirrors:
                download = Download(spec=spec, url=mirror + spec.name, partial=partial, client=client)
                url = specs.public_url(download.url)
                try:
                    retries += _download_verified(download)
                except Failure as failure:
                    failures.append(f"{url}: {failure}")
                    temporary |= failure.temporary
                    continue
                if file.exists():
                    rejected = partial.reject(file)
                    log.warning("%s: %s; kept as %s", file, present or "of another origin", rejected)
                partial.commit(file)
                seconds, size = time.monotonic() - started, file.stat().st_size
                speed = partial.received_bytes / 1e6 / max(seconds, 1e-3)
                start = partial.resumed_from
                resumed = "" if start is None else f", resumed from byte {start}"
                message = "fetched %s: %d bytes in %.1f s, %.1f MB/s, %d retries%s"
                log.info(message, url, size, seconds, speed, retries, resumed)
                return
            if partial.size and spec.digest:
                failures.append(f"{partial.size:,} bytes kept in {partial.file}; the next run resumes there")
        # A retry does not help against a wrong file that was added manually.
        raise Unavailable(failures, temporary=temporary and present is None)

    def _by_hand(self, wanted: Sequence[FileSpec]) -> str:
        """Instructions for a machine without a network."""
        missing = [spec for spec in wanted if not specs.is_verified(self.folder / spec.name, spec)]
        if not all(spec.digest for spec in missing):
            return ""  # without a digest, a file put there by hand is not accepted
        listed = "".join(f"\n  {spec}" for spec in missing)
        sources, folder = ", ".join(map(specs.public_url, self.mirrors)), self.folder.absolute()
        return f" Without a network, put into {folder}{listed}\n(from {sources}) and run this again."


def _download_verified(download: Download) -> int:
    """Download and verify a file; returns the number of retries."""
    partial = download.partial
    retries = _download(download)
    wrong = specs.file_mismatch(partial.file, download.spec)
    if wrong and partial.resumed_from is not None:
        log.warning(
            "%s, after resuming: %s; restarting from the first byte", specs.public_url(download.url), wrong
        )
        partial.discard()
        retries += 1 + _download(download)
        wrong = specs.file_mismatch(partial.file, download.spec)
    if wrong:
        raise _rejected(partial, wrong)
    return retries


def _download(download: Download) -> int:
    """Complete the partial file; returns the number of retries. Tries that progressed do not count."""
    if download.url.startswith("file:"):
        download.copy()
        return 0
    client, partial, limits = download.client, download.partial, download.client.limits
    if not client.left_s():
        raise TemporaryFailure(f"not tried: {client.late()}")
    fruitless = 0
    for retry in count(1):
        received = partial.received_bytes
        try:
            download.attempt()
        except WrongBytes as wrong:
            raise _rejected(partial, f"{wrong}{specs.unexpected_start(partial.file)}") from wrong
        except TemporaryFailure as failure:
            progressed = partial.received_bytes - received >= limits.progress_bytes
            fruitless = 0 if progressed else fruitless + 1
            pause_s = min(limits.backoff_first_s * 2 ** max(fruitless - 1, 0), limits.backoff_max_s)
            pause_s += random.uniform(0, limits.backoff_first_s)  # noqa: S311  not secret
            pause_s = max(pause_s, min(failure.retry_after_s, limits.retry_after_max_s))
            if fruitless >= limits.tries or pause_s >= client.left_s():
                tries = "1 try" if retry == 1 else f"{retry} tries"
                raise TemporaryFailure(f"{failure} ({tries})") from failure
            log.warning("%s: %s; retry %d in %.1f s", specs.public_url(download.url), failure, retry, pause_s)
            time.sleep(pause_s)
        else:
            break
    return retry - 1


def _rejected(partial: Partial, wrong: str) -> WrongBytes:
    return WrongBytes(
        f"{wrong}; the file changed upstream, the transfer broke, or this is an error page; "
        f"file kept as {partial.reject().absolute()}"
    )
