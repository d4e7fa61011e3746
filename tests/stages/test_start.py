"""What the start of a stage loads."""

import subprocess
import sys

LATE = {"httpx", "matplotlib", "rich.progress", "scipy.optimize", "scipy.sparse", "scipy.special"}


def test_stages_without_tensorflow_load_no_library_that_only_some_of_their_work_needs() -> None:
    stages = "champion, convert, download, gate, initialize, validate"
    code = f"import sys; from perennial.stages import {stages}; print(sorted({LATE} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
