"""What a place holds, forgets and removes."""

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial

import numpy as np
import pytest
from support.kept import DAY, record
from support.raw import encoded, picture

from perennial.base.errors import ConfigError
from perennial.base.storage import open_store
from perennial.base.storage.local import LocalStore
from perennial.live.capture import place
from perennial.live.capture.place import KeptImage
from perennial.live.capture.same_image import Wanted

IMAGE, OTHER = encoded(picture(1, 12)), encoded(picture(2, 12), "JPEG")


def written(features: list[float]) -> str:
    """Features as base64 of float16."""
    return base64.b64encode(np.array(features, "<f2").tobytes()).decode()


def keep(store, day: str, *images: bytes) -> list[KeptImage]:
    """Keep images as a server does."""
    other = {"time": f"{day}T02:00:00.000+00:00", "candidate": "8", "candidate_top": (("dog", 0.5),)}
    records = [record(sha256=place.put_image(store, day, image), **other) for image in images]
    place.put_records(store, day, f"020000-{len(images)}", records)
    return records


@pytest.fixture(params=["folder", "bucket"])
def store(request, tmp_path):
    if request.param == "folder":
        return LocalStore(tmp_path / "kept")
    return open_store(f"s3://{request.getfixturevalue('bucket').name}/kept")


def test_a_place_without_images_is_empty(store) -> None:
    assert (list(place.read(store)), place.usage(store, DAY)) == ([], (0, 0))


def test_old_days_are_removed_and_other_files_stay(store) -> None:
    today = datetime.now(UTC).date()
    old, young = (today - timedelta(8)).isoformat(), (today - timedelta(7)).isoformat()
    keep(store, old, IMAGE)
    kept = keep(store, young, OTHER)
    mine = [f"{old}/images/mine.png", f"{old}/notes.txt", "images/a.png"]
    for key in mine:
        store.put(key, b"mine")
    assert (place.remove_before(store, 7), list(place.read(store))) == (2, kept)
    assert {entry.key for entry in store.list()} >= set(mine)


def test_a_forgotten_image_is_in_no_file_and_no_record(store) -> None:
    first, second = keep(store, DAY, IMAGE, OTHER)
    keep(store, "2026-11-28", IMAGE)
    assert place.remove_images(store, Wanted(digests={first.sha256: 0})).total() == 2
    assert list(place.read(store)) == [second]
    assert [entry.key for entry in store.list() if first.sha256 in entry.key] == []


def test_a_bucket_with_versioning_keeps_no_version_of_a_forgotten_image(bucket) -> None:
    bucket.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": "Enabled"})
    store = open_store(f"s3://{bucket.name}/kept")
    first, second = keep(store, DAY, IMAGE, OTHER)
    keep(store, DAY, IMAGE)
    place.remove_images(store, Wanted(digests={first.sha256: 0}))
    found = bucket.list_object_versions(Bucket=bucket.name)
    assert [each["Key"] for each in found["Versions"]] == [f"kept/{entry.key}" for entry in store.list()]
    assert "DeleteMarkers" not in found
    assert list(place.read(store)) == [second]


WHOLE = json.loads(json.dumps(place._line(record())))
DAMAGED = {
    "half": b'{"time": "2026',
    "nested": b"[" * 200_000,
    "no UTF-8": b'{"time": "\xff"}',
    "long": json.dumps({**WHOLE, "model": "x" * 100_000}).encode(),
    "path": {"sha256": "../../../../secret"},
    "path behind a digest": {"sha256": "0" * 64 + "/../../secret"},
    "capitals": {"sha256": "A" * 64},
    "probability 0": {"probability": 0},
    "probability above 1": {"probability": 1.5},
    "share above 1": {"top": [["cat", 1.5]]},
    "share without a class": {"top": [[0.5]]},
    "many classes": {"top": [["cat", 0.1]] * 1000},
    "time": {"time": "yesterday"},
    "day that is none": {"time": "2026-02-30T02:00:00.000+00:00"},
    "another zone": {"time": "2026-11-27T02:00:00.000+01:00"},
    "short features": {"features": "AAAA", "brightness": 1.0},
    "features that are not finite": {"features": written([np.nan] * 256), "brightness": 1.0},
    "features without brightness": {"features": written([0.0] * 256)},
    "brightness": {"features": written([0.0] * 256), "brightness": 256},
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_record_is_counted_and_left_out(tmp_path, caplog, name) -> None:
    store, line = LocalStore(tmp_path / "kept"), DAMAGED[name]
    (kept,) = keep(store, DAY, IMAGE)
    key = f"{DAY}/records/020000-1.jsonl"
    content, _ = store.get_bytes(key)
    bad = line if isinstance(line, bytes) else json.dumps({**WHOLE, **line}).encode()
    store.put(key, content + bad + b"\n" + content)
    assert list(place.read(store)) == [kept, kept]
    (said,) = caplog.messages
    assert "1 damaged records are left out" in said
    assert f"{key} line 2: " in said
    assert len(said) < 500


def test_a_record_of_a_newer_version_of_perennial_is_read(tmp_path) -> None:
    store = LocalStore(tmp_path / "kept")
    store.put(f"{DAY}/records/020000-1.jsonl", json.dumps({**WHOLE, "camera": 3}).encode())
    assert list(place.read(store)) == [record()]


def test_forgetting_removes_damaged_records_of_the_image_and_keeps_the_others(store) -> None:
    first, second = keep(store, DAY, IMAGE, OTHER)
    key, mine = f"{DAY}/records/020000-2.jsonl", f'{{"sha256": "{first.sha256}", '.encode()
    store.put(key, store.get_bytes(key)[0] + mine + b"\n{damaged\n")
    assert place.remove_images(store, Wanted(digests={first.sha256: 0})).total() == 1
    content, _ = store.get_bytes(key)
    assert first.sha256.encode() not in content
    assert (content.splitlines()[1:], list(place.read(store))) == ([b"{damaged"], [second])


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path) -> None:
    (tmp_path / "kept").write_bytes(b"mine")
    with pytest.raises(ConfigError, match="kept cannot be made"):
        place.open_place(str(tmp_path / "kept"))


def test_servers_that_start_at_once_are_all_remembered(tmp_path) -> None:
    places = [str(tmp_path / name) for name in "abcdefgh"]
    with ThreadPoolExecutor(len(places)) as threads:
        list(threads.map(partial(place.note_place, tmp_path / "work"), places))
    assert sorted(place.noted_places(tmp_path / "work")) == places
