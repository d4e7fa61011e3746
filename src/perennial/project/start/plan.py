"""Choose parameters for the images and the machine: pure functions of a survey, each choice with its reason."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perennial.base.choices import Split
from perennial.base.config import Config
from perennial.base.params.advice import interval
from perennial.model.export.reference import limits
from perennial.project.start.survey import Machine, Survey

SIDES, LEAST_SIDE = 2, 512  # images are reduced to so many times the network's input, and to no less
TINY_PX = 40  # images up to this side gain nothing from a larger network
SIZES = (96, 128, 160, 192, 224)  # published input sizes of mobilenet_v2
SCRATCH_SIZE = 48  # input size of a small network that starts from random weights
MINUTES = 20  # maximum time of a training on a CPU
FEW = 500  # up to this many training images, only the head is trained
MANY = 20_000
SMALL_SET = 2000  # up to this many images, a tenth is too few for a score
STEPS_PER_EPOCH = 10  # minimum
SEEN = 20_000  # images that a training sees over all epochs, within the limits of `epochs`
SCRATCH_SEEN = 60_000
NOISY = 300  # below this many validation images, accuracy fluctuates from epoch to epoch
UNBALANCED = 3  # largest class divided by the smallest
CACHE_SHARE = 4  # one part in 4 of the memory caches images
NOT_SET = "not set yet: a model passes if it beats always predicting the largest class"
NO_MAP = "not set yet: a model passes if it beats equal answers for all images"
# Keys that only some image sets need; without a choice they get their defaults.
OPTIONAL = (
    "dataset.task", "dataset.url", "dataset.table", "dataset.max_side", "dataset.digests", "dataset.layout",
    "dataset.test_fraction", "dataset.validation_fraction",
    "validate.severity.duplicate_across_splits", "preprocessing.grayscale", "train.max_steps",
    "train.trainable", "train.head.steps", "train.head.learning_rate", "train.class_weights",
    "train.stop_metric", "train.positive_weights", "gate.min_map",
)  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """A value for a key of params.yaml, and the reason for it."""

    key: str
    value: Any
    reason: str


@dataclass(frozen=True)
class ChosenNetwork:
    """The network, its input size, and whether it starts from ImageNet weights."""

    name: str
    size: int
    pretrained: bool


def choose(
    survey: Survey, machine: Machine, path: str, *, pretrained: bool, image_size: int | None = None
) -> list[Choice]:
    """Make all choices, in the order of params.yaml; `pretrained`: ImageNet weights are available.

    With `image_size`, which a person set, images are reduced for that size and not for the chosen one.
    """
    split = splits(survey)
    train = split.train
    net = network(survey, machine, train, pretrained=pretrained)
    return [
        *_source(survey, path),
        *_splits(split, len(survey.per_class), several=survey.count is not None),
        *_damage(survey),
        *_size(survey, image_size or net.size),
        *_pixels(survey, net, features=_keeps_features(net, machine, train)),
        *_network(survey, machine, net, train),
        *_training(survey, machine, net, split),
        Choice("gate.min_accuracy", None, NOT_SET if survey.count is None else "for one label an image"),
        *([] if survey.count is None else [Choice("gate.min_map", None, NO_MAP)]),
    ]


def network(survey: Survey, machine: Machine, train: int, *, pretrained: bool) -> ChosenNetwork:
    """Choose a network: a small one for tiny images, else a pretrained one if there are weights."""
    side = survey.sides[1]
    if side <= TINY_PX:
        return ChosenNetwork("mnist_cnn" if survey.gray else "cifarnet", max(side, 8), pretrained=False)
    if not pretrained:
        return ChosenNetwork("cifarnet", SCRATCH_SIZE, pretrained=False)
    name = "efficientnet_v2_b0" if machine.gpus else "mobilenet_v2"
    fitting = [size for size in SIZES if size <= max(side, SIZES[0])]
    affordable = [
        size for size in fitting if _minutes(ChosenNetwork(name, size, True), survey, machine, train) <= MINUTES
    ]
    return ChosenNetwork(name, (affordable or fitting[:1])[-1], pretrained=True)


def epochs(net: ChosenNetwork, train: int) -> int:
    """Choose the number of epochs: the fewer images, the more epochs."""
    low, high = (5, 30) if net.pretrained else (10, 60)
    return min(max(round((SEEN if net.pretrained else SCRATCH_SEEN) / train), low), high)


def minutes(survey: Survey, machine: Machine, chosen: Config) -> float:
    """Estimate the minutes that a training with the final parameters takes."""
    train = splits(survey).train
    once = chosen.preprocessing.name == "plain" and chosen.train.trainable
    size = chosen.preprocessing.image_size or survey.sides[1]
    passes = chosen.train.epochs or math.ceil((chosen.train.max_steps or 1) * chosen.train.batch_size / train)
    whole, most = not chosen.train.trainable, chosen.dataset.max_side
    pixels = survey.pixels if most is None else min(survey.pixels, most * most)
    took = machine.seconds(chosen.model.name, size, train, trained=whole, pixels=pixels)
    return (1 if once else passes) * took / 60


def _minutes(net: ChosenNetwork, survey: Survey, machine: Machine, train: int) -> float:
    whole = not net.pretrained or train > FEW
    passes = 1 if _keeps_features(net, machine, train) else epochs(net, train)
    return passes * machine.seconds(net.name, net.size, train, trained=whole, pixels=survey.pixels) / 60


def _keeps_features(net: ChosenNetwork, machine: Machine, train: int) -> bool:
    """Whether each image passes the frozen layers only once, unaugmented; on a GPU, augmentation is cheap."""
    return net.pretrained and train <= FEW and not machine.gpus


def _source(survey: Survey, path: str) -> Iterator[Choice]:
    why = "labels in a table" if survey.table else "a folder for each class"
    yield Choice("dataset.name", "image_folder", why)
    if survey.count is not None:
        yield Choice("dataset.task", survey.task, "images have any number of labels")
    why = f"{'the archive' if survey.archive else 'the folder'}; DVC versions a copy of it"
    yield Choice("dataset.path", path, f"{why}, which other machines use" if path.startswith("/") else why)
    if survey.block is not None:
        why = "the only reading that fits all rows" if survey.chosen else "as you named it"
        yield Choice("dataset.table", survey.block, why)


@dataclass(frozen=True)
class Splits:
    """Fractions of the images that are held out, and the number of images in each split."""

    test_fraction: float | None  # None: the folder already has the split
    validation_fraction: float | None
    train: int
    validation: int
    test: int


def splits(survey: Survey) -> Splits:
    """Choose how many images to hold out: enough for a useful score, but no more."""
    few = survey.images < SMALL_SET
    # If the folder has splits, the number of images per class and split is unknown here.
    own = set(survey.per_split) == {"train"}
    by_class = own and survey.count is None
    counts = (
        list(survey.per_class.values()) if by_class else [survey.images if own else survey.per_split["train"]]
    )
    fractions: dict[Split, float | None] = {}
    held: dict[Split, int] = {}
    cuts: dict[Split, float] = {"test": 0.2 if few else 0.1, "validation": 0.15 if few else 0.1}
    for name, fraction in cuts.items():
        if name in survey.per_split:
            fractions[name], held[name] = None, survey.per_split[name]
            continue
        cut = [min(max(round(fraction * count), 1), max(count - 1, 0)) for count in counts]
        counts = [count - part for count, part in zip(counts, cut, strict=True)]
        fractions[name], held[name] = fraction, sum(cut)
    return Splits(
        test_fraction=fractions["test"], validation_fraction=fractions["validation"],
        train=max(sum(counts), 1), validation=held["validation"], test=held["test"],
    )  # fmt: skip


def _splits(split: Splits, classes: int, *, several: bool) -> Iterator[Choice]:
    if split.test_fraction is not None:
        precise = "" if several else f": {_precision(split.test)}"
        yield Choice("dataset.test_fraction", split.test_fraction, f"{split.test:,} images for test{precise}")
    if split.validation_fraction is not None:
        why = f"{split.validation:,} images to choose the best epoch with"
        if few := limits(split.validation, classes):
            why += f"; {few}"
        yield Choice("dataset.validation_fraction", split.validation_fraction, why)


def _precision(images: int) -> str:
    """Describe how precise an accuracy on this many images is: half of the widest 95 % interval."""
    low, high = interval(0.5, max(images, 1))
    points = 100 * (high - low) / 2
    text = f"accuracy is precise to about +/- {points:.0f} points"
    return text + ("; more images make it more precise" if points > 5 else "")


def _damage(survey: Survey) -> Iterator[Choice]:
    """Choose how to handle files that are not images, and duplicates."""
    what = "a damaged file is"
    if tried := survey.unreadable:
        name, reason = next(iter(tried.items()))
        what = f"a file that cannot be used (seen: {len(tried):,}, such as {name}: {reason}) is"
    what += " skipped, reported, and listed in data/records/rejected.json"
    yield Choice("dataset.on_bad_image", "skip", what)
    if survey.hidden:
        why = (
            f"the picture of {survey.hidden:,} sampled images is in their alpha channel; white is put behind it"
        )
        yield Choice("dataset.transparency", "white", why)
    if survey.copies:
        why = f"{survey.copies:,} files are copies of others, which inflates scores; remove those that "
        why += "data/validation.html lists"
        yield Choice("validate.severity.duplicate_across_splits", "warn", why)


def _size(survey: Survey, size: int) -> Iterator[Choice]:
    """Reduce photographs that are much larger than the network's input: decoding takes most of their time."""
    largest = max(LEAST_SIDE, SIDES * size)
    if survey.pixels > largest * largest:
        why = (
            f"images have {survey.pixels / 1e6:.1f} megapixels, and the network takes {size} x {size} pixels; "
        )
        why += "copies are reduced to this longer side (JPEG, quality 95), which trains many times faster"
        yield Choice("dataset.max_side", largest, why)


