"""One process at a time works on a file; the kernel ends the turn however the process ends."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perennial.downloads import room
from perennial.downloads.limits import Deadline
from perennial.errors import PerennialError
from perennial.process import taken

log = logging.getLogger(__name__)
POLL_S = 0.1


@contextmanager
def alone(file: Path, patience_s: float) -> Iterator[None]:
    """Holds `<name>.lock` beside a file while the block runs.

    Raises:
        PerennialError: another process held it all the time, or there can be no such file.
    """
    lock = file.with_name(f"{file.name}.lock")
    with room.writing(lock):
        # Stays when the turn ends: removed, it could be locked by two at once.
        stream = lock.open("a")
    with stream:
        if not taken(stream.fileno()):
            log.info("another process fetches %s; waiting for it", file.name)
            deadline = Deadline.after(patience_s)
            while not taken(stream.fileno()):
                if not deadline.left_s():
                    raise PerennialError(
                        f"another process has held {lock.absolute()} for {patience_s:g} s; "
                        "nothing was changed; end it, then run this again"
                    )
                time.sleep(POLL_S)
        yield
