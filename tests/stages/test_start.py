"""What the start of a stage or a command loads."""

import subprocess
import sys

import pytest

LATE = {"httpx", "matplotlib", "rich.progress", "scipy.optimize", "scipy.sparse", "scipy.special"}
QUICK = ("champion", "convert", "download", "gate", "initialize", "validate")  # stages without TensorFlow


@pytest.mark.parametrize(
    ("program", "late"),
    [
        (f"from perennial.stages import {', '.join(QUICK)}", LATE),
        # Keras loads SciPy where something else has; NumPy starts threads where nothing has set their number.
        ("from perennial.cli import commands, stage_runner", {*LATE, "numpy", "scipy"}),
    ],
    ids=["stages without TensorFlow", "commands"],
)
def test_no_library_is_loaded_that_only_some_of_the_work_needs(program: str, late: set[str]) -> None:
    code = f"import sys; {program}; print(sorted({late} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
