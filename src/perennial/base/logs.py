"""Log lines of a process, on standard error, without the secrets that addresses and settings may hold."""

import logging
import sys
import traceback

from perennial.base.errors import redacted


class Lines(logging.Formatter):
    """Formats log records, tracebacks included, without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        return redacted(super().format(record))


def to_stderr(form: str, level: int, *, dates: str | None = None, force: bool = False) -> None:
    """Write log lines of this form to standard error, unless the process has a log already."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines(form, dates))
    logging.basicConfig(handlers=[handler], level=level, force=force)


def write_traceback() -> None:
    """Print the traceback of the error that is handled now."""
    sys.stderr.write(redacted(traceback.format_exc()))
