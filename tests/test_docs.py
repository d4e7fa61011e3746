"""What docs/data.md says of the data stages, kept true."""

import re
from pathlib import Path

from perennial.datasets import DATASETS
from perennial.records.problems import CODES, JUDGED_CODES

TEXT = (Path(__file__).parents[1] / "docs" / "data.md").read_text(encoding="utf-8")


def table(after: str) -> dict[str, str]:
    """The rows, name and meaning, of the first table after a piece of text."""
    block = re.search(r"(\|.*\n)+", TEXT[TEXT.index(after) :])
    assert block is not None
    return dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", block[0], re.MULTILINE))


def test_every_code_that_stops_a_run_is_listed() -> None:
    assert table("These always stop the run") == CODES


def test_every_code_that_is_a_matter_of_judgement_is_listed() -> None:
    assert table("These are a matter of judgement") == JUDGED_CODES


def test_every_data_set_is_listed() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", TEXT.split("## Download")[0], re.MULTILINE)) == set(DATASETS)