def _pixels(survey: Survey, net: ChosenNetwork, *, features: bool) -> Iterator[Choice]:
    middle = survey.sides[1]
    if net.pretrained:
        if features:
            why = "each image passes the frozen layers once, and only the last layer is trained repeatedly"
        else:
            why = "flips, crops and colour changes in training, and the pixel range that the weights expect"
        yield Choice("preprocessing.name", "plain" if features else "auto", why)
        shown = f"half of the images have a shorter side of at least {middle} px"
        yield Choice("preprocessing.image_size", net.size, f"{shown}, and this machine is fast enough")
    elif net.name == "mnist_cnn":
        yield Choice("preprocessing.name", "rescale", "no flips: they change digits and letters")
        yield Choice("preprocessing.image_size", net.size, f"the images are {middle} px")
    else:
        yield Choice("preprocessing.name", "auto", "flips, crops and contrast changes in training")
        yield Choice("preprocessing.image_size", net.size, "a small network without pretraining uses no more")


def _network(survey: Survey, machine: Machine, net: ChosenNetwork, train: int) -> Iterator[Choice]:
    if net.pretrained:
        device = "a GPU" if machine.gpus else f"{machine.cores} cores"
        yield Choice("model.name", net.name, f"small and pretrained: it suits {train:,} images and {device}")
        why = "pretrained on 1.3 million photos, so a few of yours are enough"
        yield Choice("model.weights", "imagenet", why)
    else:
        tiny = survey.sides[1] <= TINY_PX
        why = "images this small need no larger network" if tiny else "small, as it starts from random weights"
        yield Choice("model.name", net.name, why)
        why = "not needed for tiny images" if tiny else "none are available: random weights"
        yield Choice("model.weights", None, why)


