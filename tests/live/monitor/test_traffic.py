"""Traffic that was kept, compared with the reference of the champion's export."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from live.monitor import test_windows
from support.kept import record
from support.raw import encoded, picture

import perennial
from perennial.base import documents, files
from perennial.base.config import Config
from perennial.base.errors import PerennialError
from perennial.base.storage.local import LocalStore
from perennial.live.capture import place
from perennial.live.capture.place import KeptImage
from perennial.live.monitor import traffic, windows
from perennial.live.monitor.traffic import TrafficSeen
from perennial.model.export import reference
from perennial.model.export_layout import REFERENCE
from perennial.release.registry import revision
from perennial.release.registry.versions import Version

VERSION = Version(name="v0.0.1", commit="c0ffee", date=0, facts={})
SIZE = 50


@dataclass
class Kept:
    """A place of a champion with a reference, and what the monitor sees of it."""

    config: Config
    store: LocalStore
    export: Path
    mark: str
    flushed: int = 0

    def keep(self, count: int, shift: float = 0.0, **changes: object) -> list[KeptImage]:
        """Statistics of so many images, written as one object, after all others."""
        self.flushed += 1
        moment = datetime.now(UTC).replace(hour=1, minute=0, second=0, microsecond=0)
        records = [
            record(
                **{
                    "time": (moment + timedelta(seconds=60 * self.flushed)).isoformat(timespec="milliseconds"),
                    "sha256": f"{self.flushed:032}{number:032}",
                    "top": ((test_windows.CLASSES[number % 3], 0.9),), "reference": self.mark,
                    "features": reference.packed(each), "brightness": number * 7 % 256.0, **changes,
                }
            )
            for number, each in enumerate(test_windows.features(count, shift).astype(np.float32))
        ]  # fmt: skip
        place.put_records(self.store, records[0].day, f"{self.flushed:06}-ab-n{count}", records)
        return records

    def seen(self) -> TrafficSeen:
        found = traffic.look(self.config, VERSION)
        assert found is not None
        return found


@pytest.fixture
def kept(load: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    place_, export = tmp_path / "kept", tmp_path / "models" / "export"
    files.write_json(export / REFERENCE, test_windows.reference(300).model_dump(mode="json"))
    monkeypatch.setattr(reference, "PERMUTATIONS", 999)  # of a test; windows of many are tested in test_windows
    monkeypatch.setattr(reference, "LEAST_PERMUTATIONS", 199)

    def fetch(_: str, path: str, to: Path) -> None:
        source = tmp_path / path
        if not source.exists():
            raise PerennialError(f"{path} is not there")
        (shutil.copytree if source.is_dir() else shutil.copy)(source, to)

    monkeypatch.setattr(revision, "fetch_output", fetch)
    config = load(**{"monitor.traffic": str(place_), "monitor.traffic_window": SIZE})
    mark = reference.mark(export)
    assert mark is not None
    return Kept(config, LocalStore(place_), export, mark)


def test_without_a_place_nothing_is_looked_at(load: Callable[..., Config]) -> None:
    assert traffic.look(load(), VERSION) is None


def test_an_empty_place_has_no_window(kept: Kept) -> None:
    seen = kept.seen()
    assert (seen.windows, seen.waiting, seen.alarm, seen.words[0]) == ([], 0, None, "no window yet")


def test_traffic_like_the_validation_images_is_no_alarm(kept: Kept) -> None:
    kept.keep(3 * SIZE + 10)
    seen = kept.seen()
    assert [each.drifted for each in seen.windows] == [False] * 3
    assert (seen.waiting, seen.alarm, seen.key) == (10, None, None)


def test_traffic_that_moved_is_one_alarm_as_long_as_it_lasts_which_says_what_to_do(kept: Kept) -> None:
    kept.keep(SIZE)
    kept.keep(2 * SIZE, shift=1.0)
    seen = kept.seen()
    assert [each.drifted for each in seen.windows] == [False, True, True]
    assert seen.alarm == seen.windows[-1].end
    assert f"perennial label {kept.store.url}" in seen.words[-1]
    kept.keep(SIZE, shift=1.0)
    later = kept.seen()
    assert seen.key is not None
    assert (len(later.windows), later.key) == (4, seen.key)


def test_a_second_look_reads_only_what_is_new(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.keep(2 * SIZE)
    kept.keep(SIZE)
    first, read = kept.seen(), Mock()
    monkeypatch.setattr(place, "records", read)
    assert kept.seen() == first
    read.assert_not_called()


def test_windows_that_another_version_noted_in_another_form_are_computed_again(kept: Kept) -> None:
    kept.keep(SIZE)
    seen = kept.seen()
    (file,) = kept.config.paths.work.rglob("monitor/traffic/*.json")
    files.write_json(file, documents.read_json(file) | {"windows": [{"start": "2026-11-27"}]})
    assert kept.seen() == seen


def test_of_much_new_traffic_the_newest_windows_are_compared(kept: Kept) -> None:
    for _ in range(10):
        kept.keep(SIZE)
    seen = kept.seen()
    assert len(seen.windows) == traffic.AT_ONCE
    assert seen.windows[-1].end.endswith("01:10:00.000+00:00")


def written(kept: Kept, name: str, time: datetime, count: int, folder: str = "") -> None:
    """Records of images that were answered a second apart from a time on, as a server writes them."""
    features = test_windows.features(count).astype(np.float32)
    records = [
        record(
            f"{name} {number}".encode(), reference=kept.mark, features=reference.packed(each), brightness=1.0,
            time=(time + timedelta(seconds=number)).isoformat(timespec="milliseconds"),
        )
        for number, each in enumerate(features)
    ]  # fmt: skip
    place.put_records(kept.store, folder or records[0].day, f"{name}-ab-n{count}", records)


MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
YESTERDAY = (MIDNIGHT - timedelta(days=1)).date().isoformat()


def test_records_that_are_written_after_midnight_reach_a_window(kept: Kept) -> None:
    written(kept, "235500", MIDNIGHT - timedelta(minutes=5), SIZE)
    assert len(kept.seen().windows) == 1
    written(kept, "000007", MIDNIGHT - timedelta(seconds=40), 30, YESTERDAY)  # its name is an earlier one
    written(kept, "000010", MIDNIGHT + timedelta(seconds=1), 20)
    seen = kept.seen()
    assert (len(seen.windows), seen.waiting) == (2, 0)
    assert seen.windows[-1].start == (MIDNIGHT - timedelta(seconds=40)).isoformat(timespec="milliseconds")


def test_windows_follow_the_order_of_the_answers_of_all_servers(kept: Kept) -> None:
    start = MIDNIGHT - timedelta(hours=2)
    written(kept, "230100", start, 30)
    # A server whose clock is behind names it earlier.
    written(kept, "225900", start + timedelta(seconds=30), 30)
    seen = kept.seen()
    assert seen.windows[0].end == (start + timedelta(seconds=SIZE - 1)).isoformat(timespec="milliseconds")
    assert seen.waiting == 10


def test_what_a_server_writes_late_reaches_a_later_window_once(kept: Kept) -> None:
    start = MIDNIGHT - timedelta(hours=2)
    written(kept, "230000", start, SIZE + 20)
    assert kept.seen().waiting == 20
    written(kept, "210000", start - timedelta(hours=1), 29)  # the place was away for this server
    assert kept.seen().waiting == 49
    written(kept, "230500", start + timedelta(minutes=5), 1)
    seen = kept.seen()
    assert (len(seen.windows), seen.waiting, kept.seen()) == (2, 0, seen)


@pytest.mark.parametrize("wrong", [MIDNIGHT + timedelta(days=1, minutes=1), datetime(2001, 1, 1, tzinfo=UTC)])
def test_a_server_whose_clock_is_wrong_does_not_hide_the_others(kept: Kept, wrong: datetime) -> None:
    written(kept, "000100", wrong, SIZE)
    assert len(kept.seen().windows) == 1
    written(kept, "120000", MIDNIGHT - timedelta(hours=12), SIZE)
    assert len(kept.seen().windows) == 2


@pytest.mark.parametrize("seed", range(2))
def test_every_record_is_used_once_however_servers_and_looks_take_turns(kept: Kept, seed: int) -> None:
    random, total = np.random.default_rng(seed), 0
    for number in range(8):
        time = MIDNIGHT - timedelta(seconds=int(random.integers(0, 20 * 3600)))
        count = int(random.integers(1, 40))
        written(kept, f"{random.integers(240000):06}-{number}", time, count)
        total += count
        if random.random() < 0.5:
            kept.seen()
    seen = kept.seen()
    assert len(seen.windows) * SIZE + seen.waiting == total


def test_disagreements_and_answers_of_other_exports_are_left_out(kept: Kept) -> None:
    kept.keep(SIZE, reason="disagreement")
    kept.keep(SIZE, reference="other")
    assert (kept.seen().windows, kept.seen().waiting) == ([], 0)


def test_an_image_that_comes_again_counts_once(kept: Kept) -> None:
    kept.keep(SIZE, sha256="0" * 64)
    assert kept.seen().waiting == 1


def test_a_larger_share_counts_no_more_than_the_smallest(kept: Kept) -> None:
    kept.keep(400, probability=1.0)
    kept.keep(10, probability=0.05)
    seen = kept.seen()
    assert 10 <= len(seen.windows) * SIZE + seen.waiting < 60


def test_a_place_that_cannot_be_read_is_a_problem(kept: Kept) -> None:
    Path(kept.store.url).write_bytes(b"mine")
    assert "kept cannot be made" in str(kept.seen().problem)


def test_damaged_records_are_counted_and_the_others_are_compared(kept: Kept) -> None:
    kept.keep(SIZE, features="AAAA")
    kept.keep(SIZE)
    seen = kept.seen()
    assert (len(seen.windows), seen.problem) == (1, None)
    (said,) = (each for each in seen.words if "damaged records" in each)
    assert said.startswith(f"{SIZE} damaged records are left out; the first: {kept.store.url}/")


def test_an_export_of_an_earlier_version_is_said_and_asked_for_once(kept: Kept) -> None:
    (kept.export / REFERENCE).unlink()
    (kept.export / "saved_model.pb").write_bytes(b"old")
    for _ in range(2):
        assert kept.seen().missing == (
            "the export of v0.0.1 has no reference for drift: an earlier version of perennial made it; "
            "a new run exports one"
        )
        (kept.export / "saved_model.pb").unlink(missing_ok=True)


def test_an_export_that_cannot_be_fetched_is_a_problem(kept: Kept) -> None:
    shutil.rmtree(kept.export)
    assert "export is not there" in str(kept.seen().problem)


def test_without_a_champion_there_is_nothing_to_compare_with(kept: Kept) -> None:
    found = traffic.look(kept.config, None)
    assert found is not None
    assert found.missing == "no champion yet"


@pytest.mark.slow
def test_kept_images_are_measured_with_the_champions_export(kept: Kept, forked: None) -> None:
    """Numbers and images of the same traffic give the same window."""
    from support.inference import write_export  # noqa: PLC0415 - imports TensorFlow, which other tests do without

    before, images = reference.load(kept.export), [encoded(picture(number, 20)) for number in range(SIZE)]
    shutil.rmtree(kept.export)
    write_export(kept.export, bandwidth=2.0)
    files.write_json(kept.export / REFERENCE, before.model_dump(mode="json"))
    kept.mark = str(reference.mark(kept.export))
    numbers = perennial.load(kept.export).statistics(images).features
    day = place.today()
    records = [
        record(
            sha256=place.put_image(kept.store, day, image),
            time=f"{day}T02:00:00.000+00:00",
            reference=kept.mark,
        )
        for image in images
    ]
    place.put_records(kept.store, day, "000001-ab", records)
    (of_images,) = kept.seen().windows
    known = reference.unpacked(reference.load(kept.export).features)
    expected = reference.distance(numbers, known, windows.LEVEL)
    assert of_images.distance == pytest.approx(expected.squared, rel=1e-3)
    statistics = [
        replace(each, features=reference.packed(values), brightness=127.0)
        for each, values in zip(records, numbers, strict=True)
    ]
    place.put_records(kept.store, day, "000002-ab-n50", statistics)
    _, of_numbers = kept.seen().windows
    assert of_numbers.distance == pytest.approx(of_images.distance, rel=0.01)
