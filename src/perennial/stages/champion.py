"""Champion stage: the predictions of the model in use on the test split of this run.

It chooses none: `perennial pin champion` names it, and release/registry/record.py makes a model champion.
"""

import dataclasses
import logging
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perennial.base import documents
from perennial.base.choices import SPLITS
from perennial.base.config import Config
from perennial.base.config.paths import FIXED
from perennial.base.devices import lease
from perennial.base.dvc import dvc_lock
from perennial.base.errors import DataError, QualityError
from perennial.base.parallel import child
from perennial.base.project import pins
from perennial.base.stage_state import outputs
from perennial.data.records import manifest
from perennial.data.validation import image_index
from perennial.model.evaluation import comparison, predictions, unbiased
from perennial.model.evaluation.comparison import Champion
from perennial.model.evaluation.results import TrainingRecord
from perennial.release.registry import revision

log = logging.getLogger(__name__)
RESCORE = "perennial.model.inference.rescore"
LOG = "rescore.log"  # of the rescoring program, in paths.work


def champion(config: Config) -> None:
    """Write the champion's predictions on this test split, or record that there is no champion yet.

    They come from its own evaluation if that used this test split; otherwise its export is scored on it.
    """
    pin = pins.ChampionPin.read()
    with outputs.new_folder(config.paths.champion, "champion") as folder:
        if pin.commit is None or pin.version is None:
            comparison.write_none(folder)
            log.info("no champion yet: a model that reaches the limits of the gate becomes the first")
            return
        found = _champion(config, pin.commit, pin.version, pin.model_dump(include=pins.STATE))
        found.write(folder)
    how = "scored again on this test split" if found.rescored else "as it was evaluated"
    problem = f"has no predictions on this test split: {found.problem}"
    log.info("champion %s (%s) %s", pin.version, pin.commit[:10], problem if found.problem else how)


def _champion(config: Config, commit: str, version: str, state: Mapping[str, int | None]) -> Champion:
    data = manifest.load(config.paths.records)
    if "test" not in data.splits:
        raise DataError(f"{config.paths.records} has no test split; nothing was written")
    digest, size = data.split_digest("test"), dvc_lock.size(revision.recorded(commit), FIXED["export"])
    config.paths.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=config.paths.work, prefix="champion-") as temporary:
        file = Path(temporary, "predictions.npz")
        revision.fetch_output(commit, FIXED["predictions"], file)
        scored = predictions.read(file)
        facts = {"model_bytes": size.bytes if size else None, "split_digest": digest, **state}
        found = Champion.of(scored, commit=commit, version=version, **facts)
        same = scored.data == manifest.digest(config.paths.records)
        indices = _indices(config, commit, None if same else Path(temporary))
        if indices:
            found = dataclasses.replace(found, parts=unbiased.parts(*indices))
        if scored.multilabel != (data.task == "multilabel"):
            theirs = "multilabel" if scored.multilabel else "multiclass"
            return _without(found, f"it is {theirs}, and these records are {data.task} (dataset.task)")
        try:
            score = _validated(config, found, indices, Path(temporary), same=same)
            found = dataclasses.replace(found, validation=score)
        except QualityError as error:
            found = dataclasses.replace(found, not_validated=str(error))
        if scored.split_digest == digest:
            return found
        log.info("champion %s was evaluated on another test split: its export is scored on this one", version)
        found = dataclasses.replace(found, rescored=True)
        try:
            return dataclasses.replace(found, **_scored(config, found, Path(temporary), "test"))
        except QualityError as error:
            return _without(found, str(error))


def _indices(
    config: Config, commit: str, folder: Path | None
) -> tuple[NDArray[np.void], NDArray[np.void]] | None:
    """The indices of images here and of a version, fetched into `folder` if its data are others; or None."""
    try:
        now = image_index.read(config.paths.index / image_index.FILE)
        if folder is None:
            return now, now
        if dvc_lock.digest(revision.recorded(commit), FIXED["index"]) is not None:
            revision.fetch_output(commit, FIXED["index"], folder / "index")
        return now, image_index.read(folder / "index" / image_index.FILE)
    except DataError as error:  # only validate.decode: all writes it
        log.warning("test examples that %s was trained on are not known, and count: %s", commit[:10], error)
        return None


def _validated(
    config: Config, known: Champion, indices: Sequence[NDArray[np.void]] | None, folder: Path, *, same: bool
) -> float:
    """The champion's score on this validation split; a QualityError says why there is none."""
    data, recorded = manifest.load(config.paths.records), revision.recorded(known.commit)
    if "validation" not in data.splits or not data.validates:
        raise QualityError("no images are held out for validation")
    if any(dvc_lock.digest(recorded, FIXED[each]) is None for each in ("training", "records")):
        raise QualityError("its commit records no training")
    before = data
    if not same:
        revision.fetch_output(known.commit, f"{FIXED['records']}/{manifest.FILE}", folder / manifest.FILE)
        before = manifest.load(folder)
    if "validation" in before.splits and before.split_digest("validation") == data.split_digest("validation"):
        revision.fetch_output(known.commit, FIXED["training"], folder / "training.json")
        record = documents.read_checked(folder / "training.json", TrainingRecord, comparison.ADVICE)
        if record.score is None or record.weights_sha256 != known.model:
            raise QualityError("its training record has no score of its weights")
        return record.score
    if indices is None:
        raise QualityError("it is not known whether it was trained on some of these images")
    now, then = indices
    ours, theirs = (SPLITS.index(name) for name in ("validation", "train"))
    if unbiased.among(now[now["split"] == ours], then[then["split"] == theirs]).any():
        raise QualityError("it was trained on some of these images")
    return float(_scored(config, known, folder, "validation")["validation"])


def _scored(config: Config, known: Champion, folder: Path, split: str) -> dict[str, Any]:
    """What the champion's export predicts on a split."""
    export, file = folder / "export", folder / f"{split}.npz"
    if not export.exists():
        revision.fetch_output(known.commit, FIXED["export"], export)
    devices, count = config.evaluate.devices, config.compute.gpus
    job = {"export": str(export), "records": str(config.paths.records), "split": split, "to": str(file)}
    with lease.leased(devices, count, key="evaluate.devices", name="champion", one=True) as taken:
        child.call(RESCORE, {**job, "devices": taken.devices}, config.paths.work / LOG)
    with predictions.arrays(file, "champion") as arrays:
        return {name: arrays[name] for name in arrays}


def _without(known: Champion, problem: str) -> Champion:
    """A champion that has no predictions on this test split."""
    return dataclasses.replace(
        known, problem=problem, predicted=np.zeros(0, np.int64), p=comparison.NONE, p_true=comparison.NONE,
        probabilities=None,
    )  # fmt: skip
