"""Digests of the code of each stage, for projects without source."""

import shutil
from pathlib import Path

import pytest
from support import installed
from support.edits import edit

from perennial.base.errors import ConfigError
from perennial.base.project import code_digests, source_code
from perennial.base.project.stage_table import STAGES

GATE = "stages/gate.py"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package in another place."""
    ignored = shutil.ignore_patterns("__pycache__")
    return shutil.copytree(source_code.PACKAGE, tmp_path / "other" / "perennial", ignore=ignored)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the code.yaml of the code that runs."""
    (tmp_path / code_digests.FILE).write_text(code_digests.content(), encoding="utf-8")
    return tmp_path


def changed(package: Path) -> set[str]:
    """The stages whose digest differs from that of the code that runs."""
    now = code_digests.digests(package=package)
    return {stage for stage, digest in code_digests.digests().items() if digest != now[stage]}


def test_a_digest_says_nothing_of_place_comments_and_what_checks_and_moves_things(package: Path) -> None:
    edit(package / GATE, '"""', '"""Another docstring: ', 1)
    others = ("cli/stage_commands.py", "base/params/advice.py", "base/files.py", "reports/report/facts.py")
    for name in (GATE, *others):
        with (package / name).open("a", encoding="utf-8") as file:
            file.write("\n# A comment.\n" if name == GATE else "\nNEW = 1\n")
    assert changed(package) == set()


def test_a_statement_changes_the_digests_of_the_stages_that_run_it_and_of_no_other(package: Path) -> None:
    with (package / GATE).open("a", encoding="utf-8") as file:
        file.write("\nNEW = 1\n")
    edit(package / "model" / "export" / "model_card.md.jinja", "# ", "# A ", 1)
    edit(package / "data" / "validation" / "page.html.jinja", "<html", "<html ", 1)
    assert changed(package) == {"gate", "export", "validate"}


def test_code_yaml_holds_quoted_digests_of_all_stages_and_the_version(project: Path) -> None:
    text = (project / code_digests.FILE).read_text(encoding="utf-8")
    found = code_digests.read(project / code_digests.FILE)
    assert list(found["stages"]) == list(STAGES)
    assert found["perennial"] == code_digests.installed()
    assert text.count('"') == 2 * (1 + len(STAGES))
    assert len(set(found["stages"].values())) == len(STAGES)


def test_other_code_than_code_yaml_names_is_refused_with_both_versions(project: Path, tmp_path: Path) -> None:
    file = project / code_digests.FILE
    code_digests.require("train", project, tmp_path)
    digest = code_digests.read(file)["stages"]["train"]
    edit(file, digest, digest[::-1])
    edit(file, f'"{code_digests.installed()}"', '"0.0.7"')
    code_digests.require("gate", project, tmp_path)  # its own code is what is named
    code_digests.require("pin", project, tmp_path)  # no stage
    with pytest.raises(ConfigError) as told:
        code_digests.require("train", project, tmp_path)
    for part in ("0.0.7", code_digests.installed(), "train", "perennial upgrade", "nothing was started"):
        assert part in str(told.value)
    with pytest.raises(ConfigError, match=r"train"):
        code_digests.require_all(project, tmp_path)
    edit(file, digest[::-1], digest)
    with pytest.raises(ConfigError, match=r"names perennial 0\.0\.7, but"):
        code_digests.require_all(project, tmp_path)


def test_a_stage_without_a_digest_is_named(project: Path, tmp_path: Path) -> None:
    file = project / code_digests.FILE
    edit(file, "  gate:", "  gates:", 1)
    with pytest.raises(ConfigError, match=r"no digest of the code of gate,"):
        code_digests.require("gate", project, tmp_path)
    code_digests.require("train", project, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "perennial: 0.1\nstages: {}\n",
        'perennial: "0.1.0"\nstages: [train]\n',
        f'perennial: "0.1.0"\nstages: {{train: 1e{"5" * 62}}}\n',
        'perennial: "0.1.0"\nstages: {train: "short"}\n',
        "<<<<<<< HEAD\n",
    ],
)
def test_a_damaged_code_yaml_is_refused_with_its_remedy(text: str, project: Path, tmp_path: Path) -> None:
    (project / code_digests.FILE).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"code\.yaml does not hold .*git checkout .*perennial upgrade"):
        code_digests.require("train", project, tmp_path)


def test_source_in_the_project_and_a_missing_code_yaml_need_no_comparison(project, tmp_path) -> None:
    edit(project / code_digests.FILE, "perennial:", "nothing:", 1)
    (project / "src" / "perennial").mkdir(parents=True)
    (project / "src" / "perennial" / "__init__.py").touch()
    code_digests.require("train", project, tmp_path)
    code_digests.require("train", tmp_path / "empty", tmp_path)


def test_a_cache_gives_the_same_digests_and_parses_nothing_again(tmp_path, monkeypatch) -> None:
    cache = tmp_path / "work" / code_digests.CACHE
    first = code_digests.digests(cache=cache)
    monkeypatch.setattr(source_code, "facts", lambda content: pytest.fail("parsed again"))
    assert code_digests.digests(cache=cache) == first


@pytest.mark.parametrize("damage", ["", "[]", "half", "other facts"])
def test_a_damaged_cache_is_made_again(damage: str, project: Path, tmp_path: Path) -> None:
    cache, work = tmp_path / "work" / code_digests.CACHE, tmp_path / "work"
    code_digests.require_all(project, work)
    content = cache.read_text(encoding="utf-8")
    damaged = {
        "half": content[: len(content) // 2],
        "other facts": content.replace('": [\n      "', '": [\n "0', 3),
    }
    cache.write_text(damaged.get(damage, damage), encoding="utf-8")
    code_digests.require_all(project, work)
    assert cache.read_text(encoding="utf-8") == content


@pytest.mark.slow
def test_a_project_without_source_runs_again_exactly_what_other_code_makes(tmp_path: Path) -> None:
    project = installed.make(tmp_path)
    project.must("dvc", "repro", "convert")
    project.edit("stages/convert.py", '"""', '"""Again: ')
    assert project.must("dvc", "repro", "convert").count("didn't change") == 2
    with (project.packages / "perennial" / "stages" / "convert.py").open("a", encoding="utf-8") as file:
        file.write("\nNEW = 1\n")
    done = project.run("perennial", "convert")
    assert (done.returncode, "Traceback" in done.stdout) == (2, False)
    assert "names the code of perennial" in done.stdout
    project.must("perennial", "config", "--json")
    project.write_code()
    said = project.must("dvc", "repro", "--dry", "convert")
    assert "'download' didn't change" in said
    assert "Running stage 'convert'" in said
    project.must("perennial", "convert")


def test_a_cache_that_cannot_be_written_stops_nothing(project: Path, tmp_path: Path) -> None:
    (tmp_path / "work" / code_digests.CACHE).mkdir(parents=True)
    code_digests.require_all(project, tmp_path / "work")
    (tmp_path / "file").touch()
    code_digests.require("gate", project, tmp_path / "file")
