"""One process at a time downloads a file; the kernel frees the lock however the process ends."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from perennial.downloads import room
from perennial.runtime import locks


@contextmanager
def alone(file: Path, patience_s: float) -> Iterator[None]:
    """Hold `<name>.lock` beside a file while the block runs.

    Raises:
        PerennialError: another process held it for `patience_s` seconds, or it cannot be written.
    """
    lock = file.with_name(f"{file.name}.lock")
    with ExitStack() as held:
        with room.writing(lock):
            busy = f"another process downloads {file.name}"
            held.enter_context(locks.held(lock, "download", busy=busy, timeout_s=patience_s))
        yield
