"""A fold: the images it holds out, a training with records of its own, and predictions of these images."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import scipy
from numpy.typing import NDArray

from perennial.base import documents, files
from perennial.base.choices import Split
from perennial.base.config import Config
from perennial.base.config.paths import Paths
from perennial.base.project import source_code
from perennial.data.records import manifest, sharding, splits
from perennial.data.records.manifest import SplitManifest
from perennial.data.records.sharding import Encoded
from perennial.data.records.splits import Groups
from perennial.data.tfrecord import framing
from perennial.data.tfrecord.label_arrays import LabelArray
from perennial.data.validation.judged_problems import HashedRecords
from perennial.project.tune import training_process

MODULE = "perennial.project.cross_validation.fold"
VALIDATION = "validation.json"  # in its records
Parts = Mapping[Split, NDArray[np.int64]]  # the numbers of the images of each split


def equal_pairs(values: Sequence[str | int]) -> list[tuple[int, int]]:
    """The pairs of numbers that connect all equal values; an empty text equals no other."""
    there = sorted((value, number) for number, value in enumerate(values) if value != "")
    return [(one, other) for (value, one), (next_, other) in pairwise(there) if value == next_]


def grouped(digests: Sequence[str], labels: LabelArray, classes: int, pairs: Iterable[Sequence[int]]) -> Groups:
    """Group images that pairs of their numbers connect, also through others."""
    one, other = np.array([*pairs], np.int64).reshape(-1, 2).T
    links = scipy.sparse.coo_array((np.ones(len(one)), (one, other)), (len(digests), len(digests)))
    count, of = scipy.sparse.csgraph.connected_components(links, directed=False)
    names = dict(sorted(zip(of.tolist(), digests, strict=True), reverse=True))  # the lowest digest comes last
    return splits.whole_groups(of, [names[group] for group in range(count)], labels, classes)


def assigned(groups: Groups, classes: Sequence[str], count: int, seed: int) -> NDArray[np.int64]:
    """The fold of each group, [G]: equal parts of the groups of each class, in the order of their SHA-256.

    With several labels an image, the rarest label of a group counts as its class. Most groups keep their fold
    when others are added; those near the border of two folds may move. Of a class with two groups or more,
    never all are in one fold.
    """
    ranked, found = splits.ranks(f"fold {seed}", groups.names), np.empty_like(groups.strata)
    for stratum in np.unique(groups.strata).tolist():
        members = np.flatnonzero(groups.strata == stratum)
        members = members[np.argsort(ranked[members], kind="stable")]
        sizes = np.bincount(groups.of)[members]
        ends = np.cumsum(sizes)
        # Else the same folds would get one example more of every class.
        first = int(splits.ranks(f"first fold {seed}", [*classes, ""][stratum : stratum + 1])[0]) % count
        found[members] = ((2 * ends - sizes) * count // (2 * ends[-1]) + first) % count
    return found


def own(config: Config, folder: Path) -> Config:
    """The parameters with the folders and the records of a fold; its predictions are written last."""
    found, records = training_process.own(config, folder), folder / "records"
    predictions = folder / "predictions.npz"
    paths = replace(found.paths, records=records, validation=records / VALIDATION, predictions=predictions)
    evaluate = found.evaluate.model_copy(update={"max_error": None})  # no answer is withheld here
    return found.model_copy(update={"paths": paths, "evaluate": evaluate})


def write_records(
    folder: Path, source: Paths, records: HashedRecords, labels: LabelArray, parts: Parts
) -> None:
    """Write the records of a fold, and what the validation stage says of them, unless they are there."""
    if folder.exists():
        return
    data, report = manifest.load(source.records), documents.read_json(source.validation)

    def written(file: Path, numbers: NDArray[np.int64]) -> SplitManifest:
        if not len(numbers):
            return SplitManifest(examples=0, per_class=[0] * len(data.classes), shards=[])
        images = ((framing.frame(records.data(each)), labels[each, None]) for each in numbers.tolist())
        encoded = (Encoded(pieces=[data], labels=label) for data, label in images)
        return sharding.write_shard(file, encoded, len(data.classes))

    with files.new_folder(folder) as new:
        splits = {split: written(new / f"{split}.tfrecord", numbers) for split, numbers in parts.items()}
        files.copy(source.records / manifest.LABELS_FILE, new / manifest.LABELS_FILE)
        manifest.write(new, data.model_copy(update={"splits": splits}))
        own = {**report["statistics"], "manifest": manifest.digest(new)}
        files.write_json(new / VALIDATION, {**report, "statistics": own})


def _work(task: tuple[Config, bool]) -> None:
    """Train with parameters, from the pinned weights or not, and predict the images that are held out."""
    with training_process.stage("perennial.stages.train", task[0], "fold") as (stage, config):
        stage.train(config, pinned=task[1])
        split = import_module("perennial.model.evaluation.split")
        load = partial(import_module("perennial.model.models.model_folder").load, config.paths.model)
        found = split.evaluate(config, "test", load, ["its first device"])
        source_code.require_unchanged()
        found.predictions.write(config.paths.predictions)


if __name__ == "__main__":
    training_process.main(_work)
