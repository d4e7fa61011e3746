"""A trained model on disk."""

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest

from perennial.base.errors import DataError
from perennial.model.models import model_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, build, describe) -> Path:
    folder = tmp_path_factory.mktemp("models") / "weights"
    model = build("mnist_cnn", (8, 8, 1), classes=2, dropout=0.25)
    description = describe(model, classes=2)
    options = description.options.model_copy(update={"dropout": 0.25})
    model_folder.save(folder, model, description.model_copy(update={"options": options}))
    return folder


def test_a_model_comes_back_as_described_and_is_saved_again_with_equal_bytes(folder, tmp_path) -> None:
    model, description = model_folder.load(folder)
    assert model_folder.weights_sha256(model) == description.weights_sha256
    assert model.get_layer("dropout").rate == 0.25
    model_folder.save(tmp_path / "again", model, description)
    assert {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }


def test_the_digest_is_of_all_weights_in_model_order(folder: Path) -> None:
    model, description = model_folder.load(folder)
    content = b"".join(np.asarray(weight).astype("<f4").tobytes() for weight in model.get_weights())
    assert description.weights_sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("name", ["model.json", "weights.index", "weights.data-00000-of-00001"])
@pytest.mark.parametrize("place", [0.0, 0.5, 0.99])
def test_a_flipped_bit_is_never_loaded(folder: Path, tmp_path: Path, name: str, place: float) -> None:
    damaged = shutil.copytree(folder, tmp_path / "damaged")
    content = bytearray((damaged / name).read_bytes())
    content[int(place * len(content))] ^= 1
    (damaged / name).write_bytes(content)
    with pytest.raises(DataError):
        model_folder.load(damaged)


def test_a_missing_model_is_reported_with_the_way_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="dvc repro train"):
        model_folder.load(tmp_path / "nothing")
