"""The code that a process has loaded."""

import subprocess
import sys


def test_a_program_without_a_file_can_be_checked() -> None:
    program = """
from perennial.base.project import source_code
source_code.note_start()
source_code.require_unchanged()
print(len(source_code.AT_START) > 100)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
