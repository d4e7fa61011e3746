"""Cross-validations with real trainings, each in a process of its own."""

import csv
import shutil
import signal
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from support import raw, tagged
from support.checkout import signal_child
from support.training import ROOT, change_params, initialize_weights, prepare

from perennial.base import config, files
from perennial.base.choices import SPLITS
from perennial.base.errors import ConfigError, PerennialError
from perennial.data.records import columns
from perennial.project.cross_validation import cross_validation, fold
from perennial.project.cross_validation.cross_validation import CrossValidation
from perennial.project.tune.training_process import LOG

pytestmark = pytest.mark.timing

SMALL = {"train.epochs": 2, "train.epochs_between_evals": 1, "train.stop_threshold": None}
PARAMS = Path("params.yaml")


@pytest.fixture
def pipeline(here, forked):
    """A folder with records of the digits and the stages, where trainings are short."""
    return ready(here)


def ready(folder, **values):
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, folder)
    change_params(folder / "params.yaml", {**SMALL, **values})
    initialize_weights(config.load(PARAMS))
    return folder


def cross_validated(count=2):
    found = CrossValidation(PARAMS, count, pinned=True)
    found.train()
    return cross_validation.write(found)


def table():
    with next(Path(".work/cross-validation").glob(f"*/{cross_validation.TABLE}")).open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_one_that_was_killed_goes_on_and_ends_as_an_unbroken_one(pipeline):
    change_params(PARAMS, {"checkpoints.interval_steps": 10, "train.epochs": 8})
    saved = Path(".work/cross-validation")
    signal_child(fold.MODULE, signal.SIGKILL, lambda: any(saved.glob("*/fold-2/work/train/*/step-*")))
    with pytest.raises(PerennialError, match=r"fold 2 of 2: a signal \(9\)"):
        cross_validated()
    document = cross_validated()
    folder = Path(document["folder"])
    assert "resumed from step" in (folder / "fold-2" / LOG).read_text()
    assert len(list((folder / "fold-1").iterdir())) == 4, "no records, weights or checkpoints stay"
    written = [(folder / name).read_bytes() for name in (cross_validation.DOCUMENT, cross_validation.TABLE)]
    shutil.rmtree(folder / "fold-2")
    cross_validated()
    assert [
        (folder / name).read_bytes() for name in (cross_validation.DOCUMENT, cross_validation.TABLE)
    ] == written
    rows = table()
    assert len(rows) == document["examples"] == sum(each["examples"] for each in document["folds"])
    assert document["score"] == np.mean([row["label"] == row["predicted"] for row in rows])
    assert document["score"] > 0.5
    assert {row["split"] for row in rows} == {"train", "validation", "test"}
    assert not Path("models").exists()
    assert "1797 images, each predicted by a training" in "\n".join(cross_validation.lines(document))


def test_images_with_several_labels_have_predictions_by_the_thresholds_of_their_fold(
    tmp_path, monkeypatch, forked
):
    monkeypatch.chdir(tmp_path)
    tagged.write(tmp_path / "tagged", train=60, validation=20, test=20)
    prepare(tmp_path, tagged.VALUES)
    ready(tmp_path, **tagged.VALUES)
    document = cross_validated()
    assert (document["metric"], document["examples"], len(table())) == ("mAP", 100, 100)
    low, high = document["interval"]
    assert low < document["score"] < high


def test_an_image_and_a_smaller_copy_of_it_are_in_one_fold(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    for number in range(12):
        folder = tmp_path / "photos" / f"class-{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        coarse = PIL.Image.fromarray(random.integers(0, 256, (9, 9), np.uint8))
        photo = coarse.resize((96, 96), PIL.Image.Resampling.BICUBIC)
        photo.save(folder / f"{number:02}.png")
        photo.resize((64, 64)).save(folder / f"{number:02}-small.jpg", quality=60)
    values = {"dataset.name": "image_folder", "dataset.path": "photos", "dataset.digests": "record"}
    prepare(tmp_path, values)
    ready(tmp_path, **values)
    found = CrossValidation(PARAMS, 3, pinned=True)
    fields = [
        fields for split in SPLITS for fields, _ in columns.examples(found.records.folder, found.data, split)
    ]
    folds_of = {}
    for each, fold_ in zip(fields, found.held_out.tolist(), strict=True):
        folds_of.setdefault(Path(each.filename).name[:2], []).append(fold_)
    assert all(len(each) == 2 and len(set(each)) == 1 for each in folds_of.values())


def test_images_of_a_group_of_the_table_are_in_one_fold(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ["file,label,owner"]
    for number in range(24):
        file = tmp_path / "photos" / f"{number:02}.png"
        files.write_bytes(file, raw.encoded(raw.picture(number)))
        rows.append(f"{file.name},{'ab'[number % 2]},{number // 3 if number else ''}")
    files.write_bytes(tmp_path / "photos" / "labels.csv", "\n".join(rows).encode())
    named = {"path": "labels.csv", "file": "file", "label": "label", "group": "owner"}
    values = {"dataset.name": "image_folder", "dataset.path": "photos", "dataset.table": named}
    prepare(tmp_path, values)
    ready(tmp_path, **values)
    found = CrossValidation(PARAMS, 3, pinned=True)
    owners = [owner for split in SPLITS for owner in columns.read(found.records.folder, split).values("owner")]
    folds_of = {owner: set[int]() for owner in owners if owner}
    for owner, fold_ in zip(owners, found.held_out.tolist(), strict=True):
        folds_of.get(owner, set()).add(fold_)
    assert sorted(map(len, folds_of.values())) == [1] * 8
    assert len(set.union(*folds_of.values())) == 3


def test_more_folds_than_groups_of_images_are_refused(pipeline):
    with pytest.raises(ConfigError, match=r"would have no image"):
        CrossValidation(PARAMS, 1798, pinned=True)


def test_a_teacher_that_knows_all_images_is_refused(pipeline):
    change_params(PARAMS, {"train.teacher": "champion"})
    with pytest.raises(ConfigError, match=r"train\.teacher has learned images .* nothing was started"):
        CrossValidation(PARAMS, 2, pinned=True)
