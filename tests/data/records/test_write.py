"""Examples into the bytes of records, part by part."""

import hashlib
import pickle

import numpy as np
import pytest
from support.records import data_in, datum, image

from perennial.data.datasets.dataset import Examples
from perennial.data.datasets.readers.fixed_size import FixedSizeImages, PixelTable
from perennial.data.images import BadImage
from perennial.data.records import sharding

PIXELS = [np.full((2, 2), number, np.uint8) for number in range(6)]
BAD = BadImage(filename="bad.png", reason="it is empty")


def images(numbers):
    """Images filled with their number; that of number 3 is none."""
    return (BAD if number == 3 else image(PIXELS[number]) for number in numbers)


def encode(*numbers):
    labels = np.array([number % 2 for number in numbers], np.int64)
    chunk = sharding.ShardPart(source="train", indices=np.array(numbers, np.int64), labels=labels)
    return sharding.encode({"train": images}, chunk)


@pytest.mark.parametrize("numbers", [(4, 0, 5), ()])
def test_records_and_labels_come_in_the_order_of_the_chunk(numbers):
    found = encode(*numbers)
    assert data_in(found.records) == [datum(PIXELS[number], number % 2) for number in numbers]
    assert found.labels.tolist() == [number % 2 for number in numbers]


def test_a_file_that_is_no_image_gives_no_record_and_no_label():
    found = encode(2, 3, 4)
    assert (len(data_in(found.records)), found.labels.tolist()) == (2, [0, 0])
    assert found.rejected == {3: BAD}


def files_of_images(numbers):
    """Images whose files a record holds byte for byte, except for number 3, and 1, which was encoded again."""
    found = zip(numbers, images(numbers), strict=True)
    return (each if number in {1, 3} else each._replace(original=True) for number, each in found)


def test_content_that_a_record_holds_byte_for_byte_is_not_sent_but_read_where_the_record_is_written():
    numbers = np.array([4, 1, 3, 0, 5])
    here = sharding.encode(
        {"train": files_of_images}, sharding.ShardPart(source="train", indices=numbers, labels=numbers % 2)
    )
    part = pickle.loads(pickle.dumps(here))
    source = Examples(
        labels=numbers,
        images=files_of_images,
        image_bytes=numbers,
        originals=lambda indices: (image(PIXELS[index]).encoded for index in indices),
    )
    whole = sharding.completed(part, source)
    assert [index for _, index in part.originals] == [4, 0, 5]
    assert len(part.records) + sum(len(image(PIXELS[index]).encoded) for index in (4, 0, 5)) == len(
        whole.records
    )
    assert data_in(whole.records) == [datum(PIXELS[number], number % 2) for number in (4, 1, 0, 5)]
    assert sharding.completed(here, source) is here
    assert here.records == whole.records


def test_rows_of_a_table_give_the_records_of_their_images(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (1200, 3, 4, 5), np.uint8)
    for number, part in enumerate((pixels[:700], pixels[700:])):
        (tmp_path / str(number)).write_bytes(b"head" + part.tobytes())
    tables = tuple(
        PixelTable(file=tmp_path / str(number), offset=4, rows=rows, row_bytes=60)
        for number, rows in enumerate((700, 500))
    )
    numbers = np.array([*range(0, 1200, 2), 1199, 3, 700, 699])
    chunk = sharding.ShardPart(source="train", indices=numbers, labels=numbers % 10)
    found = sharding.encode({"train": FixedSizeImages(tables, (3, 4, 5))}, chunk)
    expected = [datum(pixels[number].transpose(1, 2, 0), number % 10) for number in numbers.tolist()]
    assert (data_in(found.records), found.labels.tolist()) == (expected, (numbers % 10).tolist())


def test_a_shard_holds_its_parts_in_their_order_and_its_entry_is_what_is_true_of_the_file(tmp_path):
    part = sharding.write_shard(tmp_path / "a.tfrecord", iter([encode(0, 1, 3), encode(4)]), 3)
    content, (entry,) = (tmp_path / "a.tfrecord").read_bytes(), part.shards
    assert data_in(content) == [datum(PIXELS[number], number % 2) for number in (0, 1, 4)]
    assert (entry.file, entry.examples, entry.bytes) == ("a.tfrecord", 3, len(content))
    assert entry.sha256 == hashlib.sha256(content).hexdigest()
    assert part.per_class == [2, 1, 0]  # also of a class without examples


def test_a_shard_that_the_disk_does_not_take_is_named(tmp_path):
    (tmp_path / "a.tfrecord").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as refused:
        sharding.write_shard(tmp_path / "a.tfrecord", iter([encode(0, 1)]), 3)
    assert refused.value.filename == str(tmp_path / "a.tfrecord")
