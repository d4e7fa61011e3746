"""The stage champion in a real repository: predictions of a promoted version, or of its export."""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML
from scipy.special import softmax
from support import forks, scoring
from support.git import git
from support.scoring import CLASSES, World

from perennial.base import config, documents, files
from perennial.base.choices import SPLITS
from perennial.base.config import Config
from perennial.base.errors import ConfigError, DataError, PerennialError
from perennial.base.project.pins import ChampionPin, PinnedTeacher, WeightsPin
from perennial.data.preprocessing import ImageSpec
from perennial.data.records import manifest
from perennial.data.validation import image_index
from perennial.model.evaluation import comparison
from perennial.model.evaluation.predictions import Predictions
from perennial.model.evaluation.unbiased import CHOSE, NO_PART, TRAINED
from perennial.model.export import saved_model
from perennial.stages.champion import champion
from perennial.stages.initialize import initialize

ROOT = Path(__file__).parents[2]
SIZES = {"train": 40, "test": 30}
PIPELINE = {
    "stages": {
        name: {"cmd": f"python -m perennial {name}", "outs": [path]}
        for name, path in (("evaluate", "metrics/predictions.npz"), ("export", "models/export"))
    }
}


@dataclass(frozen=True)
class Repository:
    """A repository with a promoted version of a small model."""

    folder: Path
    commit: str
    world: World

    def copy(self, to: Path) -> None:
        """A checkout with its own cache, to change."""
        shutil.copytree(self.folder, to, dirs_exist_ok=True, symlinks=True)


def dvc(*arguments: str) -> None:
    subprocess.run([forks.python(), "-m", "dvc", *arguments], check=True, capture_output=True)


def commit_version(world: World, chosen: Config) -> str:
    """Commit the model's export and predictions on the records, as a run does; returns the commit."""
    count = SIZES["test"]
    if chosen.paths.export.exists():
        shutil.rmtree(chosen.paths.export)
    chosen.paths.export.mkdir(parents=True)
    saved_model.save(chosen.paths.export, world.model, world.description, ())
    digest = manifest.load(chosen.paths.records).split_digest("test")
    Predictions(
        labels=world.labels[:count], probabilities=softmax(world.logits[:count], axis=1), classes=CLASSES,
        split="test", data="d", split_digest=digest,
        model=world.description.weights_sha256,
    ).write(chosen.paths.predictions)  # fmt: skip
    dvc("commit", "--force", "--quiet")
    git("add", "params.yaml", "dvc.yaml", "dvc.lock")
    git("commit", "-qm", "version")
    return git("rev-parse", "HEAD")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    folder, world = tmp_path_factory.mktemp("a repository"), scoring.world()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        shutil.copy(ROOT / "params.yaml", folder)
        YAML().dump(PIPELINE, folder / "dvc.yaml")
        git("init", "-q", "-b", "main")
        dvc("init", "--quiet")
        chosen = config.load(Path("params.yaml"))
        scoring.write_records(chosen.paths.records, world, SIZES)
        yield Repository(folder, commit_version(world, chosen), world)


@pytest.fixture
def enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Repository], Config]:
    """Works in a copy of a repository, which pins the version; gives its parameters."""

    def entered(repository: Repository) -> Config:
        repository.copy(tmp_path)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "executable", forks.with_tensorflow())  # for `dvc get` and scores
        pin(repository.commit)
        return config.load(Path("params.yaml"))

    return entered


@pytest.fixture
def here(repository: Repository, enter) -> Config:
    return enter(repository)


def pin(commit: str | None) -> None:
    ChampionPin(commit=commit, version=commit and "v0.0.3").write()


def written(chosen: Config) -> comparison.Champion:
    champion(chosen)
    found = comparison.read(chosen.paths.champion)
    assert found is not None
    return found


def check_predictions(found: comparison.Champion, world: World, order: slice | np.ndarray) -> None:
    p = softmax(world.logits[order], axis=1)
    assert found.predicted.tolist() == p.argmax(axis=1).tolist()
    assert found.p == pytest.approx(p.max(axis=1), abs=1e-5)
    assert found.p_true == pytest.approx(p[np.arange(len(p)), world.labels[order]], abs=1e-5)


def test_without_a_pin_there_is_no_champion(here: Config) -> None:
    pin(None)
    champion(here)
    assert comparison.read(here.paths.champion) is None
    assert set(documents.read_json(here.paths.champion / comparison.FACTS).values()) == {None}


