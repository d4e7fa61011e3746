"""One try to bring a partial file to its end over HTTP."""

from dataclasses import dataclass

from perennial.downloads import addresses, credentials, failures, progress, redirects, resume, room, verify
from perennial.downloads.exchange import Answer
from perennial.downloads.failures import Passing, Refused, WrongBytes
from perennial.downloads.limits import Deadline, Limits
from perennial.downloads.partial import Partial
from perennial.downloads.resume import Point
from perennial.downloads.wanted import Wanted

IDENTITY = {"Accept-Encoding": "identity"}
# Some servers say gzip of a file that is gzip itself; any other packing on the way is not the file.
GZIP_NAMES = (".gz", ".tgz")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A file to bring, from where and within which limits."""

    wanted: Wanted
    url: str
    partial: Partial
    limits: Limits
    deadline: Deadline
    credentials: tuple[str, str] | None = None  # user, password


def bring(job: Job) -> None:
    """Gets what is missing of the file; everything, where it is not sure to be the rest of the same version.

    Raises:
        Failure: nothing came, not all, or the wrong thing; what came stays in the partial file.
        PerennialError: the disk refuses.
    """
    # Without a digest to check the whole with, no server is trusted to go on where it stopped.
    point = job.partial.point(addresses.public(job.url)) if job.wanted.sha256 else None
    if point is not None and point.offset == (point.version.total or job.wanted.exact_bytes):
        job.partial.go_on()  # a kill came between the last byte and the check, or the end was not told
    elif point is None or not _rest(job, point):
        with redirects.ask(job.url, IDENTITY, job.limits, job.deadline, job.credentials) as answer:
            _save_whole(job, answer)


def _rest(job: Job, point: Point) -> bool:
    """Whether the server went on from the point or sent everything anew."""
    headers = IDENTITY | resume.conditions(point)
    with redirects.ask(job.url, headers, job.limits, job.deadline, job.credentials) as answer:
        total = resume.continued_to(point, answer.headers)
        if answer.status == 206 and total is not None:
            _require_plain(answer, job.wanted)
            job.partial.go_on()
            _copy(job, answer, total)
        elif answer.status in {206, 416}:
            job.partial.discard()
            return False
        else:
            _save_whole(job, answer)
    return True


def _save_whole(job: Job, answer: Answer) -> None:
    """Takes a file from its first byte."""
    if answer.status == 401:
        raise Refused("HTTP 401: the server requires a user and password; " + credentials.HINT)
    if answer.status != 200:
        raise failures.of_status(answer.status, answer.headers)
    _require_plain(answer, job.wanted)
    version = resume.version_of(addresses.public(job.url), answer.headers)
    if job.wanted.sha256 is None and not _has_end(answer):
        raise Refused("no length was told, so that a cut file would pass for a whole one")
    job.partial.begin(version)
    _copy(job, answer, version.total)


def _copy(job: Job, answer: Answer, total: int | None) -> None:
    """Adds the body to the file, which should have `total` bytes then, if that is known."""
    partial = job.partial
    expected = total if total is not None else job.wanted.exact_bytes
    if job.wanted.most_bytes is None or (expected or 0) <= job.wanted.most_bytes:
        room.require(partial.file.parent, max(0, (expected or 0) - partial.size))
    try:
        with progress.bar(job.wanted.name, partial.size, expected) as advance:
            for piece in answer.body:
                partial.append(piece)
                advance(len(piece))
                _require_bounded(job, total)
    except Passing as failure:
        raise Passing(_got(partial, expected, str(failure))) from failure
    cut = not _has_end(answer) and partial.size < (job.wanted.bytes or 0)
    if (total is not None and partial.size != total) or (cut and not verify.is_page(partial.file)):
        raise Passing(_got(partial, expected or job.wanted.bytes, "then the connection ended"))


def _require_bounded(job: Job, total: int | None) -> None:
    """Stops reading what cannot be the file; its beginning is there by now, to tell what it is."""
    most = job.wanted.most_bytes
    if most is not None and (total or job.partial.size) > most:
        size = f"{total:,} bytes" if total else f"more than {most:,} bytes"
        raise WrongBytes(f"{size}, expected {job.wanted.bytes:,}")


def _require_plain(answer: Answer, wanted: Wanted) -> None:
    encoding = answer.headers.get("Content-Encoding", "identity").lower()
    of_the_file = encoding in {"gzip", "x-gzip"} and wanted.name.endswith(GZIP_NAMES)
    if encoding != "identity" and not of_the_file:
        raise Refused(f"Content-Encoding {encoding!r}, asked for identity")


def _has_end(answer: Answer) -> bool:
    """Whether a body that was cut can be told from a whole one."""
    return resume.announced_bytes(answer.headers) is not None or "Transfer-Encoding" in answer.headers


def _got(partial: Partial, expected: int | None, reason: str) -> str:
    of_all = "" if expected is None else f" of {expected:,}"
    return f"got {partial.size:,}{of_all} bytes, {reason}"
