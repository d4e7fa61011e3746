"""The wheel, installed into an empty environment."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from support import forks, wheel
from support.git import git
from support.small_servers import served
from support.wheel import run

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel; its dependencies are those of this Python."""
    return wheel.installed(tmp_path_factory.mktemp("wheel"))


def test_the_code_is_that_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    file = run(installed / "python", "-c", "import perennial; print(perennial.__file__)", cwd=tmp_path)
    assert Path(file).is_relative_to(installed.parent)


def test_every_file_of_the_package_is_in_the_wheel(installed: Path) -> None:
    (package,) = (installed.parent / "lib").glob("python*/site-packages/perennial")
    names = [
        {
            file.relative_to(folder)
            for file in folder.rglob("*")
            if file.is_file() and file.suffix != ".pyc" and not {"template", "docs"} & {*file.parts}
        }
        for folder in (ROOT / "src" / "perennial", package)
    ]
    assert names[0] == names[1]


@pytest.fixture
def release(tmp_path: Path) -> Callable[..., list[str]]:
    """Runs infra/release.py in a project that is not ready; returns the lines that it prints."""
    (tmp_path / "infra").mkdir()
    shutil.copy(ROOT / "infra" / "release.py", tmp_path / "infra")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "changelog.md").write_text("## 0.1.0 (unreleased)\n")
    git("init", "-q", folder=tmp_path)
    run(forks.python(), "-m", "dvc", "init", "-q", cwd=tmp_path)
    git("commit", "-qm", "start", folder=tmp_path)
    git("tag", "-am", "before", "perennial-0.1.0", folder=tmp_path)

    def refused(index: str) -> list[str]:
        command = [sys.executable, tmp_path / "infra" / "release.py", "--index", index]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        return done.stderr.splitlines()

    return refused


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a package index, and the file that it serves for perennial-ml."""
    file = tmp_path / "index" / "pypi" / "perennial-ml" / "json"
    file.parent.mkdir(parents=True)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "index"))
    with served(handler) as address:
        yield address, file


def test_a_release_is_refused_until_all_is_committed_and_dated(release, index):
    assert [line.partition(":")[0] for line in release(index[0])] == [
        "release",
        "- files are not committed",
        "- the tag perennial-0.1.0 exists",
        "- docs/changelog.md needs the heading `## 0.1.0 (YYYY-MM-DD)`, and has '## 0.1.0 (unreleased)'",
    ]


@pytest.mark.parametrize(
    ("summary", "reason"),
    [
        ("A journal.", "- perennial-ml on {} is another project (A journal.): choose another name"),
        (
            "Retrains image classifiers on a schedule and rebuilds any of them from a git revision.",
            "- {} has perennial-ml 0.1.0: raise the version in pyproject.toml",
        ),
    ],
)
def test_a_release_is_refused_if_the_index_has_its_name_or_version(release, index, summary, reason):
    address, file = index
    file.write_text(json.dumps({"info": {"summary": summary}, "releases": {"0.1.0": []}}))
    assert reason.format(address) in release(address)


def test_a_release_says_that_the_index_was_not_checked(release):
    assert (
        "release: not checked: whether http://127.0.0.1:1 has another perennial-ml"
        in release("http://127.0.0.1:1")[0]
    )
