"""A project with its own network, data set, preprocessing, optimizer, schedule and format, from its page."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.checkout import Checkout

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "components.md"
FILES = ("nets.py", "parts.py", "data/letters.py")  # of the blocks of the page
FORMAT = """
from perennial.components import Format


def convert(graph, representative):
    return graph.SerializeToString(deterministic=True)


def load(file):
    raise ValueError("cannot be loaded")


COPY = Format(file="copy.pb", convert=convert, load=load, difference=1e-5, agreement=1.0)
"""


@pytest.fixture(scope="module")
def own(reproduced: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A project whose parameters name components of every kind but a format, in which every stage has run."""
    folder = tmp_path_factory.mktemp("components") / "project"
    project = replace(reproduced, folder=shutil.copytree(reproduced.folder, folder, symlinks=True))
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for name, block in zip(FILES, blocks, strict=True):
        (project.folder / "components" / name).write_text(block, encoding="utf-8")
    (project.folder / "components" / "formats.py").write_text(FORMAT, encoding="utf-8")
    project.set("dataset", name="components.data.letters:LETTERS")
    project.set("preprocessing", name="components.parts:centered")
    project.set("model", name="components.nets:tiny")
    project.set("train", optimizer="components.parts:nadam", epochs=2)
    project.set("train.schedule", name="components.parts:halving")
    project.dvc("repro")
    return project


@pytest.mark.slow
def test_every_stage_takes_components_and_the_card_names_their_files(own: Checkout) -> None:
    card = json.loads((own.folder / "models/export/assets/model_card.json").read_text())
    assert card["components"] == {
        "dataset.name": "components/data/letters.py",
        "preprocessing.name": "components/parts.py",
        "model.name": "components/nets.py",
        "train.optimizer": "components/parts.py",
        "train.schedule.name": "components/parts.py",
    }
    assert (
        "Own code for `model.name`: components/nets.py" in (own.folder / "models/export/README.md").read_text()
    )


@pytest.mark.slow
def test_an_export_needs_no_component(own: Checkout, tmp_path: Path) -> None:
    export = shutil.copytree(own.folder / "models/export", tmp_path / "export")
    own.must("perennial", "show", "0", "--save", str(tmp_path / "image.png"))
    moved = Checkout(tmp_path, own.home, own.forked)
    moved_source = {"PYTHONPATH": str(own.folder / "src")}
    found = moved.must("perennial", "predict", "image.png", "--model", str(export), **moved_source)
    assert "image.png: " in found
