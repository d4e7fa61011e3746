"""CIFAR-10 archives and pickles of any content are read as what they say, or refused; nothing is ever run."""

import io
import tarfile
from contextlib import suppress

import numpy as np
import pytest
from fuzz.hunt import at_most, hostile, hunt, mutated
from hypothesis import strategies as st
from support import pickles
from support.raw import tar

from perennial.base.errors import DataError
from perennial.data.datasets import cifar10
from perennial.data.datasets.readers import cifar

# Python's own pickletools decodes the strings of an opcode that is refused afterwards.
pytestmark = pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")
PIXELS = np.arange(3072, dtype=np.uint64).astype(np.uint8).reshape(1, 3072)


BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
BINARY = tar(
    {
        f"cifar-10-batches-bin/{name}.bin": bytes([label]) + PIXELS.tobytes()
        for label, name in enumerate(BATCHES)
    }
)
PYTHON = tar({f"cifar-10-batches-py/{name}": pickles.batch(PIXELS, [3]) for name in BATCHES})
SMALL = np.arange(8, dtype=np.uint8).reshape(2, 4)
PICKLES = [
    pickles.batch(SMALL, [1, 2]),
    pickles.batch(SMALL, [1, 2], "F"),
    pickles.dictionary(a=pickles.text(b"x")),
]
# Opcodes of every kind, so that any order of them is tried; most are refused.
OPCODES = st.sampled_from(
    [
        b"\x80\2", b"}", b"]", b"(", b"t", b"\x85", b"\x86", b"\x87", b"e", b"u", b"R", b"b", b".", b"N",
        b"q\0", b"q\1", b"h\0", b"h\1", b"K\7", b"M\1\2", b"J\xff\xff\xff\xff", b"U\1a", b"T\2\0\0\0u1",
        b"0", b"2", b"\x88",
        b"cnumpy\ndtype\n", b"cnumpy\nndarray\n", b"cnumpy.core.multiarray\n_reconstruct\n", b"cos\nsystem\n",
        b"X\1\0\0\0a", b"\x8a\1\2", b"I1\n", b"F1.5\n", b"r\xff\xff\xff\x7f", b"T\xff\xff\xff\x7f", b"\x8c\1a",
    ]
)  # fmt: skip


@pytest.fixture
def read(tmp_path):
    """Labels and images of an archive; None where it is refused."""

    def content(archive, name):
        (tmp_path / name).write_bytes(archive)
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
        found = read(archive, "cifar-10-binary.tar")
        assert found is None or [labels for labels, _ in found] == labels_by_tarfile(archive)

    hunt(mutated(BINARY) | hostile(BINARY[:512]), check)


def test_archives_for_python_are_read_or_refused(read):
    hunt(mutated(PYTHON) | hostile(PYTHON[:512]), lambda archive: read(archive, "cifar-10-python.tar"))


def unpickled(content):
    with suppress(DataError):
        return cifar.read_pickle(content, "a file")
    return None


def test_pickles_are_read_or_refused():
    hunt(hostile(*PICKLES) | st.lists(OPCODES, max_size=40).map(b"".join), unpickled)


def test_an_array_that_is_read_lies_within_its_pickle():
    def check(content):
        for value in (unpickled(content) or {}).values():
            if isinstance(value, cifar.PickledArray):
                assert 0 < value.offset <= len(content) - int(np.prod(value.shape))

    hunt(st.one_of(*map(mutated, PICKLES)), check)


def doubling(levels):
    """A tuple of tuples, each twice the one before, in a few bytes for each level."""
    return b"N" + b"".join(b"q%ch%c\x86" % (level, level) for level in range(levels))


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\2cnumpy\ndtype\n" + doubling(40) + b"\x85R.",
        b"\x80\2" + doubling(40) + b".",
        pickles.dictionary(data=doubling(40)),
        pickles.dictionary(data=pickles.array(PIXELS), labels=b"](" + doubling(40) + b"e"),
        pickles.dictionary(data=pickles.array(PIXELS).replace(b"M\1\0M\0\x0c\x86", doubling(40) + b"\x85")),
    ],
    ids=["arguments", "no dictionary", "a value", "a label", "a shape"],
)
def test_a_small_pickle_of_something_huge_is_refused_at_once(read, content):
    names = {f"cifar-10-batches-py/{name}": content for name in BATCHES}
    with at_most(120):
        assert read(tar(names), "cifar-10-python.tar") is None
