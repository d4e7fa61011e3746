import io
import re

import numpy as np
import pytest

from perennial.base.errors import DataError
from perennial.data.records import manifest, random_access
from perennial.data.tfrecord import framing


@pytest.fixture
def indexed(folder, tmp_path):
    """A valid record folder and its index."""
    index = tmp_path / "index"
    index.mkdir()
    for shard in folder.glob("*.tfrecord"):
        content = shard.read_bytes()
        np.save(index / f"{shard.name}.npy", framing.scan(io.BytesIO(content), len(content))[0])
    return folder, index


def pixel(record):
    """The number that the test record was made of."""
    return record.encoded[-21]


def test_records_are_numbered_through_train_validation_and_test(indexed):
    records = random_access.Records(*indexed)
    found = [records.record(number) for number in range(24)]
    assert [pixel(record) for record in found] == [*range(20), 0, 1, 0, 1]
    assert [record.position.split for record in found] == ["train"] * 20 + ["validation"] * 2 + ["test"] * 2
    assert [record.position.number for record in found] == list(range(24))


def test_a_record_of_a_split_is_numbered_within_it(indexed):
    record = random_access.Records(*indexed).record(1, "test")
    place = record.position
    assert (place.number, place.shard.file, place.record) == (23, "test.tfrecord", 1)
    assert (record.fields.label, record.fields.format, record.fields.height) == (1, "png", 2)


def test_records_of_several_shards_are_found(folder):
    shards = [
        manifest.Shard(file=name, examples=count, bytes=0, sha256="") for name, count in (("a", 2), ("b", 3))
    ]
    parts = {"train": manifest.SplitManifest(examples=5, per_class=[5], shards=shards)}
    whole = manifest.Manifest(dataset="pets", classes=["cat"], source={}, splits=parts)
    places = [random_access.position(whole, number) for number in range(5)]
    assert "".join(place.shard.file for place in places) == "aabbb"
    assert [place.record for place in places] == [0, 1, 0, 1, 2]


@pytest.mark.parametrize(
    ("number", "split", "message"),
    [
        (24, None, "there is no record 24: the data set has records 0 to 23"),
        (-1, None, "there is no record -1: the data set has records 0 to 23"),
        (2, "test", "there is no record 2: split test has records 0 to 1"),
    ],
)
def test_a_number_that_no_record_has_is_refused(indexed, number, split, message):
    with pytest.raises(DataError, match=message):
        random_access.Records(*indexed).record(number, split)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offset": 1}, r"expected a record of \d+ bytes, its header has another length"),
        ({"length": 7}, "expected a record of 7 bytes, its header has another length"),
        ({"length": 2**63}, r"9223372036854775808 bytes expected, but the file ends at \d+"),
        ({"offset": 2**64 - 1}, r"\d+ bytes expected, but the file ends at \d+"),
    ],
)
def test_a_wrong_index_entry_is_reported_as_damage(indexed, changes, message):
    file = indexed[1] / "train.tfrecord.npy"
    spans = np.load(file)
    spans[1] = changes.get("offset", spans[1, 0]), changes.get("length", spans[1, 1])
    np.save(file, spans)
    assert re.fullmatch(message, random_access.Records(*indexed).record(1).damage)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: b"", id="empty"),
        pytest.param(lambda content: content[:100], id="cut in the header"),
        pytest.param(lambda content: content[:-1], id="cut"),
        pytest.param(lambda content: b"PK\3\4" + content[4:], id="an archive"),
        pytest.param(lambda content: content.replace(b"<u8", b"|O8"), id="a pickle"),
        pytest.param(lambda content: content.replace(b"<u8", b"<f8"), id="another type"),
        pytest.param(lambda content: content.replace(b"(20, 2)", b"(10, 4)"), id="another shape"),
        pytest.param(lambda content: content.replace(b"(20, 2)", b"(20,)  "), id="other dimensions"),
        pytest.param(lambda content: content.replace(b"{", b"["), id="no header"),
    ],
)
def test_a_damaged_index_is_refused(indexed, damage):
    file = indexed[1] / "train.tfrecord.npy"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DataError, match=r"train\.tfrecord\.npy .*`perennial validate` rebuilds the index"):
        random_access.Records(*indexed).record(0)