def test_on_the_same_test_split_its_own_predictions_are_used(here: Config, repository: Repository) -> None:
    world = repository.world
    scoring.write_records(here.paths.records, world, {**SIZES, "train": 60})  # more to train on
    found = written(here)
    check_predictions(found, world, slice(SIZES["test"]))
    assert (found.commit, found.version, found.rescored) == (repository.commit, "v0.0.3", False)
    assert (found.model, found.classes) == (world.description.weights_sha256, CLASSES)
    export = repository.folder / "models" / "export"
    assert found.model_bytes == sum(path.stat().st_size for path in export.rglob("*") if path.is_file())
    assert list(here.paths.work.glob("champion-*")) == []  # nothing temporary is left


def write_index(chosen: Config, *images: tuple[str, range]) -> None:
    """Write the index of images, which are numbers, by split."""
    entries = [(number, SPLITS.index(split)) for split, numbers in images for number in numbers]
    index = np.zeros(len(entries), image_index.ENTRY)
    for entry, (number, split) in zip(index, entries, strict=True):
        entry["sha256"], entry["pixels"], entry["split"] = number, number, split
    files.write_bytes(chosen.paths.index / image_index.FILE, image_index.content(index))


def test_examples_that_a_version_was_trained_on_or_chosen_by_are_told_from_new_ones(here, repository) -> None:
    stages = {**PIPELINE["stages"], "validate": {"cmd": "true", "outs": ["data/index"]}}
    YAML().dump({"stages": stages}, Path("dvc.yaml"))
    write_index(here, ("train", range(40)), ("test", range(40, 70)))
    pin(commit_version(repository.world, here))
    shutil.rmtree(here.paths.index)
    # 5 examples moved from training to test, 15 stayed there, 10 joined
    write_index(here, ("train", range(35)), ("test", range(35, 55)), ("test", range(100, 110)))
    assert written(here).parts.tolist() == 5 * [TRAINED] + 15 * [CHOSE] + 10 * [NO_PART]


TRAINED_AS = {**SIZES, "validation": 20}
INDEX = (("train", range(40)), ("test", range(40, 70)))


def commit_training(chosen: Config, world: World, model: str) -> str:
    """Commit a version with records, an index of images, and a training of weights, whose score is 0.75."""
    outs = {"convert": "data/records", "validate": "data/index", "train": "metrics/training.json"}
    stages = {name: {"cmd": "true", "outs": [out]} for name, out in outs.items()}
    YAML().dump({"stages": PIPELINE["stages"] | stages}, Path("dvc.yaml"))
    scoring.write_records(chosen.paths.records, world, TRAINED_AS)
    write_index(chosen, *INDEX, ("validation", range(70, 90)))
    score = {"step": 9, "accuracy": 0.75}
    training = {"stopped_by": "epochs", "epoch": 1, "step": 9, "kept": 9, "evaluations": [score]}
    files.write_json(chosen.paths.training, training | {"weights_sha256": model})
    commit = commit_version(world, chosen)
    for folder in (chosen.paths.records, chosen.paths.index):
        shutil.rmtree(folder)
    return commit


