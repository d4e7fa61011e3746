"""Options of `perennial evaluate` that do not go together: refused before anything is read or written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
WATCHING, SCORING = "--watch", "--split"
WRONG = {
    "--once": (["--once"], WATCHING),
    "--once on a split": (["--split", "test", "--once"], WATCHING),
    "--every": (["--every", "5"], WATCHING),
    "--max-batches": (["--max-batches", "2", "--json"], WATCHING),
    "--json": (["--json"], SCORING),
    "--model": (["--model", "models/export"], SCORING),
    "--model of a watch": (["--watch", ".work/train", "--model", "models/export"], "--watch"),
    "no batch": (["--watch", ".work/train", "--max-batches", "0"], "--max-batches"),
    "no time": (["--watch", ".work/train", "--every", "0"], "--every"),
    "no split": (["--split", "tset"], "--split"),
}


@pytest.mark.parametrize(("options", "named"), WRONG.values(), ids=WRONG)
def test_options_that_do_not_go_together_are_refused(workspace, options, named):
    shown = subprocess.run(
        [sys.executable, "-m", "perennial", "evaluate", *options],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (shown.returncode, named in shown.stderr, Path(".work").exists()) == (2, True, False)
