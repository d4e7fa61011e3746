"""Decoded images in memory and on the disk."""

from pathlib import Path

import numpy as np
import pytest
from support.records import datum, write_folder

from perennial.base.errors import DataError, PerennialError
from perennial.data.preprocessing import ImageSpec
from perennial.data.records import manifest
from perennial.model.training import cache

PIXELS = ImageSpec(
    preprocessing="rescale", height=4, width=6, channels=1, image_size=None, grayscale=False, fast=True
)
EXAMPLES = 50
MEGABYTE = 10**6


@pytest.fixture
def pictures() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (EXAMPLES, 4, 6), dtype=np.uint8)


@pytest.fixture
def records(tmp_path: Path, pictures: np.ndarray) -> Path:
    """Two shards of images of one size; an example's label is 0 or 1 in turns."""
    data = [datum(picture, number % 2) for number, picture in enumerate(pictures)]
    write_folder(tmp_path / "records", {"train": [data[:20], data[20:]]}, ["cat", "dog"])
    return tmp_path / "records"


@pytest.fixture
def decoded(load, records: Path):
    def decode(where: str, **pixels) -> cache.Table | None:
        train = load(**{"train.cache": where}).train
        data = manifest.load(records)
        return cache.decoded(records, data, PIXELS.model_copy(update=pixels), train, Path("work"))

    return decode


def files() -> dict[Path, tuple[int, int]]:
    """Those in the cache, with what changes when one is written again."""
    found = {path: path.stat() for path in Path("work/cache").rglob("*") if path.is_file()}
    return {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in found.items() if path.name != "lock"}


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_table_is_the_split_in_the_order_of_its_records(decoded, pictures, where: str) -> None:
    table = decoded(where)
    assert (table.images.numpy()[..., 0] == pictures).all()
    assert table.labels.tolist() == [0, 1] * (EXAMPLES // 2)


def test_none_means_none(decoded) -> None:
    assert decoded("none") is None


def test_nothing_is_written_where_memory_is_enough(decoded) -> None:
    decoded("memory")
    assert files() == {}


def test_files_are_used_again(decoded) -> None:
    decoded("disk")
    before = files()
    decoded("disk")
    assert files() == before != {}


@pytest.mark.fast_rows("missing-cache.json", "cut-labels.int64", "changed-images.uint8")
@pytest.mark.parametrize("name", [cache.IMAGES, cache.LABELS, cache.FACTS])
@pytest.mark.parametrize(
    "harm",
    [
        Path.unlink,
        lambda file: file.write_bytes(file.read_bytes()[:-1]),
        lambda file: file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:]),
    ],
    ids=["missing", "cut", "changed"],
)
def test_damaged_files_are_made_again(decoded, pictures, name: str, harm) -> None:
    decoded("disk")
    (file,) = Path("work/cache").rglob(name)
    harm(file)
    table = decoded("disk")
    assert (table.images.numpy()[..., 0] == pictures).all()
    assert table.labels.tolist() == [0, 1] * (EXAMPLES // 2)


def test_files_of_other_records_are_removed(decoded, records: Path) -> None:
    decoded("disk")
    before = set(files())
    data = manifest.load(records)
    manifest.write(records, data.model_copy(update={"dataset": "other pets"}))
    decoded("disk")
    assert len(files()) == len(before)
    assert before & set(files()) == set()


def test_what_a_killed_process_left_is_no_hindrance(decoded, pictures) -> None:
    decoded("disk")
    (folder,) = {path.parent for path in files()}
    folder.rename(folder.with_name(f".{folder.name}.0123456789abcdef.tmp"))
    assert (decoded("disk").images.numpy()[..., 0] == pictures).all()
    assert [path.name for path in Path("work/cache").iterdir() if path.is_dir()] == [folder.name]


def test_records_that_became_fewer_since_they_were_checked_are_refused(load, records: Path) -> None:
    data = manifest.load(records)
    shard = records / data.splits["train"].shards[1].file
    shard.write_bytes(b"")
    with pytest.raises(DataError, match="20 training examples, expected 50"):
        cache.decoded(records, data, PIXELS, load(**{"train.cache": "memory"}).train, Path("work"))


def test_a_full_disk_is_reported_and_leaves_nothing(decoded, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "_write", full)
    with pytest.raises(PerennialError, match=r"No space left on device; it takes .* set train.cache to none"):
        decoded("disk")
    assert files() == {}


@pytest.mark.parametrize(
    ("size_mb", "kept", "free_mb", "where"),
    [(100, False, 0, "memory"), (101, False, 202, "disk"), (101, False, 201, "none"), (101, True, 0, "disk")],
)
def test_auto_takes_memory_then_disk_then_none(
    load, size_mb: int, kept: bool, free_mb: int, where: str
) -> None:
    train = load(**{"train.cache": "auto", "train.memory_mb": 100}).train
    assert cache.choose(train, size=size_mb * MEGABYTE, kept=kept, free=free_mb * MEGABYTE) == where


@pytest.mark.parametrize("where", ["memory", "disk", "none"])
def test_what_is_asked_for_is_taken(load, where: str) -> None:
    train = load(**{"train.cache": where, "train.memory_mb": 1}).train
    assert cache.choose(train, size=10**9, kept=False, free=0) == where
