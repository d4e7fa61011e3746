"""The progress bar."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import perennial

SHOWN = """
from perennial.data.downloads.progress_bar import progress_bar
with progress_bar("images.gz", 1_000_000, 9_000_000) as advance:
    advance(2_000_000)
print("done")
"""


@pytest.fixture
def environment():
    return {
        **os.environ,
        "PYTHONPATH": str(Path(perennial.__file__).parents[1]),
        "TERM": "xterm",
        "COLUMNS": "99",
    }


def test_a_terminal_shows_bytes_and_speed(environment):
    main, terminal = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", SHOWN], env=environment, stdout=subprocess.PIPE, stderr=terminal, check=True
        )
        shown = os.read(main, 1 << 16).decode()
    finally:
        os.close(main)
        os.close(terminal)
    assert ("images.gz" in shown, "3.0/9.0 MB" in shown, done.stdout) == (True, True, b"done\n")


@pytest.mark.parametrize("forced", [{}, {"FORCE_COLOR": "1"}])
def test_a_file_or_a_pipe_shows_nothing(environment, forced):
    done = subprocess.run(
        [sys.executable, "-c", SHOWN], env={**environment, **forced}, capture_output=True, check=True
    )
    assert done.stderr == b""
