"""The data sets: one file of facts and one reader each."""

from perennial.datasets.cifar10 import CIFAR10
from perennial.datasets.dataset import Dataset
from perennial.datasets.digits import DIGITS
from perennial.datasets.flowers import FLOWERS
from perennial.datasets.image_folder import IMAGE_FOLDER
from perennial.datasets.imagenet import IMAGENET
from perennial.datasets.mnist import MNIST
from perennial.datasets.tfrecord import TFRECORD
from perennial.datasets.visualwakewords import VISUALWAKEWORDS

DATASETS: dict[str, Dataset] = {
    "digits": DIGITS,
    "mnist": MNIST,
    "cifar10": CIFAR10,
    "flowers": FLOWERS,
    "imagenet": IMAGENET,
    "visualwakewords": VISUALWAKEWORDS,
    "image_folder": IMAGE_FOLDER,
    "tfrecord": TFRECORD,
}
