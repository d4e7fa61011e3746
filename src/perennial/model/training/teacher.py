"""The teacher of a training: a version of this project to whose answers the new model keeps (distillation).

A model that is trained again gets other images wrong than the one before, even if it gets fewer wrong. It
breaks less if a part of its loss is the distance from the old answers: G. Hinton et al., "Distilling the
Knowledge in a Neural Network", 2015; S. Yan et al., "Positive-Congruent Training", CVPR 2021.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.base import documents, files
from perennial.base.errors import ConfigError
from perennial.data.preprocessing.photographs import UNCONVERTED
from perennial.data.records import pipeline
from perennial.data.records.manifest import Manifest
from perennial.data.tfrecord.label_arrays import LabelArray
from perennial.model import tasks
from perennial.model.export import loading
from perennial.model.export_layout import DESCRIPTION
from perennial.model.models.model_folder import Description

log = logging.getLogger(__name__)
FILE = "teacher.npy"  # in the run folder
BATCH = 128  # images
LEAST, SURE = np.finfo(np.float32).tiny, 1 - 1e-7  # probabilities whose logarithms are taken
CERTAIN = 1e6  # logit
Answers = NDArray[np.float32]


def answers(export: Path, records: Path, data: Manifest, label_map: pipeline.LabelMap, folder: Path) -> Answers:
    """The teacher's logits for the training examples, in record order, float32 [N, classes of the model].

    Its export answers undistorted images, through its own preprocessing, however the training distorts them.
    A training computes them once, and reads them from its run `folder` when it resumes. For a class that the
    teacher does not know, the label takes the place of its answer.
    """
    file, classes = folder / FILE, label_map.classes(data)
    with suppress(OSError, ValueError, EOFError):  # not there, or damaged
        found: Answers = np.load(file)
        if found.shape == (data.splits["train"].examples, len(classes)):
            return found
    theirs = documents.read_checked(export / DESCRIPTION, Description, "`perennial initialize` copies it again")
    if theirs.task != data.task:
        raise ConfigError(f"train.teacher is {theirs.task}, but these records are {data.task} (dataset.task)")
    started, known = time.monotonic(), [name for name in classes if name in theirs.classes]
    if not known:
        raise ConfigError(f"train.teacher knows none of the classes, but {', '.join(theirs.classes[:5])}")
    with pipeline.naming_shards(records, data):
        stored, given = zip(*_answered(loading.load(export), records, data), strict=True)
    labels = label_map(np.concatenate(stored))
    found = aligned(np.concatenate(given), theirs.classes, classes, labels)
    right = float(tf.reduce_mean(tasks.right(tf.constant(found), tf.constant(labels))))
    log.info(
        "the teacher answered %s training images in %.1f s, %.2f %% of them right%s",
        f"{len(found):,}", time.monotonic() - started, 100 * right,
        "" if known == classes
        else f"; labels answer for {len(classes) - len(known)} of {len(classes)} classes, unknown to it",
    )  # fmt: skip
    files.make_folder(folder)
    with files.new_file(file) as stream:
        np.save(stream, found)
    return found


def _answered(model: tf.Module, records: Path, data: Manifest) -> Iterator[tuple[LabelArray, Answers]]:
    """Labels and the teacher's probabilities, batch after batch in record order."""
    for shard in data.splits["train"].shards:
        labels, images = pipeline.encoded(records, shard, data.label_columns)
        prepared = tf.data.Dataset.from_tensor_slices(images).map(
            UNCONVERTED(model.prepare), num_parallel_calls=pipeline.THREADS, deterministic=True
        )
        start = 0
        try:
            for batch in prepared.batch(BATCH).prefetch(1).with_options(pipeline.untuned()):
                end = start + len(batch)
                yield labels[start:end], model.infer(batch)["probabilities"].numpy()
                start = end
        except tf.errors.InvalidArgumentError as error:
            raise ConfigError(
                f"train.teacher does not take {records / shard.file} record {start} or one of the {BATCH} "
                f"after it: {str(error.message).splitlines()[0]}; set train.teacher: null"
            ) from error


def aligned(
    probabilities: Answers, theirs: Sequence[str], classes: Sequence[str], labels: LabelArray
) -> Answers:
    """The logits [N, classes] of a teacher with the classes `theirs`; unknown ones are those of the labels."""
    several = labels.ndim == 2
    p = np.clip(probabilities, 1 - SURE if several else LEAST, SURE if several else 1)
    logits = np.log(p) - np.log1p(-p) if several else np.log(p)
    known = np.array([number for number, name in enumerate(classes) if name in theirs])
    targets = labels if several else np.eye(len(classes), dtype=np.uint8)[labels]
    found = np.where(targets, CERTAIN, -CERTAIN).astype(np.float32)
    answered = np.full(len(labels), True) if several else np.isin(labels, known)
    if not several:
        found[answered] = -CERTAIN
    columns = np.array([theirs.index(classes[number]) for number in known])
    found[np.ix_(answered, known)] = logits[np.ix_(answered, columns)]
    return found
