"""Versions that come while clients ask, and the end of a server."""

import errno
import os
import random
import shutil
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import httpx
import numpy as np
import pytest
from live.serving.served import MODEL, b64, expected, publish, serving
from support.checkout import wait_until
from support.exports import list_files
from support.raw import encoded, picture

import perennial
from perennial.base import files
from perennial.base.errors import ConfigError, DataError
from perennial.live.serving import served_version
from perennial.live.serving.requests import ServingLimits
from perennial.live.serving.served_version import Follower, place
from perennial.live.serving.server import ModelServer, listen, serve, url
from perennial.model.export_layout import CARD
from perennial.model.inference.image_inputs import PixelBudget
from perennial.release.publishing import publish_to_bucket as publishing
from perennial.release.publishing.publish import verified_digests
from perennial.release.publishing.version_layout import AllowedExport

pytestmark = pytest.mark.timing

IMAGES = [encoded(picture(seed, 12)) for seed in range(8)]
PREDICT = f"{MODEL}:predict"


@pytest.fixture
def published(world, tmp_path) -> Path:
    """A publish folder with one version."""
    publish(tmp_path / "published", world)
    return tmp_path / "published"


def follower(model) -> tuple[Follower, list[str | None]]:
    """What looks at a place when it is called to, and the versions that it loaded; None is a refusal."""
    loads: list[str | None] = []
    found = Follower(
        place(str(model)), PixelBudget(), 1000, lambda version: loads.append(version and version.number)
    )
    found.look()
    return found, loads


def ask(address: str, right: list[list[list[float]]], last: str, pause_s: float = 0) -> set[str]:
    """Ask until version `last` answers; gives the versions that answered, each as its model does."""
    seen: set[str] = set()
    with httpx.Client(base_url=address, timeout=60) as client:
        while last not in seen:
            chosen = random.choices(range(len(IMAGES)), k=2)
            answer = client.post(PREDICT, json={"instances": [b64(IMAGES[each]) for each in chosen]})
            assert answer.status_code == 200, answer.text
            seen.add(answer.json()["model_version"])
            good = right[(int(answer.headers["Model-Version"]) - 1) % 2]
            for index, row in zip(chosen, answer.json()["predictions"], strict=True):
                np.testing.assert_allclose(row["probabilities"], good[index], atol=1e-5)
            time.sleep(pause_s)
    return seen


def test_no_answer_is_lost_or_wrong_while_versions_change(world, other, published) -> None:
    right = [expected(perennial.load(each.folder), *IMAGES) for each in (world, other)]
    with serving(published) as (server, client), ThreadPoolExecutor(3) as pool:
        # The pauses let the server load: it shares this process.
        clients = [pool.submit(ask, str(client.base_url), right, "3", 0.01) for _ in range(3)]
        for model in (other, world):
            version = str(publish(published, model))
            while server.follower.current.number != version and not any(each.done() for each in clients):
                time.sleep(0.01)
        seen = [each.result(timeout=600) for each in clients]
    assert set.union(*seen) == {"1", "2", "3"}


HARM = (
    lambda version: shutil.rmtree(version / "variables"),
    lambda version: (version / "assets" / "labels.txt").write_text("0:a\n1:b\n2:c\n"),
    lambda version: (version / "saved_model.pb").unlink(),
)


def test_a_broken_version_is_refused_once_and_the_one_before_stays(published, other, caplog) -> None:
    watched, loads = follower(published)
    for harm in HARM:
        version = publish(published, other)
        harm(published / str(version))
        for _ in range(2):
            watched.look()
    assert watched.current.number == "1"
    assert loads == ["1", None, None, None]
    warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert [text.partition(": ")[0] for text in warned] == ["refused a new version, keeping version 1"] * 3
    assert "/2 differs from assets.extra/published.json: variables/" in warned[0]
    files.point(published / "current", str(publish(published, other)))
    watched.look()
    assert loads[-1] == str(version + 1)


