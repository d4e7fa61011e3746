"""Pins of what moves."""

from pathlib import Path

import pytest
from conftest import ROOT

from perennial.base.errors import ConfigError, DataError
from perennial.base.project import exclusions
from perennial.base.project.pins import FILES, ChampionPin, Pin, SourcePin, WeightsPin, of_revision

PIN = ChampionPin(commit="a" * 40, version="v0.0.3")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_pin_is_read_as_it_was_written() -> None:
    assert (PIN.write(), ChampionPin.read()) == (True, PIN)


def test_an_unchanged_pin_is_not_written_again() -> None:
    PIN.write()
    before = PIN.FILE.stat().st_ino
    assert (PIN.write(), PIN.FILE.stat().st_ino) == (False, before)


@pytest.mark.parametrize("kind", [ChampionPin, SourcePin, WeightsPin])
def test_a_missing_file_pins_nothing(kind: type[ChampionPin | SourcePin | WeightsPin]) -> None:
    assert set(kind.read().model_dump().values()) == {None}


@pytest.mark.parametrize("content", ["", "[]", '{"commit": 3, "version": "v0.0.1"}', '{"version": "v0.0.1"}'])
def test_an_invalid_pin_is_refused(content: str) -> None:
    PIN.FILE.parent.mkdir()
    PIN.FILE.write_text(content)
    with pytest.raises(DataError, match=r"champion\.json"):
        ChampionPin.read()


@pytest.mark.parametrize("kind", [ChampionPin, SourcePin, WeightsPin, exclusions.Exclusions])
def test_a_file_where_older_revisions_have_it_is_not_overlooked(
    kind: type[Pin] | type[exclusions.Exclusions],
) -> None:
    file = kind.FILE if issubclass(kind, Pin) else exclusions.FILE
    Path(file.name).write_text("{}")
    with pytest.raises(ConfigError, match=rf"git mv {file.name} {file}"):
        kind.read()


@pytest.mark.parametrize("file", FILES)
def test_older_revisions_have_them_at_the_root(file: Path) -> None:
    assert of_revision({Path(file.name): "old"}.get, file) == "old"
    assert of_revision({Path(file.name): "old", file: "new"}.get, file) == "new"


@pytest.mark.parametrize("kind", [ChampionPin, SourcePin, WeightsPin])
def test_the_project_s_own_pins_are_valid(
    kind: type[ChampionPin | SourcePin | WeightsPin], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert kind.read().write() is False
