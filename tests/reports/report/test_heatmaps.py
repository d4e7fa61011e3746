"""Heatmaps of the worst mistakes, drawn by a process with TensorFlow."""

import base64
import io
from dataclasses import replace
from pathlib import Path

import PIL.Image
import pytest
from reports.report.test_mistakes import predicted
from support.inference import world
from support.raw import encoded, picture

from perennial.base.config.paths import Paths
from perennial.base.errors import DataError
from perennial.reports.report import heatmaps

__all__ = ["world"]


def paths_of(**paths: Path) -> Paths:
    return replace(Paths(), **paths)


def test_each_image_gets_a_picture_and_a_refused_one_none(world) -> None:
    good = base64.b64encode(encoded(picture(1, 16))).decode()
    drawn = heatmaps.main({"export": str(world.folder), "images": [[good, 1], ["", 0]]})
    assert PIL.Image.open(io.BytesIO(base64.b64decode(drawn[0]))).size == (16, 16)
    assert drawn[1] is None


@pytest.mark.slow
def test_examples_are_explained_in_another_process(world, tmp_path) -> None:
    found = predicted(tmp_path)
    paths = paths_of(records=tmp_path, index=tmp_path / "index", export=world.folder, work=tmp_path / "work")
    drawn = heatmaps.of_examples(found, paths, found.predicted, [4, 2])
    assert drawn.keys() == {4, 2}
    for uri in drawn.values():
        image = PIL.Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))
        assert image.size == (4, 4)


def test_without_an_export_the_stage_is_named(tmp_path) -> None:
    paths = paths_of(records=tmp_path, index=tmp_path / "index", export=tmp_path / "none")
    with pytest.raises(DataError, match="`dvc repro export` makes it"):
        heatmaps.of_examples(predicted(tmp_path), paths, predicted(tmp_path).predicted, [4])


def test_other_records_are_not_explained(tmp_path) -> None:
    found = replace(predicted(tmp_path), data="0" * 64)
    assert (
        heatmaps.of_examples(found, paths_of(records=tmp_path, index=tmp_path / "index"), found.predicted, [4])
        == {}
    )
