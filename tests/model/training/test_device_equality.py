"""Each option trains alike on one, two and three devices, with short last batches, resumed or not."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, get_args

import PIL.Image
import pytest
from support import tagged, training
from support.on_devices import SAVED, STEPS, Devices, Trained
from support.raw import picture

from perennial.base import choices, documents

EXAMPLES = 1249  # of the training split
# Batch sizes. The last batch of an epoch has 241 examples, which neither two nor three devices share evenly, or
# a single one.
UNEVEN, SINGLE = 252, 312
BATCHES = {UNEVEN: 30, SINGLE: 12}  # of the 37 photographs: the last batch has 7, or a single one
COMMON: Mapping[str, object] = {
    "dataset.validation_fraction": 0.13, "model.dropout": 0.3, "train.optimizer": "sgd",
    "train.learning_rate": 0.05, "train.max_steps": STEPS, "train.steps_between_evals": 4,
    "train.batch_norm": "synced", "checkpoints.interval_steps": SAVED,
}  # fmt: skip
# Photographs of many sizes and kinds, distorted when they are decoded, with all colors drawn in the step.
PHOTOGRAPHS: Mapping[str, object] = {
    "dataset.name": "image_folder", "dataset.path": "originals", "dataset.digests": "record",
    "preprocessing.name": "inception", "preprocessing.image_size": 24, "preprocessing.fast": False,
}  # fmt: skip
FAST = {"preprocessing.name": "cifarnet"}  # colors of inception take long to compile for each size of a batch


class Case(NamedTuple):
    """Parameters of section train, and how far a weight may be from that of one device."""

    values: Mapping[str, object]
    tolerance: float = 1e-4
    both: bool = False  # sizes
    fast: bool = False
    devices: tuple[int, ...] = (2, 3)  # compared with one
    photographs: bool = False  # instead of digits
    tagged: bool = False  # pictures with several labels instead


AVERAGED: Mapping[str, object] = {"averages.decay": 0.9}
CASES: dict[str, Case] = {
    "plain": Case({}, both=True),
    "mixup": Case({"augmentation.mixup": 0.2}, both=True),
    "cutmix": Case({"augmentation.cutmix": 1.0}, both=True),
    "mixup and cutmix": Case({"augmentation.mixup": 0.2, "augmentation.cutmix": 1.0}, both=True),
    "mixup without cache": Case({"augmentation.mixup": 0.2, "cache": "none"}, both=True),
    "mixup with a teacher": Case({"augmentation.mixup": 0.2, "teacher": "champion", "teacher_focus": 1.0}),
    "mixup in bfloat16": Case({"augmentation.mixup": 0.2, "precision": "bfloat16"}, 5e-3),
    "mixup summed on one device": Case({"augmentation.mixup": 0.2, "all_reduce": "reduce_to_one"}),
    "mixup summed hierarchically": Case(
        {"augmentation.mixup": 0.2, "all_reduce": "hierarchical_copy"}, devices=(2,)
    ),
    "erasing": Case({"augmentation.erasing": 0.5}),
    "averages": Case(AVERAGED, both=True),
    "fixed averages": Case({**AVERAGED, "averages.dynamic": False}),
    "averages of the best": Case({**AVERAGED, "keep": "best", "steps_between_evals": 2}),
    "patience": Case({"patience": 5, "stop_metric": "loss", "steps_between_evals": 1, "learning_rate": 2.0}),
    "bfloat16": Case({"precision": "bfloat16"}, 5e-3),
    "float16": Case({"precision": "float16"}, 5e-3, both=True),
    "float16 with a fixed scale": Case({"precision": "float16", "loss_scale": 128.0}, 5e-3),
    "label smoothing": Case({"label_smoothing": 0.1}),
    "balanced classes": Case({"class_weights": "balanced"}, both=True),
    "weights of classes": Case({"class_weights": [1.0, 2.0, 0.5, 1.0, 3.0, 1.0, 1.0, 0.1, 1.0, 1.0]}),
    "clipped": Case({"clip_norm": 0.1}),
    "clipped in float16": Case({"clip_norm": 0.1, "precision": "float16"}, 5e-3),
    "weight decay": Case({"weight_decay": 0.01}),
    "no auxiliary loss": Case({"aux_loss_weight": 0.0}),
    "head first": Case({"head.steps": 6}, both=True),
    "head first, mixed": Case({"head.steps": 6, "augmentation.mixup": 0.2}),
    "only the head": Case({"trainable": ["logits", "aux"]}),
    "warm-up and decay": Case({"schedule.name": "cosine", "schedule.warmup_steps": 3}),
    "epochs": Case({"max_steps": None, "epochs": 2, "steps_between_evals": None, "epochs_between_evals": 2}),
    **{name: Case({"optimizer": name}) for name in get_args(choices.Optimizer)},
    "nesterov": Case({"optimizer": "momentum", "optimizer_options.nesterov": True}),
    "amsgrad": Case({"optimizer": "adam", "optimizer_options.amsgrad": True}),
    "centered": Case({"optimizer": "rmsprop", "optimizer_options.centered": True}),
    "everything": Case(
        {
            "optimizer": "rmsprop", "augmentation.mixup": 0.2, "augmentation.cutmix": 1.0,
            "augmentation.erasing": 0.5, "averages.decay": 0.9, "keep": "best",
            "label_smoothing": 0.1, "class_weights": "balanced", "clip_norm": 1.0, "head.steps": 3,
        },
        both=True,
    ),
    "several labels": Case({"positive_weights": "balanced"}, tagged=True, both=True),
    "mixup of several labels": Case({"augmentation.mixup": 0.2, "label_smoothing": 0.1}, tagged=True),
    "photographs": Case({}, photographs=True, both=True),
    "mixup of photographs": Case({"augmentation.mixup": 0.2}, photographs=True, fast=True, both=True),
}  # fmt: skip


def write_photographs(folder: Path) -> None:
    """JPEG, grey JPEG, CMYK (stored as PNG) and PNG; 37 to train on, and a few of each class for the rest."""
    for split, classes in {"train": (12, 12, 13), "val": (2, 2, 2), "test": (1, 1, 1)}.items():
        for label, count in enumerate(classes):
            for number in range(count):
                seed = 1000 * label + number + 100 * len(split)
                pixels = picture(seed, 30 + number)[: 26 + number // 2]
                mode, kind = (("RGB", "jpeg"), ("L", "jpeg"), ("CMYK", "jpeg"), ("RGB", "png"))[number % 4]
                file = folder / split / f"class {label}" / f"{number:02}.{kind}"
                file.parent.mkdir(parents=True, exist_ok=True)
                PIL.Image.fromarray(pixels).convert(mode).save(file)


Train = Callable[[Mapping[str, object], Sequence[int], bool], list[Trained]]


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Train]:
    """Trains on so many devices, one training for each number."""
    groups: dict[tuple[Path, int], Devices] = {}

    @cache
    def prepared(originals: str) -> Path:
        folder, more, examples = tmp_path_factory.mktemp("records"), {}, EXAMPLES
        if originals == "originals":
            write_photographs(folder / originals)
            more, examples = PHOTOGRAPHS, 37
        if originals == "tagged":
            tagged.write(folder / originals, train=EXAMPLES, validation=50, test=50)
            more = tagged.VALUES
        training.prepare(folder, {**COMMON, **more})
        manifest = documents.read_json(folder / "data" / "records" / "manifest.json")
        assert manifest["splits"]["train"]["examples"] == examples
        return folder

    def train(values: Mapping[str, object], counts: Sequence[int], resume: bool) -> list[Trained]:
        records = prepared(str(values.get("dataset.path")))
        for count in counts:
            if (records, count) not in groups:
                groups[records, count] = Devices(records, tmp_path_factory.mktemp(f"cpu{count}"), count)
            groups[records, count].ask({**COMMON, **values}, resume=resume)
        answers = [groups[records, count].answer() for count in counts]
        assert not (errors := [each for each in answers if isinstance(each, str)]), errors[0]
        return [each for each in answers if isinstance(each, Trained)]

    yield train
    for devices in groups.values():
        devices.close()


QUICK = ("mixup", SINGLE)


def rows() -> Iterator[object]:
    """Each case with one of the sizes in turn; with both, those where one example affects what others give.

    A single example on two devices, of which one gets none, is the fast test.
    """
    for number, (name, case) in enumerate(CASES.items()):
        for size in (UNEVEN, SINGLE) if case.both else ((UNEVEN, SINGLE)[number % 2],):
            if (name, size) == QUICK:
                yield pytest.param(name, size, (2,), id=f"{name}-{size}")
                yield pytest.param(name, size, (3,), marks=pytest.mark.slow, id=f"{name}-{size}-3")
            else:
                yield pytest.param(name, size, case.devices, marks=pytest.mark.slow, id=f"{name}-{size}")


@pytest.mark.parametrize(("name", "size", "counts"), list(rows()))
def test_devices_learn_what_one_learns(name, size, counts, train, record_property) -> None:
    case = CASES[name]
    values = {f"train.{key}": value for key, value in case.values.items()}
    if case.photographs:
        size, values = BATCHES[size], {**PHOTOGRAPHS, **(FAST if case.fast else {}), **values}
    if case.tagged:
        values = {**tagged.VALUES, **values}
    resume = (name, size, *counts) != (*QUICK, 2)  # other tests of the quick suite do
    one, *several = train({"train.batch_size": size, **values}, (1, *counts), resume)
    for count, trained in zip(counts, several, strict=True):
        record_property(f"cpu:{count}", trained.difference(one))
    assert [trained.resumed_equally for trained in (one, *several)] == [True] * (1 + len(several))
    assert max(trained.difference(one)[1] for trained in several) < case.tolerance
