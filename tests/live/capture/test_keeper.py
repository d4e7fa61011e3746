"""What a server keeps of its traffic, and that its answers never wait for that."""

import base64
import io
import logging
import threading
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import PIL.Image
import pytest
from live.serving.served import MODEL, b64, serving
from model.export import test_reference
from support.checkout import wait_until
from support.inference import write_export
from support.odd_images import saved
from support.raw import encoded, picture

import perennial
from perennial.base import files
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.storage import open_store
from perennial.base.storage.local import LocalStore
from perennial.live.capture import keeper, place
from perennial.live.capture.keeper import CaptureLimits
from perennial.live.capture.same_image import Wanted
from perennial.model.export import reference
from perennial.model.export.reference import FEATURES
from perennial.model.export_layout import REFERENCE

pytestmark = pytest.mark.timing

ALL = CaptureLimits(share=1, per_day=1000, bytes=1 << 30, days=30)
PREDICT = f"{MODEL}:predict"
IMAGES = [encoded(picture(seed, 12)) for seed in range(4)]


def ask(client, *images: bytes):
    return client.post(PREDICT, json={"instances": [*map(b64, images)]})


def counted(client, result: str) -> int:
    """The number of images with this result in the server's metrics."""
    start = f'perennial_kept_images_total{{result="{result}"}} '
    lines = [line for line in client.get("metrics").text.splitlines() if line.startswith(start)]
    return int(float(lines[0].removeprefix(start))) if lines else 0


def photograph() -> bytes:
    """A photo with the place where it was taken, upright, and a video after its end."""
    image, exif = PIL.Image.fromarray(picture(9, 64)), PIL.Image.Exif()
    exif[0x010F] = "planted camera"
    exif.get_ifd(0x8825)[1] = "N"
    return saved(image, "JPEG", exif=exif, comment=b"planted comment") + b"planted video"


@contextmanager
def keeping(world, store, **limits):
    with serving(world.folder, keep=(store, replace(ALL, **limits))) as (_, client):
        yield client


@pytest.fixture
def store(tmp_path):
    return LocalStore(tmp_path / "kept")


def test_images_are_kept_with_what_the_model_said(world, store) -> None:
    with keeping(world, store) as client:
        answer = ask(client, *IMAGES).json()
        wait_until(lambda: counted(client, "kept") == len(IMAGES))
    kept = list(place.read(store))
    assert [each.version for each in kept] == [answer["model_version"]] * len(IMAGES)
    for each, row, image in zip(kept, answer["predictions"], IMAGES, strict=True):
        assert each.top[0][1] == pytest.approx(max(row["probabilities"]), abs=1e-5)
        assert store.get_bytes(place.images(store)[each.sha256])[0] == image


def test_a_kept_photo_has_its_pixels_and_nothing_of_its_metadata(world, store) -> None:
    taken = photograph()
    with keeping(world, store) as client:
        ask(client, taken)
        wait_until(lambda: counted(client, "kept") == 1)
    (kept,) = place.read(store)
    content, _ = store.get_bytes(place.images(store)[kept.sha256])
    wanted = Wanted()
    wanted.add(0, taken)
    assert kept.sha256 in wanted.digests
    assert b"planted" not in content
    assert b"Exif" not in content
    assert PIL.Image.open(io.BytesIO(content)).tobytes() == PIL.Image.open(io.BytesIO(taken)).tobytes()


def test_a_share_of_the_images_is_kept_and_the_record_says_which(world, store) -> None:
    with keeping(world, store, share=0.2) as client:
        for _ in range(50):
            ask(client, *IMAGES)
        wait_until(lambda: counted(client, "kept") + counted(client, "busy") > 10)
    kept = list(place.read(store))
    assert 10 < len(kept) < 80  # of 200; the chance of fewer or more is below 1e-8
    assert {each.probability for each in kept} == {0.2}


@pytest.mark.parametrize(("limits", "result"), [({"per_day": 2}, "limit"), ({"bytes": 100}, "full")])
def test_a_limit_ends_keeping_and_not_answering(world, store, limits, result) -> None:
    with keeping(world, store, **limits) as client:
        for image in IMAGES:
            assert ask(client, image).status_code == 200
        wait_until(lambda: counted(client, result) > 0)
    assert 0 < len(list(place.read(store))) <= 2


