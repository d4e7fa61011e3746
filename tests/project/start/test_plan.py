"""The choices of `perennial start`: valid parameters for any images and machine, and the right network."""

from pathlib import Path

import pytest

from perennial.project.start import plan, start
from perennial.project.start.survey import Machine, Survey

LAPTOP = Machine(cores=4, memory_gb=16, gpus=0)
GPU = Machine(cores=16, memory_gb=64, gpus=1)


def images(each: int, classes: int = 5, side: int = 400, **others: object) -> Survey:
    known = {
        "path": Path("own"), "archive": False, "per_class": {str(n): each for n in range(classes)},
        "per_split": {"train": each * classes}, "split_folders": False, "bytes": 1, "formats": {"JPEG": 1},
        "unreadable": {}, "sides": (side, side, side), "pixels": side * side, "gray": False, "copies": 0,
        "hidden": 0,
    }  # fmt: skip
    return Survey(**{**known, **others})


def values(found: Survey, machine: Machine = LAPTOP, *, pretrained: bool = True) -> dict[str, object]:
    return {each.key: each.value for each in plan.choose(found, machine, "own", pretrained=pretrained)}


@pytest.mark.parametrize(
    ("found", "machine", "pretrained", "network", "size"),
    [
        (images(24, side=240), LAPTOP, True, "mobilenet_v2", 224),
        (images(24, side=130), LAPTOP, True, "mobilenet_v2", 128),
        (images(24, side=60), LAPTOP, True, "mobilenet_v2", 96),
        (images(24), GPU, True, "efficientnet_v2_b0", 224),
        (images(20_000), LAPTOP, True, "mobilenet_v2", 96),
        (images(24), LAPTOP, False, "cifarnet", 48),
        (images(300, side=28, gray=True), LAPTOP, True, "mnist_cnn", 28),
        (images(300, side=32), LAPTOP, True, "cifarnet", 32),
    ],
)
def test_network_and_size_fit_images_and_machine(found, machine, pretrained, network, size) -> None:
    chosen = values(found, machine, pretrained=pretrained)
    assert (chosen["model.name"], chosen["preprocessing.image_size"]) == (network, size)
    assert (chosen["model.weights"] == "imagenet") == (network in {"mobilenet_v2", "efficientnet_v2_b0"})


def test_the_stated_precision_is_the_exact_interval_also_of_few_images() -> None:
    chosen = plan.choose(images(2, classes=5), LAPTOP, "own", pretrained=False)
    reason = next(each.reason for each in chosen if each.key == "dataset.test_fraction")
    assert "precise to about +/- 41 points" in reason


@pytest.mark.parametrize(
    ("each", "said"),
    [
        (24, "; drift in traffic needs 50 validation images"),
        (200, "; below 50 a class, only large drifts in traffic are found"),
        (600, ""),
    ],
)
def test_too_few_images_to_watch_traffic_are_said_when_the_project_is_made(each: int, said: str) -> None:
    chosen = plan.choose(images(each), LAPTOP, "own", pretrained=False)
    reason = next(each.reason for each in chosen if each.key == "dataset.validation_fraction")
    assert reason.partition("best epoch with")[2] == said


def test_few_images_train_the_head_and_many_all_of_the_network() -> None:
    few, many = values(images(24)), values(images(2000))
    assert (few["train.trainable"], few["dataset.test_fraction"], few["train.epochs"]) == (["logits"], 0.2, 30)
    assert (few["preprocessing.name"], many["preprocessing.name"]) == ("plain", "auto")
    assert "train.trainable" not in many
    assert many["train.head.steps"] > 0
    assert (many["dataset.test_fraction"], many["train.epochs"] < 10) == (0.1, True)


def test_what_the_folder_shows_decides() -> None:
    chosen = values(images(20, copies=3, per_split={"train": 80, "test": 20}, per_class={"a": 90, "b": 10}))
    assert "dataset.test_fraction" not in chosen
    assert chosen["validate.severity.duplicate_across_splits"] == "warn"
    assert chosen["train.class_weights"] == "balanced"


def test_photographs_of_many_megapixels_are_reduced_with_a_reason() -> None:
    large = images(24, side=3000, pixels=12_000_000)
    (choice,) = (
        each for each in plan.choose(large, LAPTOP, "own", pretrained=True) if each.key == "dataset.max_side"
    )
    assert choice.value == 512
    assert "images have 12.0 megapixels, and the network takes 224 x 224" in choice.reason
    assert "dataset.max_side" not in values(images(24, side=400))
    own = plan.choose(large, LAPTOP, "own", pretrained=True, image_size=600)
    assert next(each for each in own if each.key == "dataset.max_side").value == 1200


CASES = [
    (2, 8, LAPTOP, True), (24, 64, GPU, True), (24, 3000, LAPTOP, False), (3000, 3000, LAPTOP, True),
    (3000, 28, GPU, False),
]  # fmt: skip


@pytest.mark.parametrize(("each", "side", "machine", "pretrained"), CASES)
def test_every_plan_is_valid_whatever_came_before(project, each, side, machine, pretrained) -> None:
    found = images(each, side=side, gray=side < 28)
    choices = plan.choose(found, machine, "own", pretrained=pretrained)
    config = start.parsed(start.new_text(Path("params.yaml"), choices, {"model.dropout": 0.1}))
    assert (config.dataset.name, config.gate.min_accuracy, config.train.stop_threshold) == (
        "image_folder", None, None,
    )  # fmt: skip
    assert config.train.epochs == values(found, machine, pretrained=pretrained)["train.epochs"]
    assert config.train.max_steps is None
    assert config.model.dropout == 0.1
    assert all(choice.reason for choice in choices)
    assert plan.minutes(found, machine, config) > 0
