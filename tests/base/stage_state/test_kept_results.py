"""The result of a stage whose inputs changed while it ran is taken back for the inputs that made it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.parameters import change_params

from perennial.base import config
from perennial.base.config import Config
from perennial.base.errors import InputsChanged
from perennial.base.stage_state import kept_results, stage_inputs
from perennial.base.stage_state.stage_inputs import Inputs

PIPELINE = """\
stages:
  convert:
    cmd: python -m perennial convert
    deps: [data/raw, source.json, src/perennial/base/project/pins.py]
    params: [dataset.seed]
    outs: [data/records]
"""
FILES = {
    "dvc.yaml": PIPELINE, "data/raw/a.tar": "a", "data/raw/b/c.tar": "c", "source.json": "{}",
    "src/perennial/base/project/pins.py": "B = 1\n",
}  # fmt: skip
PARAMS = Path("params.yaml")
RESULT = Path("data/records/manifest.json")


def write(name: str, text: str) -> None:
    """Save a file as git and editors do: a new one takes the place of the old one."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path("new").write_text(text, encoding="utf-8")
    Path("new").replace(name)


def note() -> tuple[Config, Inputs]:
    checked, values = config.load_with_values(PARAMS)
    return checked, stage_inputs.note("convert", PARAMS, values)


def take() -> bool:
    checked, noted = note()
    return kept_results.take(checked.paths, noted)


@pytest.fixture
def edited(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """A function that runs a stage while something is edited, so that its result is kept."""
    monkeypatch.setenv(kept_results.BY_DVC, "convert")
    for name, text in FILES.items():
        write(name, text)

    def run(edit: Callable[[], object]) -> None:
        checked, noted = note()
        write(str(RESULT), "made")
        edit()
        with pytest.raises(InputsChanged, match="nothing was recorded, and the result is kept"):
            kept_results.require_unchanged(noted, checked.paths, own_outputs=True)
        assert not RESULT.exists()

    return run


Edited = Callable[[Callable[[], object]], None]


def seed(value: int) -> None:
    change_params(PARAMS, {"dataset.seed": value})


def test_the_kept_result_is_that_of_the_old_value(edited: Edited) -> None:
    edited(lambda: seed(7))
    assert not take()
    seed(0)
    assert take()
    assert RESULT.read_text() == "made"
    assert not Path(".work/kept").exists()


def test_equal_files_that_were_written_again_made_it(edited: Edited) -> None:
    edited(lambda: seed(7))
    seed(0)
    for name in ("data/raw/a.tar", "source.json"):
        write(name, FILES[name])
    assert take()


@pytest.mark.parametrize("name", ["data/raw/a.tar", "data/raw/new.tar", "source.json"])
def test_other_data_did_not_make_it(edited: Edited, name: str) -> None:
    edited(lambda: seed(7))
    seed(0)
    write(name, "other")
    assert not take()
    assert Path(".work/kept/convert").is_dir()


@pytest.mark.parametrize("name", ["source.json", ".work/kept/convert/inputs.json"])
def test_gone_data_did_not_make_it_and_without_its_inputs_a_result_is_incomplete(edited, name) -> None:
    edited(lambda: seed(7))
    seed(0)
    Path(name).unlink()
    assert not take()


def test_data_that_changed_meanwhile_and_is_back_as_the_same_file_made_it(edited: Edited) -> None:
    def move_away() -> None:
        Path("data/raw/a.tar").rename("old")
        write("data/raw/a.tar", "other")

    edited(move_away)
    assert not take()
    Path("old").replace("data/raw/a.tar")
    assert take()


def test_data_that_changed_meanwhile_has_no_digest_to_compare(edited: Edited) -> None:
    edited(lambda: write("data/raw/a.tar", "other"))
    write("data/raw/a.tar", FILES["data/raw/a.tar"])
    assert not take()
    write("data/raw/a.tar", "other")
    assert not take()
