"""The initialize stage: weights pinned by digest and copied into its output, whatever their path."""

import shutil
from pathlib import Path

import pytest

from perennial.base import files
from perennial.base.config import Config
from perennial.base.errors import ConfigError, DataError, PerennialError
from perennial.base.project.pins import WeightsPin
from perennial.data.sources import weights
from perennial.stages.initialize import initialize

COPY = Path("data/initial_weights")
OPTIONS = (weights.IMAGENET, weights.WARM_START)


@pytest.fixture
def sources(workspace: Path) -> None:
    """A file, a folder of a model, and folders of checkpoints; none of them can be loaded, only copied."""
    for name, content in {
        "imagenet.weights.h5": b"imagenet",
        "model/model.json": b"{}",
        "model/variables/weights": b"kernel",
        f"model/{files.MARK}": b"made by a stage",
        "run/steps.csv": b"step",
        "run/step-000000009/checkpoint.json": b"9",
        "run/step-000000010/checkpoint.json": b"10",
        "run/step-000000010-1/checkpoint.json": b"11",
        "run/.step-000000012.tmp/checkpoint.json": b"half",
    }.items():
        files.write_bytes(workspace / name, content)


def copied(config: Config) -> dict[str, bytes]:
    """Pin and run the stage; the files of its output but for the mark."""
    weights.pin(config)
    initialize(config)
    found = {path.relative_to(COPY).as_posix(): path.read_bytes() for path in COPY.rglob("*") if path.is_file()}
    assert found.pop(files.MARK)
    return found


def test_random_weights_are_an_empty_folder(load) -> None:
    config = load()
    assert (copied(config), dict(weights.located(config))) == ({}, {})


CASES = [
    (weights.IMAGENET, "imagenet.weights.h5", {"imagenet/weights.weights.h5": b"imagenet"}),
    (weights.WARM_START, "model", {"warm_start/model.json": b"{}", "warm_start/variables/weights": b"kernel"}),
    (
        weights.WARM_START,
        "run",
        {
            "warm_start/step-000000010/checkpoint.json": b"10",
            "warm_start/step-000000010-1/checkpoint.json": b"11",
        },
    ),
    (weights.WARM_START, "run/step-000000009", {"warm_start/step-000000009/checkpoint.json": b"9"}),
]


@pytest.mark.parametrize(("option", "path", "content"), CASES)
def test_the_copy_has_what_the_path_names(sources, load, option: str, path: str, content) -> None:
    assert copied(load(**{option: path})) == content


@pytest.mark.parametrize(("option", "path"), [case[:2] for case in CASES[:3]])
def test_equal_bytes_at_another_path_give_the_same_copy_and_digest(sources, load, option, path) -> None:
    first, pinned = copied(load(**{option: path})), WeightsPin.read()
    Path("elsewhere").mkdir()
    moved = Path(path).rename(f"elsewhere/other{Path(path).suffix and '.weights.h5'}")
    assert copied(load(**{option: str(moved)})) == first
    place = weights.SUBFOLDERS[option]
    assert getattr(WeightsPin.read(), place).sha256 == getattr(pinned, place).sha256


@pytest.mark.parametrize(
    ("option", "path", "file"),
    [(weights.IMAGENET, "imagenet.weights.h5", "."), (weights.WARM_START, "model", "variables/weights")],
)
def test_a_replaced_source_is_refused_until_it_is_pinned(sources, load, option, path, file) -> None:
    config = load(**{option: path})
    before, pinned = copied(config), WeightsPin.FILE.read_bytes()
    Path(path, file).write_bytes(b"other")
    with pytest.raises(PerennialError, match=r"it was replaced; `perennial pin weights`") as refused:
        initialize(config)
    assert (refused.value.exit_code, WeightsPin.FILE.read_bytes()) == (1, pinned)
    assert copied(config) != before
    assert WeightsPin.FILE.read_bytes() != pinned


def test_a_pin_is_written_once(sources, load) -> None:
    config = load(**{weights.WARM_START: "model"})
    weights.pin(config)
    before = WeightsPin.FILE.stat().st_mtime_ns
    weights.pin(config)
    assert WeightsPin.FILE.stat().st_mtime_ns == before


def test_the_pin_of_a_source_that_is_gone_stays_and_the_copy_is_enough(sources, load) -> None:
    config = load(**{weights.WARM_START: "model"})
    copied(config)
    shutil.rmtree("model")
    assert weights.pin(config).warm_start is not None
    assert weights.located(config) == {weights.WARM_START: COPY / "warm_start"}
    with pytest.raises(DataError, match=r"dvc pull data/initial_weights"):
        initialize(config)
    assert (COPY / "warm_start" / "model.json").exists()


@pytest.mark.parametrize("option", OPTIONS)
def test_a_source_that_never_was_is_refused(load, option: str) -> None:
    with pytest.raises(ConfigError, match=f"{option}: absent"):
        weights.pin(load(**{option: "absent"}))


def test_a_path_other_than_the_pinned_one_is_refused(sources, load) -> None:
    copied(load(**{weights.WARM_START: "model"}))
    for path in ("run", None):
        config = load(**{weights.WARM_START: path})
        for use in (initialize, weights.located):
            with pytest.raises(ConfigError, match=r'train\.warm_start\.path is .* pins "model"'):
                use(config)


@pytest.mark.parametrize("harm", ["changed", "removed", "added"])
def test_a_copy_that_is_not_the_pinned_one_is_refused(sources, load, harm: str) -> None:
    config = load(**{weights.WARM_START: "model"})
    copied(config)
    file = COPY / "warm_start" / ("more" if harm == "added" else "model.json")
    file.unlink() if harm == "removed" else file.write_bytes(b"x")
    with pytest.raises(DataError, match="`perennial initialize` creates it"):
        weights.located(config)