@pytest.fixture(scope="module")
def with_training(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A repository with a version whose training is recorded."""
    folder, world = tmp_path_factory.mktemp("a training"), repository.world
    repository.copy(folder)
    with contextlib.chdir(folder):
        commit = commit_training(config.load(Path("params.yaml")), world, world.description.weights_sha256)
    return Repository(folder, commit, world)


@pytest.mark.parametrize(
    ("sizes", "held_out", "why"),
    [
        ({**TRAINED_AS, "train": 60}, range(70, 90), None),
        ({**TRAINED_AS, "validation": 30}, (39, *range(70, 99)), "it was trained on some of these images"),
        (
            {**TRAINED_AS, "validation": 30},
            None,
            "it is not known whether it was trained on some of these images",
        ),
        (SIZES, range(70, 90), "no images are held out for validation"),
        pytest.param({**TRAINED_AS, "validation": 30}, range(70, 100), None, marks=pytest.mark.slow),
    ],
)
def test_the_score_on_this_validation_split_is_that_of_the_training_or_of_the_export(
    with_training: Repository, enter, sizes, held_out, why
) -> None:
    trained, world = enter(with_training), with_training.world
    scoring.write_records(trained.paths.records, world, sizes)
    if held_out:
        write_index(trained, *INDEX, ("validation", held_out))
    found = written(trained)
    right = world.logits[:30].argmax(axis=1) == world.labels[:30]
    score = None if why else 0.75 if sizes["validation"] == 20 else right.mean()
    assert (found.validation, found.not_validated, found.rescored) == (score, why, False)


def test_what_a_version_without_an_index_was_trained_on_is_not_known(here: Config) -> None:
    write_index(here, ("test", range(30)))
    assert len(written(here).parts) == 0


@pytest.mark.slow
def test_on_another_test_split_its_export_is_scored(here: Config, repository: Repository) -> None:
    world = repository.world
    scoring.write_records(here.paths.records, world, {**SIZES, "test": 50})
    found = written(here)
    assert found.rescored is True
    check_predictions(found, world, slice(50))
    assert found.split_digest == manifest.load(here.paths.records).split_digest("test")
    before = {path.name: path.read_bytes() for path in here.paths.champion.iterdir()}
    champion(here)
    assert {path.name: path.read_bytes() for path in here.paths.champion.iterdir()} == before


@pytest.mark.slow
def test_labels_of_another_test_split_are_matched_by_name(here: Config, repository: Repository) -> None:
    world = repository.world
    others = ("new", *CLASSES[::-1])
    labels = 10 - world.labels
    labels[0] = 0
    changed = World(world.model, world.description, world.images, labels, world.logits)
    scoring.write_records(here.paths.records, changed, SIZES, others)
    found = written(here)
    p = softmax(world.logits[: SIZES["test"]], axis=1)
    assert found.predicted.tolist() == p.argmax(axis=1).tolist()
    assert np.isnan(found.p_true).tolist() == [True] + [False] * 29
    assert found.p_true[1:] == pytest.approx(p[np.arange(1, 30), world.labels[1:30]], abs=1e-5)


@pytest.mark.slow
def test_a_champion_that_takes_other_images_has_no_predictions(here: Config) -> None:
    larger = scoring.world(pixels=ImageSpec(preprocessing="rescale", height=12, width=12, channels=1,
                                            image_size=None, grayscale=False, fast=True))  # fmt: skip
    scoring.write_records(here.paths.records, larger, SIZES)
    found = written(here)
    assert found.problem is not None
    assert "12 x 12 pixels, the model takes 8 x 8" in found.problem
    assert len(found.predicted) == 0


def test_a_commit_that_is_not_in_the_clone_is_named_with_the_remedy(here: Config) -> None:
    files.write_bytes(here.paths.champion / comparison.FACTS, b"old")
    (here.paths.champion / files.MARK).touch()
    pin("0" * 40)
    with pytest.raises(DataError, match=r"0{40} is not in this clone; .*git fetch"):
        champion(here)
    assert (here.paths.champion / comparison.FACTS).read_bytes() == b"old"


def test_outputs_that_no_cache_has_are_an_error_without_the_remote_s_password(here: Config) -> None:
    shutil.rmtree(Path(".dvc", "cache"))
    dvc("remote", "add", "--quiet", "--default", "far", "http://someone:hidden@127.0.0.1:9/models")
    with pytest.raises(PerennialError, match=r"metrics/predictions\.npz .*dvc push") as caught:
        champion(here)
    assert caught.value.exit_code == 1
    assert "hidden" not in str(caught.value)


def test_the_score_of_other_weights_of_its_training_is_not_its_score(here: Config, repository) -> None:
    pin(commit_training(here, repository.world, "0" * 64))
    scoring.write_records(here.paths.records, repository.world, {**TRAINED_AS, "train": 60})
    found = written(here)
    assert (found.validation, found.not_validated) == (None, "its training record has no score of its weights")


def test_a_teacher_is_copied_from_its_commit(here: Config, repository: Repository) -> None:
    shutil.rmtree(here.paths.export)
    chosen = here.model_copy(update={"train": here.train.model_copy(update={"teacher": "champion"})})
    WeightsPin(teacher=PinnedTeacher(path="champion", version="v0.0.3", commit=repository.commit)).write()
    initialize(chosen)
    copied = here.paths.initial_weights / "teacher"
    assert files.digests(copied) == files.digests(repository.folder / "models" / "export")
    with pytest.raises(ConfigError, match=r"train\.teacher is null, but pins/weights\.json pins \"champion\""):
        initialize(here)
    assert copied.exists()  # the old output stays