def _training(survey: Survey, machine: Machine, net: ChosenNetwork, split: Splits) -> Iterator[Choice]:
    train, held = split.train, split.validation
    passes, batch = epochs(net, train), _batch(train, machine)
    steps = math.ceil(train / batch)
    yield Choice("train.epochs", passes, f"{passes * train:,} images seen in total; the best epoch is kept")
    yield Choice("train.batch_size", batch, f"{steps:,} steps per epoch of {train:,} images")
    yield Choice("train.epochs_between_evals", 1, "a score after every epoch, to keep the best")
    metric, score = ("accuracy", "accuracy") if survey.count is None else ("map", "mAP")
    metric = "loss" if held < NOISY else metric
    why = f"{score} is too coarse on {held:,} images" if metric == "loss" else "the metric of interest"
    yield Choice("train.stop_metric", metric, why)
    yield Choice("train.keep", "best", f"the epoch with the best validation {metric} becomes the model")
    yield Choice("train.stop_threshold", None, f"the reachable {score} is not known yet")
    patience = max(5, passes // 3)
    yield Choice("train.patience", patience, f"stop after {patience} epochs without improvement")
    rate = (0.001, "for the last layer") if train <= FEW else (0.0001, "small: weights are pretrained")
    yield Choice("train.learning_rate", *(rate if net.pretrained else (0.001, "Adam's usual rate")))
    if net.pretrained and train <= FEW:
        yield Choice("train.trainable", ["logits"], f"{train:,} images are too few to train all weights")
    elif net.pretrained:
        head = steps * max(passes // 3, 1)
        yield Choice("train.head.steps", head, "first the last layer alone, then all weights")
        yield Choice("train.head.learning_rate", 0.001, "for the last layer, which starts from random weights")
    low, high = min(survey.per_class.values()), max(survey.per_class.values())
    if high > UNBALANCED * max(low, 1) and survey.count is None:
        yield Choice("train.class_weights", "balanced", f"classes have {low:,} to {high:,} images")
    memory = min(max(int(machine.memory_gb * 1000 / CACHE_SHARE), 1024), 2**31 - 1)
    yield Choice("train.memory_mb", memory, f"a quarter of {machine.memory_gb:.0f} GB, for decoded images")


def _batch(train: int, machine: Machine) -> int:
    sizes = (64, 32, 16, 8) if machine.gpus or train > MANY else (32, 16, 8)
    return next((size for size in sizes if train / size >= STEPS_PER_EPOCH), sizes[-1])
