"""The progress bar."""

import os
import pty
import subprocess
import sys

import pytest

SHOWN = """
from perennial.data.downloads.progress_bar import progress_bar
with progress_bar("images.gz", 1_000_000, 9_000_000) as advance:
    advance(2_000_000)
print("done")
"""


def show(stderr, **environment):
    """Run a program with a progress bar; what it printed, and wrote to a pipe as its error stream."""
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "99"} | environment
    program = [sys.executable, "-c", SHOWN]
    done = subprocess.run(program, env=environment, stdout=subprocess.PIPE, stderr=stderr, check=True)
    return done.stdout, done.stderr


def test_a_terminal_shows_bytes_and_speed():
    main, terminal = pty.openpty()
    try:
        assert show(terminal) == (b"done\n", None)
        shown = os.read(main, 1 << 16).decode()
    finally:
        os.close(main)
        os.close(terminal)
    assert ("images.gz" in shown, "3.0/9.0 MB" in shown) == (True, True)


@pytest.mark.parametrize("forced", [{}, {"FORCE_COLOR": "1"}])
def test_a_file_or_a_pipe_shows_nothing(forced):
    assert show(subprocess.PIPE, **forced) == (b"done\n", b"")
