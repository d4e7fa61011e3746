"""What the documents about stages say of them, kept true."""

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import get_args

import pytest

from perennial.config import choices
from perennial.datasets import DATASETS
from perennial.validation.problems import CODES, FIXES, JUDGED_CODES

ROOT = Path(__file__).parents[1]
DATA, TRAINING = ((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("data", "training"))


def table(text: str, after: str) -> list[list[str]]:
    """The rows of the first table after a piece of text, cell by cell, without its head."""
    block = re.search(r"(\|.*\n)+", text[text.index(after) :])
    assert block is not None
    return [line.strip("| ").split(" | ") for line in block[0].splitlines()[2:]]


def quoted(cell: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize(
    ("after", "codes"),
    [("These always stop the run", CODES), ("These are a matter of judgement", JUDGED_CODES)],
    ids=["format", "judged"],
)
def test_every_problem_code_is_listed_with_its_meaning_and_fix(after: str, codes: dict[str, str]) -> None:
    listed = [(quoted(code)[0], meaning, fix) for code, meaning, fix in table(DATA, after)]
    assert listed == [(code, meaning, FIXES[code]) for code, meaning in codes.items()]


def test_every_data_set_is_listed() -> None:
    assert {quoted(row[0])[0] for row in table(DATA, "## Data sets")} == set(DATASETS)


def test_every_preset_is_listed() -> None:
    listed = {quoted(row[0])[0] for row in table(TRAINING, "| preset |")}
    assert listed == {file.name for file in (ROOT / "params").iterdir()}


def test_every_preprocessing_is_listed() -> None:
    listed = {quoted(row[0])[0] for row in table(TRAINING, "## Preprocessings")}
    assert listed == set(get_args(choices.Preprocessing)) - {"auto"}


@pytest.mark.parametrize("name", get_args(choices.Model))
def test_every_model_is_of_one_of_the_families_that_are_listed(name: str) -> None:
    patterns = [pattern for row in table(TRAINING, "## Models") for pattern in quoted(row[0])]
    assert sum(fnmatchcase(name, pattern) for pattern in patterns) == 1
    assert all(any(fnmatchcase(each, pattern) for each in get_args(choices.Model)) for pattern in patterns)


@pytest.mark.parametrize(
    "document", ["data.md", "evaluation.md", "export.md", "flags.md", "report.md", "training.md"]
)
def test_every_link_between_documents_leads_somewhere(document: str) -> None:
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    for file, heading in re.findall(r"\]\(([\w./-]*)#?([\w-]*)\)", text):
        target = ROOT / "docs" / (file or document)
        assert target.is_file()
        if heading:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {each.lower().replace(" ", "-") for each in headings}
