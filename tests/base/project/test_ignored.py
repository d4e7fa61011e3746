"""Folders of people's images are ignored by git before the first image is in them."""

from pathlib import Path

import pytest
from support.git import git

from perennial.base.errors import ConfigError
from perennial.live.capture import place
from perennial.live.label.answers import Answers


@pytest.fixture(autouse=True)
def project(workspace: Path) -> None:
    git("init", "-q")


def added() -> list[str]:
    """What `git add .` takes."""
    git("add", ".")
    return git("ls-files").splitlines()


@pytest.mark.parametrize("name", ["captured", "a/b c/captured", "../outside"])
def test_git_takes_nothing_of_a_place(name: str, tmp_path: Path) -> None:
    store = place.open_place(name)
    place.put_image(store, "2026-11-27", b"\x89PNG an image")
    assert added() == ["params.yaml"]


def test_a_place_of_an_earlier_version_is_ignored_from_now_on() -> None:
    Path("captured/2026-11-27/images").mkdir(parents=True)
    Path("captured/2026-11-27/images/a.jpg").write_bytes(b"a")
    Path("captured/.perennial.lock").touch()
    place.open_place("captured")
    assert added() == ["params.yaml"]


@pytest.mark.parametrize("name", [".", "photos"])
def test_a_folder_with_other_files_is_refused_unless_git_ignores_it(name: str) -> None:
    Path("photos").mkdir()
    Path("photos/mine.txt").touch()
    with pytest.raises(ConfigError, match="git does not ignore"):
        place.open_place(name)
    assert not Path(name, ".gitignore").exists()
    Path(".gitignore").write_text("*\n")
    place.open_place(name)


def test_a_gitignore_of_ones_own_stays_and_decides() -> None:
    Path("captured").mkdir()
    Path("captured/.gitignore").write_text("*.tmp\n")
    with pytest.raises(ConfigError, match="git does not ignore captured"):
        place.open_place("captured")
    assert Path("captured/.gitignore").read_text() == "*.tmp\n"


def test_files_that_git_tracks_already_are_said(caplog: pytest.LogCaptureFixture) -> None:
    Path("captured/2026-11-27").mkdir(parents=True)
    Path("captured/2026-11-27/a.jpg").touch()
    git("add", ".")
    place.open_place("captured")
    assert "`git rm -r --cached captured` ends that" in caplog.text


def test_git_takes_nothing_of_the_images_to_label() -> None:
    Answers(Path("work/label"))
    Path("work/label/images/a.jpg").write_bytes(b"a")
    assert added() == ["params.yaml"]
