"""`perennial docs`: the pages are listed, found, shown and rendered, also from the wheel."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from support import wheel
from support.pages import Elements
from typer.testing import CliRunner

from perennial.base.errors import ConfigError
from perennial.cli import LISTED, app, docs_command

ROOT = Path(__file__).parents[2]
PAGES = docs_command.pages()
NAMED = re.compile(r"perennial docs ([a-z][\w-]*)")


def shown(*arguments: str) -> str:
    """What `perennial docs` prints."""
    done = CliRunner().invoke(app, ["docs", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_every_page_has_a_name_of_its_own_a_title_and_a_topic() -> None:
    assert len({each.page for each in PAGES}) == len(PAGES)
    assert {each.path for each in PAGES} == {
        file.relative_to(ROOT / "docs").as_posix() for file in (ROOT / "docs").rglob("*.md")
    }
    listed = shown()
    assert all(f"  {each.page:<22} {each.title}\n" in listed for each in PAGES)
    assert all(f"\n{topic}\n" in listed for topic in {each.topic for each in PAGES})
    assert json.loads(shown("--json"))[0] == {
        "page": "index", "title": "Home", "topic": "Start", "path": "index.md",
    }  # fmt: skip


def test_every_page_that_help_or_a_message_names_exists() -> None:
    files = [
        file
        for folder in ("src", "flows", "tasks", "params", "infra", "docs", "components")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in {".py", ".yaml", ".yml", ".html", ".md"} and "__pycache__" not in file.parts
    ]
    assert not any("make deploy" in each.text() for each in PAGES)  # a project has no Makefile
    names = {name for file in files for name in NAMED.findall(file.read_text(encoding="utf-8"))}
    assert {"start-a-run", "tune"} <= names | {each.page for each in LISTED.values()}
    for name in names | {each.page for each in LISTED.values()}:
        docs_command.named(PAGES, name)


def test_no_message_sends_people_to_a_file_that_a_project_does_not_have() -> None:
    for file in (ROOT / "src").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        named = set(re.findall(r"docs/(?:how-to|reference|explanation)/[\w-]+\.md", text))
        assert named <= {"docs/reference/options.md"}, file  # which is generated


@pytest.mark.parametrize(
    "name", ["verify", "how-to/verify", "docs/how-to/verify.md", "Verify a published model"]
)
def test_a_page_is_found_by_its_name_its_path_and_its_title(name: str) -> None:
    assert shown(name).startswith("# Verify a published model\n\n`perennial verify` compares")


def test_an_unknown_page_is_answered_with_names_like_it_and_the_search() -> None:
    with pytest.raises(
        ConfigError, match=r"'verifyy'; did you mean verify.*; `perennial docs --search verifyy`"
    ):
        docs_command.named(PAGES, "verifyy")


def test_a_search_finds_the_pages_that_have_all_words_the_best_first() -> None:
    found = json.loads(shown("--search", "Resume TRAINING", "--json"))
    assert found[0]["page"] == "checkpoints"
    assert "resume" in found[0]["line"].casefold()
    assert shown("--search", "xylophone zither") == "no page has all of: xylophone zither\n"


def test_a_terminal_gets_the_name_of_each_linked_page(capsys, monkeypatch) -> None:
    monkeypatch.setenv("PAGER", "cat")
    docs_command._show(docs_command.named(PAGES, "training"))
    printed = " ".join(capsys.readouterr().out.split())
    assert "Train a model" in printed
    assert "docs checkpoints" in printed
    assert ".md" not in printed.replace("README.md", "")


def test_the_pages_in_a_browser_link_to_each_other_and_need_no_network(tmp_path) -> None:
    folder = docs_command.site(PAGES, tmp_path / "site")
    read = {file: Elements(file.read_text(encoding="utf-8")) for file in folder.rglob("*.html")}
    assert len(read) == len(PAGES)
    for file, found in read.items():
        for link in found.links:
            path, _, place = link.partition("#")
            if re.match(r"https?:", link) or path.endswith((".csv", ".ipynb")):
                continue
            target = (file.parent / path).resolve() if path else file
            assert target.is_file(), (file, link)
            assert not place or target.suffix != ".html" or place in read[target].places, (file, link)


@pytest.mark.slow
def test_the_wheel_has_every_page(tmp_path) -> None:
    program = wheel.installed(tmp_path) / "perennial"
    for each in PAGES:
        text = wheel.run(program, "docs", each.page, cwd=tmp_path)
        assert text == each.text() or text == f"{each.text()}\n"
    made = subprocess.run(
        [program, "docs", "--web"], cwd=tmp_path, env={"HOME": str(tmp_path), "BROWSER": "true"}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert Path(made.stdout.strip().removeprefix("file://")).is_file()


@pytest.mark.slow
def test_an_installed_perennial_goes_on_in_the_environment_of_the_project(tmp_path) -> None:
    program = wheel.installed(tmp_path / "tool") / "perennial"
    project = tmp_path / "shop"
    packages = project / ".venv" / "lib" / "python3.11" / "site-packages"
    for file in ("params.yaml", "dvc.yaml", "requirements/perennial.txt", ".venv/bin/python"):
        (project / file).parent.mkdir(parents=True, exist_ok=True)
        (project / file).touch()
    (project / ".venv" / "bin" / "python").write_text('#!/bin/sh\necho "$@"\n')
    (project / ".venv" / "bin" / "python").chmod(0o755)
    (project / "requirements" / "perennial.txt").write_text("perennial-ml==0.2.0\n")
    (packages / "perennial_ml-0.2.0.dist-info").mkdir(parents=True)
    for command in (("models", "lenet", "--json"), ("runs",)):
        assert wheel.run(program, *command, cwd=project) == f"-m perennial {' '.join(command)}\n"
    (project / "requirements" / "perennial.txt").write_text("perennial-ml==0.3.0\n")
    assert "lenet" in wheel.run(program, "models", "lenet", cwd=project)
