"""Champion stage: the predictions of the model in use on the test split of this run.

It chooses none: `perennial pin champion` names it, and release/registry/record.py makes a model champion.
"""

import dataclasses
import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.base.config import Config
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
from perennial.release.registry import revision

log = logging.getLogger(__name__)
RESCORE = "perennial.model.inference.rescore"
LOG = "rescore.log"  # of the rescoring program, in paths.work


def champion(config: Config) -> None:
    """Write the champion's predictions on this test split, or record that there is no champion yet.

    They come from the champion's own evaluation if it used this test split; otherwise its export is scored on
    it.
    """
    pin = pins.ChampionPin.read()
    with outputs.new_folder(config.paths.champion, "champion") as folder:
        if pin.commit is None or pin.version is None:
            comparison.write_none(folder)
            log.info("no champion yet: a model that reaches the limits of the gate becomes the first")
            return
        found = _champion(config, pin.commit, pin.version)
        found.write(folder)
    how = "scored again on this test split" if found.rescored else "as it was evaluated"
    problem = f"has no predictions on this test split: {found.problem}"
    log.info("champion %s (%s) %s", pin.version, pin.commit[:10], problem if found.problem else how)


def _champion(config: Config, commit: str, version: str) -> Champion:
    data = manifest.load(config.paths.records)
    if "test" not in data.splits:
        raise DataError(f"{config.paths.records} has no test split; nothing was written")
    paths, digest = revision.paths(commit), data.split_digest("test")
    size = dvc_lock.size(revision.recorded(commit), paths["export"])
    config.paths.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=config.paths.work, prefix="champion-") as temporary:
        file = Path(temporary, "predictions.npz")
        revision.fetch_output(commit, paths["predictions"], file)
        scored = predictions.read(file)
        facts = {"model_bytes": size.bytes if size else None, "split_digest": digest}
        found = Champion.of(scored, commit=commit, version=version, **facts)
        same = scored.data == manifest.digest(config.paths.records)
        parts = _parts(config, commit, paths, None if same else Path(temporary), scored.audit)
        found = dataclasses.replace(found, parts=parts)
        if scored.multilabel != (data.task == "multilabel"):
            theirs = "multilabel" if scored.multilabel else "multiclass"
            return _without(found, f"it is {theirs}, and these records are {data.task} (dataset.task)")
        if scored.split_digest == digest:
            return found
        log.info("champion %s was evaluated on another test split: its export is scored on this one", version)
        revision.fetch_output(commit, paths["export"], Path(temporary, "export"))
        return _rescored(config, found, Path(temporary))


def _parts(
    config: Config, commit: str, paths: Mapping[str, str], folder: Path | None, audit: NDArray[np.bool_] | None
) -> NDArray[np.int8]:
    """The part that each test example played in a version; empty if one of both has no index of its images.

    `folder` takes the version's index; None where its data are those here. `audit`: a mask of its test split.
    """
    try:
        now = image_index.read(config.paths.index / image_index.FILE)
        if folder is None:
            return unbiased.parts(now, now, audit)
        if dvc_lock.digest(revision.recorded(commit), paths["index"]) is not None:
            revision.fetch_output(commit, paths["index"], folder / "index")
        return unbiased.parts(now, image_index.read(folder / "index" / image_index.FILE), audit)
    except DataError as error:  # only validate.decode: all writes it
        log.warning("test examples that %s was trained on are not known, and count: %s", commit[:10], error)
        return np.zeros(0, np.int8)


def _rescored(config: Config, known: Champion, folder: Path) -> Champion:
    """Score the champion's export on this test split; if that is impossible, return it with the reason."""
    file = folder / "rescored.npz"
    devices, count = config.evaluate.devices, config.compute.gpus
    job = {"export": str(folder / "export"), "records": str(config.paths.records), "to": str(file)}
    try:
        with lease.leased(devices, count, key="evaluate.devices", name="champion", one=True) as taken:
            child.call(RESCORE, {**job, "devices": taken.devices}, config.paths.work / LOG)
    except QualityError as error:
        return _without(dataclasses.replace(known, rescored=True), str(error))
    with predictions.arrays(file, "champion") as arrays:
        return dataclasses.replace(known, rescored=True, **{name: arrays[name] for name in arrays})


def _without(known: Champion, problem: str) -> Champion:
    """A champion that has no predictions on this test split."""
    return dataclasses.replace(
        known, problem=problem, predicted=np.zeros(0, np.int64), p=comparison.NONE, p_true=comparison.NONE,
        probabilities=None,
    )  # fmt: skip
