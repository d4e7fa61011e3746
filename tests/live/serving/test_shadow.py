"""A candidate beside the served version: compared, bounded, stopped, and never in the way of an answer."""

import shutil
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from live.serving.served import MODEL, b64, expected, publish, serving
from support.checkout import wait_until
from support.raw import encoded, picture

from perennial.base.errors import Interrupted
from perennial.live.capture.keeper import Answered, CaptureLimits
from perennial.live.serving import served_version, shadow
from perennial.live.serving.shadow import Candidate, Comparison
from perennial.model.inference.image_inputs import from_values

pytestmark = pytest.mark.timing

PREDICT = f"{MODEL}:predict"
IMAGES = [encoded(picture(seed, 12)) for seed in range(4)]
ALL = CaptureLimits(share=0, per_day=1000, bytes=1 << 30, days=30)


@contextmanager
def shadowing(world, candidate):
    """A server with a candidate, whose process has loaded it or failed to."""
    mine = Candidate(model=str(candidate), share=1, max_ms=None)
    with serving(world.folder, shadow=mine) as (server, client):
        yield server, client


def ask(client, *images: bytes) -> None:
    assert client.post(PREDICT, json={"instances": [*map(b64, images)]}).status_code == 200


@pytest.mark.slow
def test_an_equal_candidate_agrees_and_one_that_disagrees_is_shown_by_class(world, turned) -> None:
    for candidate, agreed in ((world.folder, 4), (turned, 0)):
        with shadowing(world, candidate) as (_, client):
            ask(client, *IMAGES)
            wait_until(lambda client=client: client.get("shadow").json()["images"] == 4)
            found = client.get("shadow").json()
            assert found["agreed"] == agreed
            assert sum(each["images"] for each in found["disagreements"]) == 4 - agreed
            assert found["confidence"]["candidate"] == pytest.approx(found["confidence"]["served"], abs=1e-5)


@pytest.mark.slow
def test_a_new_version_of_the_candidate_begins_a_new_comparison(world, turned, tmp_path) -> None:
    published = tmp_path / "candidates"
    publish(published, world)
    with shadowing(world, published) as (_, client):
        ask(client, *IMAGES)
        wait_until(lambda: client.get("shadow").json()["images"] == 4)
        publish(published, replace(world, folder=turned))

        def second() -> bool:
            ask(client, IMAGES[0])
            return client.get("shadow").json()["candidate"] == "2"

        wait_until(second)
        found = client.get("shadow").json()
        assert (found["agreed"], found["images"] > 0) == (0, True)  # it agreed on all images before


def test_a_candidate_gives_the_answers_of_predict(world, classifier) -> None:
    found = shadow.classify({"model": str(world.folder), "versions": served_version}, list(from_values(IMAGES)))
    assert found.classes == classifier.classes
    assert [each.tolist() for each in found.outputs] == [
        pytest.approx(each, abs=1e-5) for each in expected(classifier, *IMAGES)
    ]


def test_a_candidate_that_cannot_be_loaded_is_a_reason(tmp_path) -> None:
    found = shadow.classify({"model": str(tmp_path), "versions": served_version}, list(from_values(IMAGES)))
    assert "saved_model.pb" in found


def test_a_loaded_candidate_stays_while_its_place_is_away(world, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(shadow, "LOOK_S", 0)
    moved = shutil.copytree(world.folder, tmp_path / "candidate")
    state = {"model": str(moved), "versions": served_version}
    before = shadow.classify(state, list(from_values(IMAGES)))
    shutil.rmtree(moved)
    assert shadow.classify(state, list(from_values(IMAGES))).version == before.version


def test_a_crash_of_the_candidates_process_is_one_failure(classifier) -> None:
    counted = list[str]()
    mine = shadow.Shadow(Candidate(model="candidate", share=1, max_ms=None), counted.append)
    mine._worker = Mock(side_effect=BrokenProcessPool)
    batch = [
        Answered(0.0, "1", classifier, image, np.ones(2, np.float32), "disagreement", 1.0)
        for image in from_values(IMAGES * 2)
    ]
    mine._use([])  # while it loads
    mine._use(batch)
    assert (mine.comparison.errors, mine.comparison.stopped, counted) == (1, "", ["error"] * 8)
    for _ in range(shadow.ERRORS - 1):
        mine._use(batch)
    assert mine.comparison.stopped == "5 failures beside 0 answers"


def test_a_signal_to_the_process_group_is_no_failure_of_the_candidate() -> None:
    mine = shadow.Shadow(Candidate(model="candidate", share=1, max_ms=None), pytest.fail)
    mine._worker = Mock(side_effect=Interrupted)
    mine._use([])
    assert (mine.failure, mine.comparison.errors) == ("", 0)


def test_without_a_candidate_the_answer_says_how_to_name_one(client) -> None:
    answer = client.get("shadow")
    assert answer.status_code == 404
    assert "--shadow PLACE" in answer.json()["error"]


def compared(*pairs: tuple[str, str, int], errors: int = 0, seconds: float = 0.01) -> Comparison:
    found = Comparison(served="1", candidate="2", errors=errors)
    for served, other, count in pairs:
        for _ in range(count):
            found.add(served, other, (0.9, 0.9), seconds)
    return found


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (compared(("cat", "cat", 100), ("dog", "cat", 100)), "200 of 200 images are cat; of the served "),
        (compared(("cat", "cat", 199)), ""),  # too few
        (compared(("cat", "cat", 300)), ""),  # the traffic has one class
        (compared(("cat", "cat", 150), ("dog", "dog", 50)), ""),
        (compared(("cat", "cat", 10), errors=5), "5 failures beside 10 answers"),
        (compared(("cat", "cat", 150), ("dog", "dog", 1000), errors=5), ""),
        (compared(("cat", "cat", 100), ("dog", "dog", 100), seconds=0.2), "an image takes 200.0 ms, the limit"),
    ],
)
def test_a_candidate_is_stopped_for_a_reason_that_needs_no_labels(found, reason) -> None:
    stopped = found.reason_to_stop(100)
    assert stopped.startswith(reason)
    assert bool(stopped) == bool(reason)
