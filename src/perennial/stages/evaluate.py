"""The model's scores on the test split, which no earlier decision has seen."""

import logging
import time

from perennial import files
from perennial.config import Config
from perennial.evaluation import calibration, metrics, plots
from perennial.evaluation.answers import Answers, answers
from perennial.models import saved
from perennial.runtime import cluster, devices

log = logging.getLogger(__name__)


def evaluate(config: Config) -> None:
    """Scores every test example once; writes predictions, metrics, confusion matrix and reliability diagram.

    Of several workers (TF_CONFIG) the first alone does.

    Raises:
        ConfigError: the devices are not there.
        DataError: the records are not sound, the split is empty, or its classes are not the model's.
        QualityError: a weight or a logit is not finite.
    """
    worker = cluster.this_worker()
    if worker is not None and not worker.is_chief:
        log.info("worker %d of %d has nothing to do: worker 0 evaluates", worker.index, worker.count)
        return
    started = time.monotonic()
    devices.disable_tf32()
    names = devices.configure(*devices.select(config.evaluate.devices, key="evaluate.devices"))
    found = answers(config, "test", lambda: saved.load(config.paths.model), names)
    result = found.scores
    _write(config, found)
    log.info(
        "evaluated %d examples on %s in %.1f s: accuracy %.4f, loss %.4f, recall@5 %.4f",
        result.examples, ", ".join(names), time.monotonic() - started,
        result.accuracy, result.loss, result.recall_at_5,
    )  # fmt: skip


def _write(config: Config, found: Answers) -> None:
    """Writes all that is told of the answers; the metrics last, since others read the rest by them."""
    predictions, result, paths = found.predictions, found.scores, config.paths
    reliability = calibration.reliability(
        predictions.probabilities, predictions.labels, bins=config.evaluate.calibration_bins
    )
    measured = metrics.metrics(result, predictions.classes, reliability, config.evaluate)
    counts = metrics.confusion(result)
    places, names = plots.most_confused(counts, predictions.classes)
    title = f"{found.dataset}, {result.examples} test examples"
    table = plots.confusion_csv(places[result.labels].tolist(), places[result.predicted].tolist(), names)
    contents = {
        paths.confusion: table,
        paths.confusion_plot: plots.confusion_png(
            plots.grouped(counts, places), names, f"{title}: accuracy {result.accuracy:.4f}"
        ),
        paths.reliability: plots.reliability_csv(reliability),
        paths.reliability_plot: plots.reliability_png(reliability, f"{title}: ECE {reliability.ece:.4f}"),
    }
    predictions.write(paths.predictions)
    for file, content in contents.items():
        files.write_bytes(file, content)
    files.write_json(paths.metrics, {**measured, "data": predictions.data, "model": predictions.model})
