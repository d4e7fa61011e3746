"""The time of an export on one image, measured by a process of its own."""

from pathlib import Path

import pytest
from support.inference import World

from perennial.base.errors import DataError
from perennial.base.parallel import child

PROGRAM = "perennial.model.inference.latency"
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked")]


def test_an_export_is_timed_on_one_image(world: World, tmp_path: Path) -> None:
    measured = child.call(PROGRAM, {"export": str(world.folder)}, tmp_path / "latency.log")
    assert measured > 0


def test_an_export_that_does_not_load_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no model that TensorFlow"):
        child.call(PROGRAM, {"export": str(tmp_path)}, tmp_path / "latency.log")
