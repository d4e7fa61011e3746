"""`python -m perennial STAGE`, the only command in dvc.yaml."""

import atexit
import gc
import os
import signal
import sys
from contextlib import suppress

# Each stage is a process that imports the same modules. Without bytecode, a run takes twice the time.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # images of containers often set it
# Pydantic would search all installed packages for plugins, of which none does anything here.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
gc.disable()  # `cli.command.guarded` enables it: a tenth of the time to start, and what is imported stays
_codes: list[object] = []  # exit code of the command that ran


def _end(number: int, _frame: object) -> None:
    """Exit at once on a signal before or after a stage, since there is nothing to clean up."""
    name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    with suppress(OSError):  # its terminal was closed
        os.write(2, f"perennial: {name} ended it; run it again\n".encode())
    os._exit(75)


def _skip_teardown() -> None:
    """Exit without the interpreter's teardown of modules, which takes a second of CPU time with TensorFlow."""
    if not _codes or not isinstance(_codes[0], int | None):
        return
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()  # after an error, the interpreter ends normally and reports it
    os._exit(_codes[0] or 0)


atexit.register(_skip_teardown)  # the first one registered is called last, after all other clean-up
for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN:  # `nohup` ignores it
        signal.signal(each, _end)

from perennial.base.project import source_code  # noqa: E402

source_code.note_start()

from perennial import cli  # noqa: E402
from perennial.base import files  # noqa: E402


def main() -> None:
    """Run the command that the process's arguments name."""
    files.prepare_environment()
    try:
        cli.main()
    except SystemExit as ended:
        _codes.append(ended.code)
        raise


if __name__ == "__main__":
    main()
