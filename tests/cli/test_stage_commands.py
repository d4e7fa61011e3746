"""Options of `perennial evaluate` that do not go together: refused before anything is read or written."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from perennial.cli import app

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
    shown = CliRunner().invoke(app, ["evaluate", *options])
    assert (shown.exit_code, named in shown.output, Path(".work").exists()) == (2, True, False)
