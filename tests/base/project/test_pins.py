"""Pins of what moves."""

from pathlib import Path

import pytest
from conftest import ROOT

from perennial.base.errors import DataError
from perennial.base.project.pins import ChampionPin, SourcePin, WeightsPin

PIN = ChampionPin(commit="a" * 40, version="v0.0.3")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_pin_is_read_as_it_was_written_and_not_written_again() -> None:
    assert (PIN.write(), ChampionPin.read()) == (True, PIN)
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


@pytest.mark.parametrize("kind", [ChampionPin, SourcePin, WeightsPin])
def test_the_project_s_own_pins_are_valid(kind, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    assert kind.read().write() is False
