"""The record index leads to each record."""

import numpy as np

from perennial.images import png
from perennial.records import checks, index
from perennial.tfrecord import example, framing


def places(*pairs):
    return np.array(pairs, np.uint64).reshape(-1, 2)


def test_the_index_leads_to_the_data_of_a_record(folder):
    index.write(folder / "index", checks.check(folder).places)
    offset, length = np.load(folder / "index" / "train.tfrecord.npy")[13].tolist()
    with (folder / "train.tfrecord").open("rb") as stream:
        stream.seek(offset + framing.HEADER.size)
        _, encoded = example.parse(stream.read(length))
    assert encoded == png.encode(np.full((2, 2), 13, np.uint8))


def test_the_index_has_a_file_a_shard(folder):
    index.write(folder / "index", checks.check(folder).places)
    assert sorted(path.name for path in (folder / "index").glob("*.npy")) == [
        "test.tfrecord.npy",
        "train.tfrecord.npy",
        "validation.tfrecord.npy",
    ]


def test_places_are_whole_numbers_in_pairs(tmp_path):
    index.write(tmp_path / "index", {"a": places((0, 5), (2**40, 7)), "b": places()})
    a, b = (np.load(tmp_path / "index" / f"{name}.npy") for name in "ab")
    assert (a.dtype, a.tolist(), b.shape) == (np.uint64, [[0, 5], [2**40, 7]], (0, 2))


def test_an_index_takes_the_place_of_the_old_one(tmp_path):
    index.write(tmp_path / "index", {"old": places()})
    index.write(tmp_path / "index", {"new": places()})
    assert [path.name for path in (tmp_path / "index").glob("*.npy")] == ["new.npy"]


def test_equal_places_are_equal_bytes(tmp_path):
    for name in "ab":
        index.write(tmp_path / name, {"shard": places((0, 5))})
    assert (tmp_path / "a" / "shard.npy").read_bytes() == (tmp_path / "b" / "shard.npy").read_bytes()
