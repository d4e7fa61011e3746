"""What every command has: the folder that it works in, and the paths that are adjusted to it."""

import gc
import os
import signal
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from perennial.base.errors import ConfigError
from perennial.cli import app
from perennial.cli.command import command, guarded
from perennial.cli.option_types import PARAMS, ParamsOption, PathOrUrl
from perennial.orchestration.client import prefect_server
from perennial.orchestration.remote_runs import start_run


def given_below(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, object]:
    """What a command gets that is called in a folder, and where it works."""
    app, given = typer.Typer(), dict[str, object]()

    @command(app, "show", "Show.")
    def show(
        revision: str,
        place: Annotated[str, typer.Argument(parser=PathOrUrl)],
        file: Path,
        params: ParamsOption = PARAMS,
    ) -> None:
        given.update(revision=revision, place=place, file=file, params=params, here=Path.cwd())

    monkeypatch.chdir(folder)
    assert CliRunner().invoke(app, arguments).exit_code == 0
    return given


@pytest.fixture
def photos(workspace: Path) -> Path:
    """A subfolder with a file that has the name of a branch."""
    Path("dvc.yaml").touch()
    Path("photos/origin").mkdir(parents=True)
    Path("photos/origin/main").touch()
    return workspace / "photos"


def test_in_a_subfolder_paths_are_adjusted_and_texts_are_not(photos, monkeypatch) -> None:
    given = given_below(photos, monkeypatch, "origin/main", "cat.png", "dog.png")
    assert given == {
        "revision": "origin/main", "place": str(photos / "cat.png"), "file": photos / "dog.png",
        "params": PARAMS, "here": photos.parent,
    }  # fmt: skip


@pytest.mark.parametrize("place", ["s3://origin/main", "-"])
def test_a_url_and_standard_input_are_no_paths(photos, monkeypatch, place: str) -> None:
    assert given_below(photos, monkeypatch, "main", place, "x")["place"] == place


def test_with_other_parameters_the_command_works_where_it_was_called(photos, monkeypatch) -> None:
    given = given_below(photos, monkeypatch, "main", "cat.png", "dog.png", "--params", "other.yaml")
    assert (given["place"], given["here"]) == ("cat.png", photos)


def test_a_folder_to_publish_to_is_that_of_the_caller(photos, monkeypatch) -> None:
    given = []

    def start(_server: object, _name: str, parameters: dict[str, object], _owner: object) -> None:
        given.append(parameters["publish_to"])
        raise ConfigError("enough")

    monkeypatch.setattr(prefect_server, "connect", lambda **_: None)
    monkeypatch.setattr(start_run, "start", start)
    monkeypatch.chdir(photos)
    for place in ("served", "s3://bucket/models"):
        assert CliRunner().invoke(app, ["run", "nightly", "--publish-to", place]).exit_code == 2
    assert given == [str(photos / "served"), "s3://bucket/models"]


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("config --defaults --set train.epochs=2", "--defaults and --set exclude each other"),
        ("label --compare --branch new", "--compare and --branch exclude each other"),
        ("docs --search gate --web", "--search and --web exclude each other"),
        ("audit --all --rev main", "--rev and --all exclude each other"),
        ("show 0 --shard a.tfrecord --split test", "--shard and --split exclude each other"),
        ("runs --json show night-1", "options of `perennial runs show` stand behind show"),
        ("why a b --keep", "--keep goes with --bisect"),
        ("run --set train.epochs=2 train.seed=5", "each KEY=VALUE needs a --set of its own"),
    ],
)
def test_an_option_that_would_not_count_is_refused(workspace, typed: str, why: str) -> None:
    done = CliRunner().invoke(app, typed.split())
    assert (done.exit_code, why in done.stderr) == (2, True), done.output


def test_a_signal_ends_every_command_with_a_line_and_code_75() -> None:
    app = typer.Typer()

    @command(app, "show", "Show.")
    def show() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    done = CliRunner().invoke(app, [])
    assert (done.exit_code, done.stderr.count("\n")) == (75, 1)
    assert "Ctrl-C ended it; no half-written output was left; run it again" in done.stderr


def test_a_command_collects_garbage_though_the_start_of_its_process_does_not() -> None:
    found = list[bool]()
    gc.disable()
    guarded("show", lambda: found.append(gc.isenabled()))
    gc.unfreeze()
    assert found == [True]
