import io

import numpy as np
import pytest

from perennial.errors import DataError
from perennial.records import access, manifest
from perennial.tfrecord import framing


@pytest.fixture
def indexed(folder, tmp_path):
    """A sound record folder and its index."""
    index = tmp_path / "index"
    index.mkdir()
    for shard in folder.glob("*.tfrecord"):
        content = shard.read_bytes()
        np.save(index / f"{shard.name}.npy", framing.scan(io.BytesIO(content), len(content))[0])
    return folder, index


def change_index(index, **changes):
    """Other offset or length of the second training record."""
    spans = np.load(index / "train.tfrecord.npy")
    spans[1] = changes.get("offset", spans[1, 0]), changes.get("length", spans[1, 1])
    np.save(index / "train.tfrecord.npy", spans)


def pixel(record):
    """The number that the test record was made of."""
    return record.encoded[-21]


def test_records_are_numbered_through_train_validation_and_test(indexed):
    records = access.Records(*indexed)
    found = [records.record(number) for number in range(len(records))]
    assert [pixel(record) for record in found] == [*range(20), 0, 1, 0, 1]
    assert [record.place.split for record in found] == ["train"] * 20 + ["validation"] * 2 + ["test"] * 2
    assert [record.place.number for record in found] == list(range(24))


def test_a_record_of_a_split_is_numbered_within_it(indexed):
    record = access.Records(*indexed).record(1, "test")
    assert (record.place.number, record.place.shard.file, record.place.record) == (23, "test.tfrecord", 1)
    assert (record.fields.label, record.fields.format, record.fields.height) == (1, "png", 2)


def test_records_of_several_shards_are_found(folder):
    shards = [
        manifest.Shard(file=name, examples=count, bytes=0, sha256="") for name, count in (("a", 2), ("b", 3))
    ]
    parts = {"train": manifest.SplitManifest(examples=5, per_class=[5], shards=shards)}
    whole = manifest.Manifest(dataset="pets", classes=["cat"], source={}, splits=parts)
    places = [access.place(whole, number) for number in range(5)]
    assert [(place.shard.file, place.record) for place in places] == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("b", 1),
        ("b", 2),
    ]


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
        access.Records(*indexed).record(number, split)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offset": 1}, r"train.tfrecord record 1 at byte 1: expected a record of \d+ bytes as in the index"),
        ({"length": 7}, "record 1 at byte .*: expected a record of 7 bytes"),
        ({"length": 2**63}, "record 1 at byte .* but the file ends at"),
        ({"offset": 2**64 - 1}, "record 1 at byte 18446744073709551615: .* but the file ends at"),
    ],
)
def test_an_index_that_does_not_fit_its_shard_is_refused(indexed, changes, message):
    change_index(indexed[1], **changes)
    with pytest.raises(DataError, match=f"{message}.*perennial validate"):
        access.Records(*indexed).record(1)


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
    with pytest.raises(DataError, match=r"train\.tfrecord\.npy .*`perennial validate` makes the index anew"):
        access.Records(*indexed).record(0)


def test_every_changed_byte_of_a_record_is_found(indexed):
    folder, index = indexed
    shard, records = folder / "test.tfrecord", access.Records(folder, index)
    sound = shard.read_bytes()
    for place in range(len(sound) // 2):
        shard.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        with pytest.raises(DataError, match=r"test\.tfrecord record 0 at byte 0: .*`perennial validate`"):
            records.record(0, "test")


def test_only_the_record_asked_for_is_read(indexed):
    shard = indexed[0] / "train.tfrecord"
    content = bytearray(shard.read_bytes())
    start = len(content) // 20 * 7
    content[:start] = bytes(start)
    shard.write_bytes(content)
    assert pixel(access.Records(*indexed).record(7)) == 7


def test_a_record_that_is_no_example_is_refused(indexed):
    folder, index = indexed
    content = framing.frame(b"no example")
    (folder / "test.tfrecord").write_bytes(content * 2)
    np.save(index / "test.tfrecord.npy", framing.scan(io.BytesIO(content * 2), 2 * len(content))[0])
    with pytest.raises(DataError, match=r"test\.tfrecord record 1 at byte 26: "):
        access.Records(folder, index).record(1, "test")


@pytest.mark.parametrize(
    ("part", "remedy"), [("index/test.tfrecord.npy", "perennial validate"), ("test.tfrecord", "dvc")]
)
def test_a_missing_file_is_named_with_its_remedy(indexed, part, remedy):
    (indexed[0] / part).unlink()
    with pytest.raises(DataError, match=f"{part} .*{remedy}"):
        access.Records(*indexed).record(0, "test")
