"""What the start of a stage or a command loads."""

import subprocess
import sys

import pytest

LATE = {"httpx", "matplotlib", "rich.progress", "scipy.optimize", "scipy.sparse", "scipy.special"}
QUICK = "from perennial.stages import champion, convert, download, gate, initialize, validate"
COMMANDS = "from perennial.cli import commands, stage_commands"


# Keras loads SciPy where something else has; NumPy starts threads where nothing has set their number.
@pytest.mark.parametrize(("program", "late"), [(QUICK, LATE), (COMMANDS, {*LATE, "numpy", "scipy"})])
def test_no_library_is_loaded_that_only_some_of_the_work_needs(program: str, late: set[str]) -> None:
    code = f"import sys; {program}; print(sorted({late} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