def test_a_version_that_an_error_of_the_moment_hid_is_loaded_later(published, other, monkeypatch) -> None:
    watched, loads = follower(published)
    publish(published, other)
    with monkeypatch.context() as patch:
        patch.setattr(served_version, "load", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
        for _ in range(2):
            watched.look()
        assert watched.current.number == "1"
        assert loads == ["1", None]
    watched.look()
    assert loads == ["1", None, "2"]


def test_an_export_that_is_made_again_is_followed(world, other, tmp_path) -> None:
    shutil.copytree(world.folder, tmp_path / "export")
    watched, loads = follower(tmp_path / "export")
    shutil.rmtree(tmp_path / "export")
    watched.look()
    shutil.copytree(other.folder, tmp_path / "export")
    watched.look()
    assert len(loads) == 2
    assert len(set(loads)) == 2
    assert None not in loads


@pytest.mark.slow
def test_a_prefix_in_s3_is_followed(world, other, bucket, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = f"s3://{bucket.name}/models"
    loads = None
    for each in (world, other):
        copy = Path(shutil.copytree(each.folder, tmp_path / each.folder.parent.name))
        list_files(copy)
        publishing.add(
            model, AllowedExport(export=copy, digests=verified_digests(copy), decision={}, provenance=b"{}")
        )
        if loads is None:
            watched, loads = follower(model)
    watched.look()
    watched.look()
    assert loads == ["1", "2"]


def test_more_images_than_the_queue_holds_are_refused_until_it_has_room(world) -> None:
    with (
        serving(world.folder, queue=4, batch=1, instances=4) as (server, client),
        ThreadPoolExecutor(9) as pool,
    ):
        with server.budget.reserve(10**9):  # no image is decoded meanwhile
            body = {"instances": [b64(IMAGES[0])] * 3}
            first = pool.submit(client.post, PREDICT, json=body)
            while server.service.batcher.waiting != 1:  # two are with the two threads of the model
                time.sleep(0.005)
            second = pool.submit(client.post, PREDICT, json=body)
            while server.service.batcher.waiting != 4:
                time.sleep(0.005)
            refused = client.post(PREDICT, json=body)
            gauge = client.get("metrics").text
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "1"
        assert "4 images are already waiting" in refused.json()["error"]
        assert [each.result().status_code for each in (first, second)] == [200, 200]
    assert "perennial_queue_images 4.0" in gauge


def test_all_bodies_together_are_bounded(world) -> None:
    with serving(world.folder, held_bytes=1000) as (server, client), ThreadPoolExecutor(1) as pool:
        with server.budget.reserve(10**9):
            body = {"instances": [b64(IMAGES[0])]}
            first = pool.submit(client.post, PREDICT, json=body)
            while not server.service.metrics.batches._sum.get():
                time.sleep(0.005)
            refused = client.post(PREDICT, json=body)
        assert refused.status_code == 503
        assert first.result().status_code == 200
        assert client.post(PREDICT, json=body).status_code == 200


def test_metrics_count_requests_images_and_versions(world, published) -> None:
    with serving(published, wait_s=0.02) as (_, client):
        client.post(PREDICT, json={"instances": [b64(each) for each in IMAGES]})
        client.post(PREDICT, json={"instances": [b64(b"x")]})
        found = dict(
            line.rsplit(" ", 1) for line in client.get("metrics").text.splitlines() if not line.startswith("#")
        )
    assert found['perennial_requests_total{code="200",endpoint="predict"}'] == "1.0"
    assert found['perennial_requests_total{code="400",endpoint="predict"}'] == "1.0"
    assert found['perennial_request_seconds_count{endpoint="predict"}'] == "2.0"
    assert {"perennial_batch_images_sum": "9.0", "perennial_bad_images_total": "1.0"}.items() <= found.items()
    assert found['perennial_model_info{architecture="",version="1"}'] == "1.0"
    assert found['perennial_model_loads_total{result="loaded"}'] == "1.0"
    classes = [float(value) for name, value in found.items() if name.startswith("perennial_predictions_total")]
    assert sum(classes) == len(IMAGES)


def test_a_signal_lets_requests_be_answered_and_ends(world) -> None:
    server = ModelServer("pets", str(world.folder), ServingLimits(), 1, listen("127.0.0.1", 0))
    address, answers = url(server.listener), list[httpx.Response]()

    def ask() -> None:
        with httpx.Client(base_url=address, timeout=60) as client:
            while client_status(client) != 200:
                time.sleep(0.01)
            with ThreadPoolExecutor(1) as pool, server.budget.reserve(10**9):
                waiting = pool.submit(client.post, PREDICT, json={"instances": [b64(IMAGES[0])]})
                while not server.service.metrics.batches._sum.get():
                    time.sleep(0.005)
                os.kill(os.getpid(), signal.SIGTERM)
                while client_status(client) == 200:  # until no connection is accepted any more
                    time.sleep(0.005)
            answers.append(waiting.result())

    asking = threading.Thread(target=ask)
    asking.start()
    serve(server)
    asking.join()
    assert [answer.status_code for answer in answers] == [200]


def client_status(client: httpx.Client) -> int:
    try:
        return client.get("ready").status_code
    except httpx.TransportError:
        return 0


def test_a_model_that_does_not_load_ends_the_server(tmp_path) -> None:
    server = ModelServer("pets", str(tmp_path), ServingLimits(), 1, listen("127.0.0.1", 0))
    with pytest.raises(DataError, match=r"holds no saved_model.pb|holds neither saved_model.pb"):
        server.run()


def test_a_port_that_is_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        with pytest.raises(
            ConfigError, match=f"cannot listen on 127.0.0.1 port {port}: Address already in use"
        ):
            listen("127.0.0.1", port)


def test_a_model_that_the_gate_rejects_after_it_was_exported_says_so(world, tmp_path, caplog):
    export, decision = Path(shutil.copytree(world.folder, tmp_path / "export")), tmp_path / "decision.json"
    files.write_json(export / CARD, {"weights_sha256": "ab"})
    with serving(export, decision=decision) as (server, client):
        assert "gate rejected" not in client.get(MODEL).text + client.get("/").text
        reasons = ["test accuracy 0.5 is <too low>"]
        files.write_json(
            decision, {"promote": False, "reasons": reasons, "candidate": {"model": "ab", "data": "d"}}
        )
        wait_until(lambda: server.follower.rejected, 60)
        (version,) = client.get(MODEL).json()["model_version_status"]
        assert version["status"]["error_message"] == f"the gate rejected this model: {reasons[0]}"
        assert "rejected this model:</strong> test accuracy 0.5 is &lt;too low&gt;" in client.get("/").text
        files.write_json(decision, {"promote": True, "reasons": [], "candidate": {"model": "ab", "data": "d"}})
        wait_until(lambda: not server.follower.rejected, 60)
    assert sum("the gate rejected version" in message for message in caplog.messages) == 1
