"""The model's scores on the test split, which no earlier decision has seen."""

import logging
import time

import numpy as np

from perennial import files
from perennial.config import Config
from perennial.errors import DataError
from perennial.evaluation import plots, predict, scores
from perennial.models import saved
from perennial.records import checks, manifest, read

log = logging.getLogger(__name__)


def evaluate(config: Config) -> None:
    """Scores every test example once; writes the metrics and the confusion matrix as table and picture.

    Raises:
        DataError: the records are not sound, or their classes are not the model's.
        QualityError: a logit is not finite.
    """
    started, records = time.monotonic(), config.paths.records
    data = checks.require_sound(records, ("test",))
    model, description = saved.load(config.paths.model)
    offset, classes = description.options.labels_offset, description.classes
    if classes != data.classes[offset:]:
        raise DataError(
            f"{config.paths.model} knows the classes {classes}, {records} has {data.classes[offset:]}"
        )
    batches = read.batches(
        records,
        data,
        "test",
        description.pixels,
        batch_size=config.evaluate.batch_size,
        labels_offset=offset,
        cache_mb=0,
    )
    logits = predict.logits(predict.predictor(model, description.pixels), batches)
    result = scores.score(logits, classes=len(classes), examples=data.splits["test"].examples)
    files.write_json(
        config.paths.metrics,
        {
            "accuracy": result.accuracy,
            "loss": result.loss,
            "recall_at_5": result.recall_at_5,
            "examples": result.examples,
            "per_class": result.per_class(classes),
            "data": manifest.digest(records),
            "model": description.weights_sha256,
        },
    )
    actual, predicted = (np.concatenate(part).tolist() for part in (result.actual, result.predicted))
    files.write_bytes(config.paths.confusion, plots.confusion_csv(actual, predicted, classes))
    title = f"{data.dataset}: {result.examples} test examples, accuracy {result.accuracy:.4f}"
    picture = plots.confusion_png(result.confusion(), classes, title)
    files.write_bytes(config.paths.confusion_plot, picture)
    log.info(
        "evaluated %d examples in %.1f s: accuracy %.4f, loss %.4f, recall@5 %.4f",
        result.examples, time.monotonic() - started, result.accuracy, result.loss, result.recall_at_5,
    )  # fmt: skip
