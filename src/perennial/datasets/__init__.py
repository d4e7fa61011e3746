"""The data sets: one file of facts and one reader each."""

from perennial.datasets.dataset import Dataset
from perennial.datasets.digits import DIGITS
from perennial.datasets.mnist import MNIST

DATASETS: dict[str, Dataset] = {
    "digits": DIGITS,
    "mnist": MNIST,
}
