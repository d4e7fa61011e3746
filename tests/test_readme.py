"""What the README says of the project, kept true."""

import re
from itertools import pairwise
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_picture_shows_the_dependencies_of_the_pipeline() -> None:
    stages = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]
    made = {
        next(iter(out)) if isinstance(out, dict) else out: name
        for name, stage in stages.items()
        for kind in ("outs", "metrics", "plots")
        for out in stage.get(kind, [])
    }
    edges = {
        (made[dep], name)
        for name, stage in stages.items()
        # Files that values are taken from as parameters are read, too.
        for dep in (
            *stage["deps"],
            *(file for each in stage.get("params", ()) if isinstance(each, dict) for file in each),
        )
        if dep in made
    }
    block = TEXT.split("```mermaid")[1].split("```")[0]
    chains = [re.findall(r"\w+", line) for line in block.splitlines() if "-->" in line]
    assert {pair for chain in chains for pair in pairwise(chain)} == edges


def test_every_make_target_of_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"[`$] ?make ([a-z-]+)", TEXT)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


# `=` stands in calls of functions in code, not in a link.
LINKS = {link for link in re.findall(r"\]\(([^()\s=]+)\)", TEXT) if "://" not in link}


def test_every_link_of_the_readme_leads_somewhere() -> None:
    assert {char for char in "-#" if any(char in link for link in LINKS)} == {"-", "#"}
    for link in LINKS:
        path, _, part = link.partition("#")
        target = ROOT / (path or "README.md")
        assert target.exists(), link
        if part:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert part in {re.sub(r"[^\w\- ]", "", each).lower().replace(" ", "-") for each in headings}, link
