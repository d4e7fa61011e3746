"""CIFAR-10 archives of any content are read as what they say, or refused."""

import io
import tarfile

import numpy as np
import pytest
from fuzz.hunt import hostile, hunt, mutated
from support.raw import tar

from perennial.base.errors import DataError
from perennial.data.datasets import cifar10

PIXELS = np.arange(3072, dtype=np.uint64).astype(np.uint8).reshape(1, 3072)


BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
BINARY = tar(
    {
        f"cifar-10-batches-bin/{name}.bin": bytes([label]) + PIXELS.tobytes()
        for label, name in enumerate(BATCHES)
    }
)


@pytest.fixture
def read(tmp_path):
    """Labels and images of an archive; None where it is refused."""

    def content(archive):
        (tmp_path / "cifar-10-binary.tar").write_bytes(archive)
        try:
            source = cifar10.read(tmp_path)
            splits = source.splits.values()
            return [(part.labels.tolist(), list(part.images(range(len(part.labels))))) for part in splits]
        except DataError:
            return None

    return content


def labels_by_tarfile(archive):
    """The labels of the batches as Python's own module finds them."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        batches = [opened.extractfile(f"cifar-10-batches-bin/{name}.bin").read() for name in BATCHES]
    labels = [list(batch[::3073]) for batch in batches]
    return [[label for batch in labels[:5] for label in batch], labels[5]]


def test_binary_archives_that_are_accepted_hold_what_another_program_finds(read):
    def check(archive):
        found = read(archive)
        assert found is None or [labels for labels, _ in found] == labels_by_tarfile(archive)

    hunt(mutated(BINARY) | hostile(BINARY[:512]), check)
