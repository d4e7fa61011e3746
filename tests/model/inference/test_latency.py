"""The time of an export on one image, measured by a process of its own."""

from pathlib import Path

import pytest
from support.inference import World

from perennial.base.errors import DataError, PerennialError
from perennial.base.parallel import child

PROGRAM = "perennial.model.inference.latency"
pytestmark = pytest.mark.usefixtures("forked")


@pytest.mark.slow
def test_an_export_is_timed_on_one_image(world: World, tmp_path: Path) -> None:
    measured = child.call(PROGRAM, {"export": str(world.folder)}, tmp_path / "latency.log")
    assert measured > 0


@pytest.mark.slow
def test_an_export_that_does_not_load_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no model that TensorFlow"):
        child.call(PROGRAM, {"export": str(tmp_path)}, tmp_path / "latency.log")


def test_a_program_that_ends_without_a_result_is_named_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(PerennialError, match=r"perennial\.absent ended with code 1; .*latency\.log"):
        child.call("perennial.absent", {}, tmp_path / "latency.log")
    assert "perennial.absent" in (tmp_path / "latency.log").read_text(encoding="utf-8")
