"""Choose parameters that fit images and machine: pure functions of a survey, each choice with its reason."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perennial.choices import Split
from perennial.config import Config
from perennial.start.machine import Machine
from perennial.start.survey import READS, Survey

TINY_PX = 40  # images up to this side gain nothing from a larger network
SIZES = (96, 128, 160, 192, 224)  # that mobilenet_v2 was published for
SCRATCH_SIZE = 48  # of a small network that starts from random weights
MINUTES = 20  # that a training on a CPU should take at most
FEW = 500  # training images up to which only the head is trained
MANY = 20_000
SMALL_SET = 2000  # images up to which a tenth is too few to score on
STEPS_PER_EPOCH = 10  # at least
SEEN = 20_000  # images that a training sees, over all epochs, if it has fewer
SCRATCH_SEEN = 60_000
NOISY = 300  # validation images below which accuracy changes by chance from epoch to epoch
UNBALANCED = 3  # largest class divided by the smallest
CACHE_SHARE = 4  # of the memory, for images
# Keys that some images need and others do not; without a choice they get their defaults.
OPTIONAL = (
    "dataset.url", "dataset.digests", "dataset.layout", "dataset.test_fraction", "dataset.validation_fraction",
    "validate.severity.duplicate_across_splits", "preprocessing.grayscale", "train.max_steps",
    "train.trainable", "train.head.steps", "train.head.learning_rate", "train.class_weights",
    "train.stop_metric",
)  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """A value for a key of params.yaml, and why."""

    key: str
    value: Any
    reason: str


@dataclass(frozen=True)
class ChosenNetwork:
    """The network, the size of its input, and whether it starts with weights trained on ImageNet."""

    name: str
    size: int
    pretrained: bool


def choose(found: Survey, machine: Machine, path: str, *, pretrained: bool) -> list[Choice]:
    """All choices, in the order of params.yaml; `pretrained`: whether ImageNet weights can be had."""
    split = splits(found)
    train = split.train
    net = network(found, machine, train, pretrained=pretrained)
    return [
        Choice("dataset.name", "image_folder", "a folder for each class"),
        Choice("dataset.path", path, _where(found, path)),
        *_splits(split),
        *_damage(found),
        *_pixels(found, net, features=_keeps_features(net, machine, train)),
        *_network(found, machine, net, train),
        *_training(found, machine, net, split),
        Choice(
            "gate.min_accuracy",
            None,
            "nobody set one yet: a model is promoted if it is better than always saying the largest class",
        ),
    ]


def network(found: Survey, machine: Machine, train: int, *, pretrained: bool) -> ChosenNetwork:
    """A network for the images: tiny ones need a small one, few ones one that has seen others before."""
    side = found.sides[1]
    if side <= TINY_PX:
        return ChosenNetwork("mnist_cnn" if found.gray else "cifarnet", max(side, 8), pretrained=False)
    if not pretrained:
        return ChosenNetwork("cifarnet", SCRATCH_SIZE, pretrained=False)
    name = "efficientnet_v2_b0" if machine.gpus else "mobilenet_v2"
    fitting = [size for size in SIZES if size <= max(side, SIZES[0])]
    affordable = [
        size for size in fitting if _minutes(ChosenNetwork(name, size, True), found, machine, train) <= MINUTES
    ]
    return ChosenNetwork(name, (affordable or fitting[:1])[-1], pretrained=True)


def epochs(net: ChosenNetwork, train: int) -> int:
    """Passes over the images: the fewer there are, the more."""
    low, high = (5, 30) if net.pretrained else (10, 60)
    return min(max(round((SEEN if net.pretrained else SCRATCH_SEEN) / train), low), high)


def minutes(found: Survey, machine: Machine, chosen: Config) -> float:
    """Roughly how long a training takes with the parameters in the end."""
    train = splits(found).train
    once = chosen.preprocessing.name == "plain" and chosen.train.trainable
    size = chosen.preprocessing.image_size or found.sides[1]
    passes = chosen.train.epochs or math.ceil((chosen.train.max_steps or 1) * chosen.train.batch_size / train)
    whole = not chosen.train.trainable
    return (
        (1 if once else passes)
        * machine.seconds(chosen.model.name, size, train, trained=whole, pixels=found.pixels)
        / 60
    )


def _minutes(net: ChosenNetwork, found: Survey, machine: Machine, train: int) -> float:
    whole = not net.pretrained or train > FEW
    passes = 1 if _keeps_features(net, machine, train) else epochs(net, train)
    return passes * machine.seconds(net.name, net.size, train, trained=whole, pixels=found.pixels) / 60


def _keeps_features(net: ChosenNetwork, machine: Machine, train: int) -> bool:
    """Whether the frozen layers take each image once, undistorted; on a GPU, distortions cost little."""
    return net.pretrained and train <= FEW and not machine.gpus


def _where(found: Survey, path: str) -> str:
    what = "the archive" if found.archive else "the folder"
    if path.startswith("/"):
        return f"{what}; DVC versions a copy of it, which other machines use"
    return f"{what}; DVC versions a copy of it"


@dataclass(frozen=True)
class Splits:
    """Shares of the images that are held out, and the images in each split."""

    test_fraction: float | None  # None: the folder has the split
    validation_fraction: float | None
    train: int
    validation: int
    test: int


def splits(found: Survey) -> Splits:
    """How much to hold out: enough for a useful score, and not more than can be spared."""
    few = found.images < SMALL_SET
    # Where the folder has splits, how many images of a class each of them holds is not known here.
    own = set(found.per_split) == {"train"}
    counts = list(found.per_class.values()) if own else [found.per_split["train"]]
    fractions: dict[Split, float | None] = {}
    held: dict[Split, int] = {}
    cuts: tuple[tuple[Split, float], ...] = (
        ("test", 0.2 if few else 0.1),
        ("validation", 0.15 if few else 0.1),
    )
    for name, fraction in cuts:
        if name in found.per_split:
            fractions[name], held[name] = None, found.per_split[name]
            continue
        cut = [min(max(round(fraction * count), 1), max(count - 1, 0)) for count in counts]
        counts = [count - part for count, part in zip(counts, cut, strict=True)]
        fractions[name], held[name] = fraction, sum(cut)
    return Splits(
        test_fraction=fractions["test"],
        validation_fraction=fractions["validation"],
        train=max(sum(counts), 1),
        validation=held["validation"],
        test=held["test"],
    )


def _splits(split: Splits) -> Iterator[Choice]:
    if split.test_fraction is not None:
        why = f"{split.test:,} images for test: {_precision(split.test)}"
        yield Choice("dataset.test_fraction", split.test_fraction, why)
    if split.validation_fraction is not None:
        why = f"{split.validation:,} images to choose the best epoch with"
        yield Choice("dataset.validation_fraction", split.validation_fraction, why)


def _precision(images: int) -> str:
    """How well so many images determine an accuracy: half of a 95 % interval at its widest."""
    points = 100 * 1.96 * math.sqrt(0.25 / max(images, 1))
    text = f"the accuracy is known to about {points:.0f} points up or down"
    return text + ("; more images make it say more" if points > 10 else "")


def _damage(found: Survey) -> Iterator[Choice]:
    """Handling of files that are no images, and of copies."""
    what = "a damaged file is"
    if tried := found.unreadable:
        what = f"files that are no {READS} (seen: {len(tried):,}, such as {tried[0]}) are"
    yield Choice(
        "dataset.on_bad_image", "skip", f"{what} left out, reported, and listed in data/records/rejected.json"
    )
    if found.copies:
        yield Choice(
            "validate.severity.duplicate_across_splits",
            "warn",
            f"{found.copies:,} files are copies of others, which makes scores too good: they are reported in "
            "data/validation.html; remove them",
        )


def _pixels(found: Survey, net: ChosenNetwork, *, features: bool) -> Iterator[Choice]:
    middle = found.sides[1]
    if net.pretrained:
        if features:
            why = "each image goes through the network once, and only the last layer's training repeats"
        else:
            why = "flips, crops and colour changes in training, and the range of pixels that the weights expect"
        yield Choice("preprocessing.name", "plain" if features else "auto", why)
        shown = f"half of the images have a shorter side of at least {middle} px"
        yield Choice("preprocessing.image_size", net.size, f"{shown}, and this machine trains it in time")
    elif net.name == "mnist_cnn":
        yield Choice("preprocessing.name", "rescale", "no flips: they make other digits and letters")
        yield Choice("preprocessing.image_size", net.size, f"the images are {middle} px")
    else:
        yield Choice("preprocessing.name", "auto", "flips, crops and contrast changes in training")
        yield Choice(
            "preprocessing.image_size", net.size, "as much as a small network without pretraining uses"
        )


def _network(found: Survey, machine: Machine, net: ChosenNetwork, train: int) -> Iterator[Choice]:
    if net.pretrained:
        device = "a GPU" if machine.gpus else f"{machine.cores} cores"
        yield Choice("model.name", net.name, f"small and pretrained: it suits {train:,} images and {device}")
        yield Choice(
            "model.weights", "imagenet", "it has seen 1.3 million photos, so that yours need to be few"
        )
    else:
        tiny = found.sides[1] <= TINY_PX
        why = "images this small need no larger network" if tiny else "small: nothing larger learns from so few"
        yield Choice("model.name", net.name, why)
        yield Choice(
            "model.weights", None, "not needed for tiny images" if tiny else "random, as there are no others"
        )


def _training(found: Survey, machine: Machine, net: ChosenNetwork, split: Splits) -> Iterator[Choice]:
    train, held = split.train, split.validation
    passes, batch = epochs(net, train), _batch(train, machine)
    steps = math.ceil(train / batch)
    yield Choice("train.epochs", passes, f"{passes * train:,} images seen in all, keeping the best epoch")
    yield Choice("train.batch_size", batch, f"{steps:,} steps an epoch of {train:,} images")
    yield Choice("train.epochs_between_evals", 1, "a score after every epoch, to keep the best")
    metric = "loss" if held < NOISY else "accuracy"
    why = f"accuracy is too coarse a measure on {held:,} images" if metric == "loss" else "what is wanted"
    yield Choice("train.stop_metric", metric, why)
    yield Choice("train.keep", "best", f"the epoch with the best validation {metric} becomes the model")
    yield Choice("train.stop_threshold", None, "nobody knows yet what can be reached")
    patience = max(5, passes // 3)
    yield Choice("train.patience", patience, f"ends after {patience} epochs without a better one")
    yield Choice(
        "train.learning_rate", 0.001 if train <= FEW or not net.pretrained else 0.0001, _rate(net, train)
    )
    if net.pretrained and train <= FEW:
        yield Choice("train.trainable", ["logits"], f"{train:,} images are too few to change all weights")
    elif net.pretrained:
        head = steps * max(passes // 3, 1)
        yield Choice("train.head.steps", head, "first the last layer alone, then all weights")
        yield Choice("train.head.learning_rate", 0.001, "of the last layer, which starts at random")
    low, high = min(found.per_class.values()), max(found.per_class.values())
    if high > UNBALANCED * max(low, 1):
        yield Choice("train.class_weights", "balanced", f"classes have {low:,} to {high:,} images")
    memory = min(max(int(machine.memory_gb * 1000 / CACHE_SHARE), 1024), 2**31 - 1)
    yield Choice("train.memory_mb", memory, f"a quarter of {machine.memory_gb:.0f} GB, for decoded images")


def _batch(train: int, machine: Machine) -> int:
    sizes = (64, 32, 16, 8) if machine.gpus or train > MANY else (32, 16, 8)
    return next((size for size in sizes if train / size >= STEPS_PER_EPOCH), sizes[-1])


def _rate(net: ChosenNetwork, train: int) -> str:
    if not net.pretrained:
        return "Adam's usual rate"
    return "of the last layer" if train <= FEW else "small: pretrained weights are adjusted, not learned again"
