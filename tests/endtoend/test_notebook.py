"""The notebook of the documentation, whose cells run in a project."""

import json
from pathlib import Path

import pytest
from support.checkout import Checkout

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "predictions.ipynb"
WHICH = "REVISION = None"


def script() -> str:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


@pytest.mark.slow
@pytest.mark.fast_rows("None")
@pytest.mark.parametrize("revision", ["None", '"main"'])
def test_the_cells_load_a_model_that_predicts_what_was_scored(reproduced: Checkout, revision: str) -> None:
    assert script().count(WHICH) == 1
    reproduced.must(
        "git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qam", "results", "--allow-empty"
    )
    code = script().replace(WHICH, f"REVISION = {revision}")
    printed = reproduced.must("python", "-c", f"import matplotlib; matplotlib.use('agg')\n{code}")
    reproduced.must("git", "reset", "-q", "--soft", "HEAD~1")
    lines = printed.splitlines()
    assert sum(line.startswith("359 examples, accuracy 0.") for line in lines) == 1
    assert sum(": predicted " in line for line in lines) == 4
