"""`python -m perennial STAGE`, the only command in dvc.yaml."""

import atexit
import os
import signal
import sys

_codes: list[object] = []  # exit code of the command that ran


def _end(_number: int, _frame: object) -> None:
    """End at once before and after a stage: there is nothing to clean up."""
    os.write(2, b"perennial: ended by a signal; run it again\n")
    os._exit(75)


def _skip_teardown() -> None:
    """End before the interpreter takes all modules apart: a second of CPU time with TensorFlow."""
    if not _codes or not isinstance(_codes[0], int | None):
        return
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()  # an error leaves the end to the interpreter, which reports it
    os._exit(_codes[0] or 0)


atexit.register(_skip_teardown)  # the first one registered is called last, after all other clean-up
for each in (signal.SIGTERM, signal.SIGINT):
    signal.signal(each, _end)

from perennial import cli  # noqa: E402


def main() -> None:
    """Run the command of this process's arguments."""
    try:
        cli.main()
    except SystemExit as ended:
        _codes.append(ended.code)
        raise


if __name__ == "__main__":
    main()
