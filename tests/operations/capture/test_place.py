"""What a place holds, forgets and removes."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from support.raw import encoded, picture

from perennial.base.errors import ConfigError, DataError
from perennial.base.storage import open_store
from perennial.base.storage.local import LocalStore
from perennial.operations.capture import place
from perennial.operations.capture.place import KeptImage

DAY = "2026-11-27"
IMAGE, OTHER = encoded(picture(1, 12)), encoded(picture(2, 12), "JPEG")


def keep(store, day: str, *images: bytes) -> list[KeptImage]:
    """Keep images as a server does."""
    records = [
        KeptImage(
            time=f"{day}T02:00:00.000+00:00",
            model="pets",
            version="7",
            sha256=place.put_image(store, day, image),
            top=(("cat", 0.75), ("dog", 0.25)),
            reason="random",
            probability=0.01,
            candidate="8",
            candidate_top=(("dog", 0.5),),
        )
        for image in images
    ]
    place.put_records(store, day, f"020000-{len(images)}", records)
    return records


@pytest.fixture(params=["folder", "bucket"])
def store(request, tmp_path):
    if request.param == "folder":
        return LocalStore(tmp_path / "kept")
    return open_store(f"s3://{request.getfixturevalue('bucket').name}/kept")


def test_what_was_kept_is_read_again(store) -> None:
    kept = keep(store, DAY, IMAGE, OTHER)
    assert list(place.read(store)) == kept
    content, _ = store.get_bytes(place.image_key(DAY, kept[1].sha256, OTHER))
    assert content == OTHER


def statistics(store, day: str, *digests: str) -> list[KeptImage]:
    """Keep statistics as a server does."""
    records = [
        KeptImage(
            time=f"{day}T02:00:00.000+00:00", model="pets", version="7", sha256=digest, top=(("cat", 0.75),),
            reason="random", probability=0.01, reference="r",
            features=place.written(np.linspace(-0.088, 0.088, 256, dtype=np.float32)), brightness=127.5,
        )
        for digest in digests
    ]  # fmt: skip
    place.put_records(store, day, f"020000-ab-n{len(records)}", records)
    return records


def test_statistics_are_read_as_they_were_written(store) -> None:
    kept = statistics(store, DAY, "0" * 64)
    assert list(place.read(store)) == kept
    np.testing.assert_allclose(kept[0].values(), np.linspace(-0.088, 0.088, 256), atol=4e-5)


def test_statistics_count_as_images_of_the_day(store) -> None:
    statistics(store, DAY, "0" * 64, "1" * 64)
    assert place.usage(store, DAY).today == 2


def test_forgetting_an_image_removes_its_statistics(store) -> None:
    statistics(store, DAY, "0" * 64, "1" * 64)
    assert place.forget(store, ["0" * 64]) == 1
    assert [each.sha256 for each in place.read(store)] == ["1" * 64]


def test_a_record_of_an_image_has_no_empty_fields(store) -> None:
    keep(store, DAY, IMAGE)
    content, _ = store.get_bytes(f"{DAY}/records/020000-1.jsonl")
    assert b"features" not in content


def test_a_place_without_images_is_empty(store) -> None:
    assert list(place.read(store)) == []
    assert place.usage(store, DAY) == (0, 0)


def test_the_same_image_takes_its_space_once_a_day(store) -> None:
    keep(store, DAY, IMAGE, IMAGE)
    assert place.usage(store, DAY).today == 1


def test_old_days_are_removed_and_other_files_stay(store) -> None:
    today = datetime.now(UTC).date()
    old, young = (today - timedelta(8)).isoformat(), (today - timedelta(7)).isoformat()
    keep(store, old, IMAGE)
    kept = keep(store, young, OTHER)
    mine = [f"{old}/images/mine.png", f"{old}/notes.txt", "images/a.png"]
    for key in mine:
        store.put(key, b"mine")
    assert place.remove_before(store, 7) == 2
    assert list(place.read(store)) == kept
    assert {entry.key for entry in store.list()} >= set(mine)


def test_a_forgotten_image_is_in_no_file_and_no_record(store) -> None:
    first, second = keep(store, DAY, IMAGE, OTHER)
    keep(store, "2026-11-28", IMAGE)
    assert place.forget(store, [first.sha256]) == 2
    assert list(place.read(store)) == [second]
    assert [entry.key for entry in store.list() if first.sha256 in entry.key] == []


def test_a_damaged_record_is_named_with_its_line(store) -> None:
    keep(store, DAY, IMAGE)
    key = f"{DAY}/records/020000-1.jsonl"
    store.put(key, store.get_bytes(key)[0] + b'{"time": "2026')
    with pytest.raises(DataError, match=rf"{key}: line 2 is no record of a kept image"):
        list(place.read(store))


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path) -> None:
    (tmp_path / "kept").write_bytes(b"mine")
    with pytest.raises(ConfigError, match="kept cannot be made"):
        place.open_place(str(tmp_path / "kept"))


def test_a_record_belongs_to_its_day_of_utc() -> None:
    kept = KeptImage(
        time=f"{DAY}T23:59:59.999+00:00", model="", version="", sha256="", top=(), reason="", probability=1
    )
    assert kept.day == DAY
