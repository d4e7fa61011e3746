"""The data sets: one file of facts and one reader each."""

from pathlib import Path

from perennial.base.config.data import DatasetConfig
from perennial.base.config.fields import is_component
from perennial.base.errors import DataError
from perennial.data.archives import unpack
from perennial.data.datasets import image_folder
from perennial.data.datasets.cifar10 import CIFAR10
from perennial.data.datasets.dataset import Dataset, Source, of_component
from perennial.data.datasets.digits import DIGITS
from perennial.data.datasets.flowers import FLOWERS
from perennial.data.datasets.image_folder import IMAGE_FOLDER
from perennial.data.datasets.imagenet import IMAGENET
from perennial.data.datasets.mnist import MNIST
from perennial.data.datasets.readers import labelled
from perennial.data.datasets.tfrecord import SEVERAL_LABELS, TFRECORD
from perennial.data.datasets.visualwakewords import VISUALWAKEWORDS

DATASETS: dict[str, Dataset] = {
    "digits": DIGITS, "mnist": MNIST, "cifar10": CIFAR10, "flowers": FLOWERS, "imagenet": IMAGENET,
    "visualwakewords": VISUALWAKEWORDS, "image_folder": IMAGE_FOLDER, "tfrecord": TFRECORD,
}  # fmt: skip


def of(options: DatasetConfig) -> Dataset:
    """The data set that the parameters describe."""
    if options.table is not None:
        return image_folder.with_table(options.table, options.task)
    several = options.task == "multilabel" and options.name == "tfrecord"
    return SEVERAL_LABELS if several else named(options.name)


def read(options: DatasetConfig, raw: Path, scratch: Path) -> Source:
    """Read raw files, unpacked into an empty folder, with labelled images; a DataError names the raw file."""
    dataset, own, labels = of(options), scratch / "own", scratch / labelled.TAR
    own.mkdir()
    try:
        unpack(raw, own)
        if not (own / labels.name).exists():
            return dataset.read(own)
        (own / labels.name).rename(labels)  # no file of the source
        source = labelled.join(found := dataset.read(own), labels)
    except DataError as error:
        raise DataError(str(error).replace(str(own), str(raw)).replace(str(scratch), str(raw))) from error
    new = source.classes[len(found.classes) :]
    if new and dataset.assemble is None and not is_component(options.name):
        raise DataError(
            f"{labelled.TABLE}: {new[0]!r} is none of the {len(found.classes)} classes of {options.name}; "
            "correct its rows, or leave their class empty"
        )
    return source


def named(name: str) -> Dataset:
    """The data set that a name means, which may be a component of the project."""
    return of_component(name) if is_component(name) else DATASETS[name]
