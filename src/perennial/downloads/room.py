"""Whether the disk takes a file, and what to say when it does not."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perennial.errors import PerennialError

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Full(PerennialError):
    """The disk, a quota or a limit on the size of files lets no more in."""


def require(folder: Path, needed_bytes: int) -> None:
    """Refuses to begin what cannot end.

    Raises:
        Full: with what is needed and what is free.
    """
    usage = shutil.disk_usage(folder)
    # Some network file systems know no size; they answer 0.
    if usage.total and usage.free < needed_bytes:
        raise Full(
            f"{folder.absolute()} needs {needed_bytes:,} bytes, has {usage.free:,} free; "
            "make room and run this again"
        )


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns what the disk says while the block runs into words.

    Raises:
        Full: no room.
        PerennialError: anything else, with the path and the reason.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in NO_ROOM:
            raise Full(
                f"{path.absolute()} cannot be written: {reason}; nothing of it was left behind; "
                "make room and run this again"
            ) from error
        raise PerennialError(f"{path.absolute()}: {reason}; nothing was put in its place") from error
