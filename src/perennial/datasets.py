"""The data sets that `dataset.name` names, for programs."""

from perennial.data.datasets import DATASETS

__all__ = ["DATASETS"]
