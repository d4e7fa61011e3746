"""Pins of what moves."""

from pathlib import Path

import pytest

from perennial.errors import DataError
from perennial.pins import ChampionPin, read_champion, write_champion

PIN = ChampionPin(commit="a" * 40, version="v0.0.3")


def test_a_pin_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "champion.json"
    assert (write_champion(file, PIN), read_champion(file)) == (True, PIN)


def test_an_unchanged_pin_is_not_written_again(tmp_path: Path) -> None:
    file = tmp_path / "champion.json"
    write_champion(file, PIN)
    before = file.stat().st_ino
    assert (write_champion(file, PIN), file.stat().st_ino) == (False, before)


def test_without_a_file_there_is_no_champion(tmp_path: Path) -> None:
    assert read_champion(tmp_path / "champion.json") == ChampionPin(commit=None, version=None)


@pytest.mark.parametrize("content", ["", "[]", '{"commit": 3, "version": "v0.0.1"}', '{"version": "v0.0.1"}'])
def test_an_invalid_pin_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "champion.json"
    file.write_text(content)
    with pytest.raises(DataError, match=r"champion\.json"):
        read_champion(file)


def test_the_project_s_own_pin_is_valid() -> None:
    file = Path(__file__).parents[1] / "champion.json"
    assert write_champion(file, read_champion(file)) is False
