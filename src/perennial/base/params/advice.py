"""Advice: what probably makes a model worse or its scores less reliable, with numbers and remedies.

Advice decides nothing: no stage, gate or exit code depends on it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from perennial.base import documents
from perennial.base.choices import SCORE_NAMES, SPLITS
from perennial.base.config import Config
from perennial.base.config.networks import LAPTOP, PRETRAINED, network_facts
from perennial.base.errors import PerennialError, printable

# Of a report that is missing or damaged; a stage that needs it will describe the problem.
UNREADABLE = (OSError, PerennialError, LookupError, TypeError, ValueError, AttributeError)
WIDEST = 0.1  # interval of an accuracy or mAP, 0..1
LEVEL = 0.95  # of the interval
FEW_TO_DISTORT, FEW_TO_PRETRAIN, FEW_IN_CLASS = 1_000, 5_000, 10  # training images
# Preprocessings that do not distort, also by network where the name is auto.
PLAIN = ("rescale", "lenet", "plain")
PLAIN_NETWORKS = ("mnist_cnn", "lenet")
ENOUGH = 1_000  # examples whose interval is narrower than WIDEST, whatever the accuracy
PHOTO = 64  # pixels a side at least, where networks that were trained on photographs help


@dataclass(frozen=True)
class Advice:
    """A piece of advice: a code such as small_split, a sentence with numbers, and what to do."""

    code: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return printable(f"{self.message}; {self.remedy} [{self.code}]")


def of_data(config: Config, known: Mapping[str, float] | None = None) -> list[Advice]:
    """All advice before a training."""
    return [*of_splits(config, known), *of_training(config)]


def of_splits(config: Config, known: Mapping[str, float] | None = None) -> list[Advice]:
    """Advice about the sizes of the splits; `known`: accuracy or mAP by split, 0..1."""
    return _of_report(config, lambda found: _small_splits(config, found, known or {}))


def of_training(config: Config) -> list[Advice]:
    """Advice about a training, its images and its network; almost none without a validation report."""
    return [*_no_validation(config), *_of_report(config, partial(_images, config))]


def _of_report(config: Config, judge: Callable[[dict[str, Any]], Iterator[Advice]]) -> list[Advice]:
    """Judge the validation report, unless it is unreadable, found errors or is of another data set."""
    try:
        found = documents.read_json(config.paths.validation)
        mine = found["ok"] and found["statistics"]["dataset"] == config.dataset.name
        return list(judge(found)) if mine else []
    except UNREADABLE:
        return []


def of_run(config: Config, scores: Mapping[str, Any], validation: float | None) -> list[Advice]:
    """All advice about a finished run; `scores`: the content of metrics.json; `validation`: the score."""
    several = scores["accuracy"] is None
    known = {"test": scores["map_macro" if several else "accuracy"]}
    known |= {} if validation is None else {"validation": validation}
    found = [*(() if several else _chance(scores)), *_copies(config), *of_data(config, known)]
    if several and (ends := scores["intervals"]["map_macro"])["high"] - ends["low"] <= WIDEST:
        return [each for each in found if each.code != "small_split"]  # measured, and narrower than assumed
    return found


def log(logger: logging.Logger, found: list[Advice]) -> None:
    """Log each piece of advice on a line."""
    for each in found:
        logger.warning("advice: %s", each)


def interval(accuracy: float, examples: float, level: float = LEVEL) -> tuple[float, float]:
    """The confidence interval of an accuracy, 0..1, at a level such as 0.95.

    It contains the true accuracy at least that often, for any accuracy and number of examples.

    Source: C. J. Clopper and E. S. Pearson, The Use of Confidence or Fiducial Limits Illustrated in the Case of
    the Binomial, 1934.
    """
    from scipy.special import betaincinv  # noqa: PLC0415 - half of the time that validate takes to start

    tail, right, wrong = (1 - level) / 2, accuracy * examples, (1 - accuracy) * examples
    low = float(betaincinv(right, wrong + 1, tail)) if right else 0.0
    return low, float(betaincinv(right + 1, wrong, 1 - tail)) if wrong else 1.0


def _no_validation(config: Config) -> Iterator[Advice]:
    if config.dataset.validation_fraction == 0:
        yield Advice(
            "no_validation",
            "dataset.validation_fraction 0 holds no image out for validation: no rule stops the training or "
            "chooses its weights, and the last weights become the model",
            "train for a number of steps that a run with a validation split has shown to be right",
        )


def _small_splits(config: Config, found: Mapping[str, Any], known: Mapping[str, float]) -> Iterator[Advice]:
    task, limit = config.dataset.task, config.gate.min_accuracy
    for split in SPLITS[:0:-1]:  # test, then validation
        count = informative = found["examples"].get(split, 0)
        if not count:
            continue
        if task == "multilabel":  # at most: AP is a mean over a label's examples, mAP that of the labels' APs
            positives = [each for each in found["statistics"]["splits"][split]["per_class"] if each]
            informative = len(positives) ** 2 / (sum(1 / each for each in positives) or 1)
            limit = config.gate.min_map
        score = known.get(split, 0.5 if limit is None else limit)
        low, high = interval(score, informative) if informative < ENOUGH else (score, score)
        if high - low > WIDEST:
            where = f"at {score:.1%}" if split in known else f"if it is {score:.0%}"
            yield Advice(
                "small_split",
                f"{split} has {count:,} examples, too few to know the {SCORE_NAMES[task]} to +/- 5 points: "
                f"{where} the 95 % interval is {'at most ' * (task == 'multilabel')}{low:.1%} to {high:.1%}",
                f"add images, or raise dataset.{split}_fraction if perennial makes the splits",
            )


def _images(config: Config, found: Mapping[str, Any]) -> Iterator[Advice]:
    """Advice about the images, the network and how they are trained."""
    report = found["statistics"]
    counts = report["splits"]["train"]["per_class"]
    if few := sum(count < FEW_IN_CLASS for count in counts):
        said = f"{few:,} of {len(counts):,} classes have fewer than {FEW_IN_CLASS} training images"
        yield Advice("few_in_class", said, "add images of these classes, or leave them out")
    name, size, train = config.model.name, config.preprocessing.image_size, found["examples"].get("train", 0)
    sides, least = [*report["height"], *report["width"]], network_facts(config.model.name).least_size
    if size is None and (report["height"][0], report["width"][0]) != (report["height"][1], report["width"][1]):
        yield Advice(
            "images_differ",
            f"images have {min(sides):,} to {max(sides):,} pixels a side and preprocessing.image_size is null, "
            "so train will refuse them",
            "set preprocessing.image_size",
        )
    elif size is None and min(sides) < least:
        yield Advice(
            "image_too_small",
            f"{name} needs images of at least {least} pixels a side and these have {min(sides)}, so train will "
            "refuse them",
            f"set preprocessing.image_size to {least} or more, or take a smaller network such as mnist_cnn",
        )
    chosen = config.preprocessing.name
    if report["channels"][1] == 1 or config.preprocessing.grayscale:
        return  # flips make other digits and letters, and published weights take colours
    plain = chosen in PLAIN or (chosen == "auto" and name in PLAIN_NETWORKS)
    plain = plain and not config.train.augmentation.distorts
    if train < FEW_TO_DISTORT and plain and not config.train.trainable:  # few weights learn little by heart
        yield Advice(
            "no_augmentation",
            f"{train:,} training images are few, and preprocessing {chosen} never changes them",
            "set preprocessing.name to standard: it shifts and flips them",
        )
    random = config.model.weights is None and config.train.warm_start.path is None
    if train < FEW_TO_PRETRAIN and random and (name in PRETRAINED or min(sides) >= PHOTO):
        yield Advice(
            "no_pretrained_weights",
            f"{train:,} training images are few for {name}, which starts from random weights",
            "set model.weights to imagenet"
            if name in PRETRAINED
            else f"take a network with published weights: `perennial start` does if it can fetch them, or set "
            f"model.name to {LAPTOP[0]} and model.weights to imagenet",
        )


def _chance(scores: Mapping[str, Any]) -> Iterator[Advice]:
    counts = {name: found["examples"] for name, found in scores["per_class"].items()}
    if not (total := sum(counts.values())):
        return
    largest, accuracy = max(counts, key=counts.__getitem__), scores["accuracy"]
    share = counts[largest] / total
    low, high = interval(accuracy, total)
    if low <= share:
        how = "not above" if accuracy <= share else "not clearly above"
        yield Advice(
            "chance",
            f"the test accuracy of {accuracy:.1%} (95 %: {low:.1%} to {high:.1%}) is {how} the {share:.1%} of "
            f"always predicting {largest}, the largest class",
            "check the labels, the preprocessing, the learning rate and the number of epochs, or add images",
        )


def _copies(config: Config) -> Iterator[Advice]:
    try:
        counts = documents.read_json(config.paths.validation)["problem_counts"]
        pairs = counts.get("near_duplicate", 0) + counts.get("duplicate_across_splits", 0)
    except UNREADABLE:
        return
    if pairs:
        yield Advice(
            "copies_across_splits",
            f"{pairs:,} pairs of images in two splits are equal or look alike; copies make scores too good",
            f"look at them in {config.paths.validation_page}, and remove one of each; if they only look alike, "
            "such as digits, set validate.severity.near_duplicate to ignore",
        )
