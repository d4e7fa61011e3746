"""Models and records that do not match, and which model a folder means."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import scoring
from support.scoring import GREY, World

from perennial.base.errors import ConfigError, DataError
from perennial.cli.score_split import score
from perennial.model.evaluation import split

EXAMPLES = 5


@pytest.fixture(scope="module")
def world() -> World:
    return scoring.world(EXAMPLES)


@pytest.mark.parametrize("height", [8, None])
def test_an_image_of_another_size_than_the_model_takes_is_named(world, tmp_path, height) -> None:
    images = [*world.images[:3], np.zeros((8, 12, 1), np.uint8), world.images[4]]
    scoring.write_records(tmp_path, replace(world, images=images), {"test": EXAMPLES})
    pixels = GREY.model_copy(update={"height": height, "image_size": 8})
    model = world.model, world.description.model_copy(update={"pixels": pixels})
    taken = f"8 x {height or 'any'}"
    with pytest.raises(DataError, match=rf"00001-of-.* record 1: 12 x 8 .* {taken} "):
        split.evaluate(scoring.configured(tmp_path, 2), "test", lambda: model, ["cpu:0"])


def test_a_publish_folder_without_a_current_version_is_refused(world: World, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to("1")
    with pytest.raises(ConfigError, match="publish folder"):
        score(scoring.configured(tmp_path, 2), "test", model=tmp_path, predictions=None)