@pytest.fixture(scope="session")
def measured(tmp_path_factory):
    """The folder of an export with a reference, which is of other images."""
    folder = tmp_path_factory.mktemp("measured") / "export"
    write_export(folder, bandwidth=2.0)
    found = test_reference.of(np.zeros((100, FEATURES)))
    files.write_json(folder / REFERENCE, found.model_dump(mode="json"))
    return folder


def test_statistics_are_those_that_the_export_computes_and_no_pixel_is_kept(measured, store) -> None:
    with serving(measured, keep=(store, replace(ALL, what="statistics"))) as (_, client):
        ask(client, *IMAGES)
        wait_until(lambda: counted(client, "kept") == len(IMAGES))
    kept = list(place.read(store))
    expected = perennial.load(measured).statistics(IMAGES)
    assert place.images(store) == {}
    for each, features, brightness in zip(kept, *expected, strict=True):
        np.testing.assert_allclose(each.values(), features, atol=1e-4)
        assert each.brightness == pytest.approx(brightness, abs=1e-3)
    assert {each.reference for each in kept} == {reference.mark(measured)}
    assert place.usage(store, kept[0].day)[1] == len(IMAGES)


def test_statistics_of_an_export_without_a_reference_are_not_kept(world, store, caplog) -> None:
    with caplog.at_level(logging.WARNING, keeper.__name__), keeping(world, store, what="statistics") as client:
        ask(client, *IMAGES)
        wait_until(lambda: counted(client, "unusable") == len(IMAGES))
    (said,) = [line for line in caplog.messages if "no statistics are kept" in line]
    assert said.endswith("its export has no reference for drift")


def test_a_restarted_server_counts_what_its_place_holds(world, store) -> None:
    for _ in range(2):
        with keeping(world, store, per_day=2) as client:
            ask(client, *IMAGES)
            wait_until(lambda client=client: sum(counted(client, each) for each in ("kept", "limit")) == 4)
    assert len(list(place.read(store))) == 2


class Broken(LocalStore):
    """A folder whose writes raise `failing`, unless it is None."""

    failing: Exception | None = PerennialError("the network is gone")

    def put(self, *given, **options):
        if self.failing:
            raise self.failing
        return super().put(*given, **options)


def test_a_place_that_fails_loses_images_and_no_answer(world, tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(keeper, "PAUSE_S", 0.05)
    store = Broken(tmp_path / "kept")
    monkeypatch.setattr(keeper, "FLUSH_S", 0.05)
    with caplog.at_level(logging.INFO, keeper.__name__), keeping(world, store) as client:
        assert ask(client, IMAGES[0]).status_code == 200
        wait_until(lambda: counted(client, "away") == 1)
        threading.Event().wait(0.3)  # some times to write records, of which there are none
        assert not [line for line in caplog.messages if "again" in line]
        store.failing = None
        wait_until(lambda: ask(client, *IMAGES).status_code == 200 and counted(client, "kept") > 0)
    assert list(place.read(store)) != []
    assert [line for line in caplog.messages if "images are not kept while" in line] == [
        f"images are not kept while {store.url} fails: the network is gone"
    ]
    assert caplog.messages[-1] == f"images are kept in {store.url} again"


def test_a_slow_place_fills_a_bounded_queue_and_no_answer_waits(world, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(keeper, "QUEUED", 3)
    go = threading.Event()

    class Slow(LocalStore):
        def put(self, *given, **options):
            go.wait()
            return super().put(*given, **options)

    with keeping(world, Slow(tmp_path / "kept")) as client:
        for _ in range(5):
            assert ask(client, *IMAGES).status_code == 200
        wait_until(lambda: counted(client, "busy") >= 20 - 4)
        go.set()
        wait_until(lambda: counted(client, "kept") >= 3)


def test_a_refused_request_keeps_nothing(world, store) -> None:
    with keeping(world, store) as client:
        body = {"instances": [{"b64": base64.b64encode(b"no image").decode()}]}
        assert client.post(PREDICT, json=body).status_code == 400
    assert list(place.read(store)) == []


def test_a_bucket_that_does_not_exist_is_an_error_at_the_start(bucket) -> None:
    failed: list[Exception] = []
    started = keeper.Keeper(open_store("s3://no-such-bucket/kept"), ALL, "pets", lambda _: None)
    started.start(failed.append)
    started.close()
    assert [type(error) for error in failed] == [ConfigError]
    assert "no-such-bucket" in str(failed[0])
