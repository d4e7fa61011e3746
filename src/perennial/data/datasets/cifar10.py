"""CIFAR-10: 32x32 colour photographs of ten classes, 50,000 for training and 10,000 for testing.

Formats: https://www.cs.toronto.edu/~kriz/cifar.html, the binary version. Digest: from tensorflow-datasets
4.9.10.
"""

from pathlib import Path

from perennial.data.datasets.dataset import Dataset, Examples, Source, SourceFile
from perennial.data.datasets.readers import cifar

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST = ("test_batch",)


def read(folder: Path) -> Source:
    """Read both splits in file order."""
    tar, batches = folder / "cifar-10-binary.tar", "cifar-10-batches-bin"
    cifar.check_classes(tar, batches, CLASSES)

    def examples(names: tuple[str, ...]) -> Examples:
        return cifar.examples(tar, [f"{batches}/{name}.bin" for name in names], CLASSES)

    return Source(classes=CLASSES, splits={"train": examples(TRAIN), "test": examples(TEST)})


CIFAR10 = Dataset(
    mirrors=("https://www.cs.toronto.edu/~kriz/",),
    files=(
        SourceFile(
            name="cifar-10-binary.tar.gz",
            bytes=170_052_171,
            sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
    read=read,
)
