"""MNIST: 28x28 grey handwritten digits, 60,000 for training and 10,000 for testing.

Format: http://yann.lecun.com/exdb/mnist (IDX). Digests: of the original files.
"""

from pathlib import Path

from perennial.data.datasets.dataset import Dataset, Examples, Source, SourceFile
from perennial.data.datasets.readers import fixed_size

CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def read(folder: Path) -> Source:
    """Read the images and labels of both splits, in file order."""

    def examples(prefix: str) -> Examples:
        images, labels = (folder / f"{prefix}-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1"))
        return fixed_size.idx_examples(images, labels, classes=len(CLASSES))

    return Source(classes=CLASSES, splits={"train": examples("train"), "test": examples("t10k")})


def _file(name: str, size: int, sha256: str, content_sha256: str) -> SourceFile:
    return SourceFile(name=f"{name}-ubyte.gz", bytes=size, sha256=sha256, content_sha256=content_sha256)


MNIST = Dataset(
    mirrors=(
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
    files=(
        _file("train-images-idx3", 9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
              "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
        _file("train-labels-idx1", 28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
              "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
        _file("t10k-images-idx3", 1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
              "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
        _file("t10k-labels-idx1", 4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
              "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    ),
    read=read,
)  # fmt: skip
