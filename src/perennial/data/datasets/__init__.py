"""The data sets: one file of facts and one reader each."""

from perennial.base.config.data import DatasetConfig
from perennial.base.config.fields import is_component
from perennial.data.datasets import component, image_folder
from perennial.data.datasets.cifar10 import CIFAR10
from perennial.data.datasets.dataset import Dataset
from perennial.data.datasets.digits import DIGITS
from perennial.data.datasets.flowers import FLOWERS
from perennial.data.datasets.image_folder import IMAGE_FOLDER
from perennial.data.datasets.imagenet import IMAGENET
from perennial.data.datasets.mnist import MNIST
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


def named(name: str) -> Dataset:
    """The data set that a name means, which may be a component of the project."""
    return component.load(name) if is_component(name) else DATASETS[name]
