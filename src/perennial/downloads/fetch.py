"""One verified file in a folder, from the first mirror that has it."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from perennial.downloads import addresses, local, lock, room, verify
from perennial.downloads.failures import Failure, Passing, WrongBytes
from perennial.downloads.http import Job
from perennial.downloads.limits import Deadline, Limits
from perennial.downloads.partial import Partial
from perennial.downloads.retries import Retries
from perennial.downloads.wanted import Wanted

log = logging.getLogger(__name__)


class Unavailable(Exception):
    """No mirror gave the file; says what each answered."""

    def __init__(self, wanted: Wanted, answers: Sequence[str], *, may_pass: bool) -> None:
        super().__init__("".join(f"\n  {answer}" for answer in answers) or "\n  no mirror of it is known")
        self.wanted = wanted
        self.may_pass = may_pass


def fetch(
    wanted: Wanted,
    mirrors: Sequence[str],
    folder: Path,
    limits: Limits,
    credentials: tuple[str, str] | None = None,
) -> Path:
    """The file in the folder, verified: the one that is there, or what a mirror (its base address) has.

    Nothing stands under the final name that was not verified, at no time.

    Raises:
        Unavailable: no mirror has the right file, or none could be reached.
        PerennialError: the disk refuses.
    """
    file = folder / wanted.name
    # First without the lock, so that a folder that cannot be written serves too.
    if not verify.at_hand(file, wanted):
        with room.writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with lock.alone(file, limits.total_s):
            # Another process may have brought it by the time that this one has the lock.
            if not verify.at_hand(file, wanted):
                _fetch(wanted, mirrors, file, limits, credentials)
                return file
    log.info("%s is at hand and right, %d bytes", file, file.stat().st_size)
    return file


def _fetch(
    wanted: Wanted,
    mirrors: Sequence[str],
    file: Path,
    limits: Limits,
    credentials: tuple[str, str] | None,
) -> None:
    """Asks the mirrors in their order."""
    deadline, started = Deadline.after(limits.total_s), time.monotonic()
    answers, may_pass, retries = [], False, 0
    wrong = verify.wrong(file, wanted) if file.exists() else None
    if wrong:
        answers.append(f"{file}: {wrong}; it was left there and not used")
    with Partial(file.parent, wanted.name) as partial:
        for mirror in mirrors:
            url = mirror + wanted.name
            job = Job(
                wanted=wanted,
                url=url,
                partial=partial,
                limits=limits,
                deadline=deadline,
                credentials=credentials,
            )
            try:
                retries += _bring_right(job)
            except Failure as failure:
                answers.append(f"{addresses.public(url)}: {failure}")
                may_pass |= failure.may_pass
                continue
            if file.exists():
                log.warning("%s: %s; kept as %s", file, wrong or "of another origin", partial.reject(file))
            partial.commit(file)
            _tell(job, file, time.monotonic() - started, retries)
            return
        if partial.size and wanted.sha256:
            answers.append(f"{partial.size:,} bytes are kept in {partial.file}, for the next run to go on from")
    # A wrong file that a person put there does not get better by waiting.
    raise Unavailable(wanted, answers, may_pass=may_pass and wrong is None)


def _bring_right(job: Job) -> int:
    """Brings the right file, and gives the number of retries that it took."""
    retries = _bring(job)
    wrong = verify.wrong(job.partial.file, job.wanted)
    if wrong and job.partial.resumed_from is not None:
        log.warning("%s, after resuming: %s; from the first byte again", addresses.public(job.url), wrong)
        job.partial.discard()
        retries += 1 + _bring(job)
        wrong = verify.wrong(job.partial.file, job.wanted)
    if wrong:
        raise _rejected(job, wrong)
    return retries


def _bring(job: Job) -> int:
    if job.url.startswith("file:"):
        local.copy(job)
        return 0
    if not job.deadline.left_s():
        raise Passing(f"not asked, the {job.limits.total_s:g} s that this file may take were over")
    retries = Retries(job)
    try:
        retries.bring()
    except WrongBytes as wrong:
        raise _rejected(job, f"{wrong}{verify.looks_like(job.partial.file)}") from wrong
    return retries.count


def _rejected(job: Job, wrong: str) -> WrongBytes:
    """Keeps wrong bytes for a look at them."""
    return WrongBytes(
        f"{wrong}; the file changed upstream, the transfer broke, or this is an error page; "
        f"file kept as {job.partial.reject().absolute()}"
    )


def _tell(job: Job, file: Path, seconds: float, retries: int) -> None:
    """The line of a finished file."""
    partial = job.partial
    log.info(
        "fetched %s: %d bytes in %.1f s, %.1f MB/s, %d retries%s",
        addresses.public(job.url),
        file.stat().st_size,
        seconds,
        partial.received_bytes / 1e6 / max(seconds, 1e-3),
        retries,
        "" if partial.resumed_from is None else f", resumed from byte {partial.resumed_from}",
    )