def test_every_changed_byte_of_a_record_is_found(indexed):
    folder, index = indexed
    shard, records = folder / "test.tfrecord", random_access.Records(folder, index)
    valid = shard.read_bytes()
    for place in range(len(valid) // 2):
        shard.write_bytes(valid[:place] + bytes([valid[place] ^ 1]) + valid[place + 1 :])
        assert records.record(0, "test").damage is not None


def test_only_the_requested_record_is_read(indexed):
    shard = indexed[0] / "train.tfrecord"
    content = bytearray(shard.read_bytes())
    start = len(content) // 20 * 7
    content[:start] = bytes(start)
    shard.write_bytes(content)
    assert pixel(random_access.Records(*indexed).record(7)) == 7


@pytest.mark.parametrize("place", [0, 11, -1])
def test_of_a_record_with_a_damaged_frame_everything_else_is_read(indexed, place):
    folder, index = indexed
    content = bytearray((folder / "test.tfrecord").read_bytes())
    last = len(content) // 2
    content[last + place if place >= 0 else place] ^= 1
    (folder / "test.tfrecord").write_bytes(content)
    record = random_access.Records(folder, index).record(1, "test")
    assert (record.damage is None, record.fields.label, pixel(record)) == (False, 1, 1)


def test_a_record_that_is_no_example_is_damaged(indexed):
    folder, index = indexed
    content = framing.frame(b"no example")
    (folder / "test.tfrecord").write_bytes(content * 2)
    np.save(index / "test.tfrecord.npy", framing.scan(io.BytesIO(content * 2), 2 * len(content))[0])
    record = random_access.Records(folder, index).record(1, "test")
    assert (record.offset, record.fields, record.encoded) == (26, None, None)
    assert "not a tf.Example" in record.damage


def test_a_shard_without_an_index_is_walked(indexed):
    (indexed[1] / "train.tfrecord.npy").unlink()
    record = random_access.Records(*indexed).record(7)
    assert (pixel(record), record.position.number, record.damage) == (7, 7, None)


@pytest.mark.parametrize("indexes", [True, False])
def test_a_missing_shard_is_named_with_its_remedy(indexed, indexes):
    (indexed[0] / "test.tfrecord").unlink()
    if not indexes:
        (indexed[1] / "test.tfrecord.npy").unlink()
    with pytest.raises(DataError, match=r"test\.tfrecord cannot be read: .*`dvc repro`"):
        random_access.Records(*indexed).record(0, "test")


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (0, "there is no record 2: .*test.tfrecord has records 0 to 1$"),
        (-1, r"there is no record 2: .* has records 0 to 0, then at byte \d+ the last 1 bytes of the record "),
    ],
)
def test_a_number_that_no_record_of_a_file_has_is_refused(indexed, cut, message):
    shard = indexed[0] / "test.tfrecord"
    content = shard.read_bytes()
    shard.write_bytes(content[: len(content) + cut])
    with pytest.raises(DataError, match=message):
        random_access.in_file(shard, 2)


def spans(*pairs):
    return np.array(pairs, np.uint64).reshape(-1, 2)


def test_an_index_has_a_file_a_shard(tmp_path):
    random_access.write_index(tmp_path, {"a": spans((0, 5), (2**40, 7)), "b": spans()})
    assert sorted(path.name for path in tmp_path.glob("*.npy")) == ["a.npy", "b.npy"]
    a, b = (np.load(tmp_path / f"{name}.npy") for name in "ab")
    assert (a.dtype, a.tolist(), b.shape) == (np.uint64, [[0, 5], [2**40, 7]], (0, 2))
