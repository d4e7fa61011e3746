"""A candidate that answers a share of the requests, chosen by the image, and whose failures nobody sees."""

import json
import shutil
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from operations.serving.served import MODEL, b64, expected, publish, serving
from support.checkout import wait_until
from support.inference import write_export
from support.raw import encoded, picture

from perennial.operations.serving.canary import Candidate
from perennial.operations.serving.requests import ServingLimits, parse
from perennial.operations.serving.server import Traffic

PREDICT, CLASSIFY = f"{MODEL}:predict", f"{MODEL}:classify"
IMAGES = [encoded(picture(seed, 12)) for seed in range(12)]
SERVED, CANDIDATE = "1", "2"  # versions


@pytest.fixture(scope="module")
def places(world, turned, tmp_path_factory) -> tuple[Path, Path]:
    """The served version, and a candidate with its classes in another order."""
    served, candidate = (tmp_path_factory.mktemp(name) / "published" for name in ("served", "candidate"))
    publish(served, world)
    publish(candidate, world)
    publish(candidate, replace(world, folder=turned))
    return served, candidate


@contextmanager
def canary(served: Path, candidate: Path, share: float = 0.5):
    traffic = Traffic(canary=Candidate(model=str(candidate), share=share))
    with serving(served, traffic=traffic) as (server, client):
        wait_until(lambda: 'perennial_model_loads_total{result="loaded"} 2.0' in client.get("metrics").text)
        yield server, client


def versions(client, images=IMAGES) -> list[str]:
    """The version that answers each image."""
    answers = [client.post(PREDICT, json={"instances": [b64(image)]}) for image in images]
    assert [each.status_code for each in answers] == [200] * len(images)
    return [each.headers["Model-Version"] for each in answers]


def counted(client, result: str) -> float:
    start = f'perennial_canary_images_total{{result="{result}"}} '
    lines = client.get("metrics").text.splitlines()
    return sum(float(line.removeprefix(start)) for line in lines if line.startswith(start))


def key(image: bytes) -> float:
    body = json.dumps({"instances": [b64(image)]}).encode()
    return parse(ServingLimits(), (body, "predict")).key


def test_equal_images_always_get_the_same_version(places) -> None:
    with canary(*places) as (_, client):
        found = versions(client)
        assert found == versions(client)
        assert found == [CANDIDATE if key(image) < 0.5 else SERVED for image in IMAGES]
        assert set(found) == {SERVED, CANDIDATE}
        assert counted(client, "answered") == 2 * found.count(CANDIDATE)


def test_the_candidate_answers_with_its_own_classes_and_is_one_of_the_versions(places) -> None:
    with canary(*places, share=1) as (_, client):
        body = {"examples": [{"image": b64(IMAGES[0])}]}
        own = client.post(CLASSIFY, json=body).json()
        served, same = (
            client.post(f"{MODEL}/versions/{each}:classify", json=body).json() for each in (SERVED, CANDIDATE)
        )
        assert own == same
        assert own["model_version"] == CANDIDATE
        names, others = ([name for name, _ in each["results"][0]] for each in (own, served))
        assert names != others
        status = client.get(MODEL).json()["model_version_status"]
        assert [each["version"] for each in status] == [SERVED, CANDIDATE]
        assert (
            f'perennial_canary_info{{architecture="",version="{CANDIDATE}"}} 1.0' in client.get("metrics").text
        )


def test_the_share_of_many_images_is_the_share_that_was_asked_for() -> None:
    chosen = sum(key(number.to_bytes(4)) < 0.05 for number in range(4000))
    assert 150 < chosen < 250  # 3.6 standard deviations


def test_what_the_candidate_refuses_is_answered_by_the_served_version_until_it_is_stopped(
    places, world, tmp_path, caplog
) -> None:
    small = write_export(tmp_path / "small" / "export", side=8)  # it takes no other images
    publish(tmp_path / "candidates", small)
    with canary(places[0], tmp_path / "candidates", share=1) as (_, client):
        assert versions(client) == [SERVED] * len(IMAGES)
        assert (counted(client, "failed"), counted(client, "stopped")) == (5, len(IMAGES) - 5)
        assert "stop the canary 1" in caplog.text
        publish(tmp_path / "candidates", world)
        wait_until(lambda: versions(client, IMAGES[:1]) == ["2"])


def test_a_candidate_that_does_not_load_changes_no_answer(places, world, classifier, tmp_path) -> None:
    broken = shutil.copytree(world.folder, tmp_path / "broken")
    (broken / "saved_model.pb").write_bytes(b"no model")
    traffic = Traffic(canary=Candidate(model=str(broken), share=1))
    with serving(places[0], traffic=traffic) as (_, client):
        wait_until(lambda: 'perennial_model_loads_total{result="refused"} 1.0' in client.get("metrics").text)
        (answer,) = client.post(PREDICT, json={"instances": [b64(IMAGES[0])]}).json()["predictions"]
        assert answer["probabilities"] == pytest.approx(expected(classifier, IMAGES[0])[0], abs=1e-5)


def test_an_image_that_nobody_can_read_is_not_held_against_the_candidate(places) -> None:
    with canary(*places, share=1) as (_, client):
        assert client.post(PREDICT, json={"instances": [b64(b"no image")]}).status_code == 400
        assert counted(client, "failed") == 0
