"""What the monitor sees of a champion and its bucket: real git, DVC, S3, and a real model."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import raw

import perennial
from perennial.base import files
from perennial.base.errors import PerennialError
from perennial.base.parallel import child
from perennial.data.sources.pin import pin
from perennial.live.monitor.look import look
from perennial.live.monitor.newest import PROGRAM
from perennial.live.monitor.rules import decide
from perennial.stages.download import download

NEW = [raw.encoded(raw.picture(50_000 + number)) for number in range(8)]


@pytest.fixture
def unscored(watched: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The project without predictions, and with outputs straight from the checkout; they take most of the time.

    `fetched` lists these outputs.
    """
    fetched: list[str] = []

    def copy(_: str, path: str, to: Path) -> None:
        fetched.append(path)
        (shutil.copytree if Path(path).is_dir() else shutil.copy)(path, to)

    monkeypatch.setattr("perennial.release.registry.revision.fetch_output", copy)
    monkeypatch.setattr("perennial.live.monitor.look.child.call", _refuse)
    return replace(watched, fetched=fetched)


def _refuse(*_: object) -> None:
    raise PerennialError("no model here")


def test_an_unchanged_source_is_listed_and_nothing_else(watched: Any) -> None:
    seen = look(watched.set())
    assert (seen.source.state, seen.new, seen.problems, seen.tried) == ("unchanged", None, [], None)
    assert seen.source.now is not None
    assert (seen.source.now.objects, watched.requests()) == (18, ([], 1))
    assert decide(watched.set().monitor, seen).retrain is False


@pytest.mark.slow
def test_the_champion_is_scored_on_new_images_alone(watched: Any) -> None:
    model = perennial.load(watched.folder / "models" / "export")
    labels = [prediction.label for prediction in model.predict(NEW)]
    for number, (image, label) in enumerate(zip(NEW, labels, strict=True)):
        folder = ("cat" if label != "cat" else "dog") if number < 2 else label
        watched.put(f"{folder}/new {number}.png", image)
    known = (watched.folder.parent / "photos" / "cat" / "00.png").read_bytes()
    watched.put("owl/moved.png", known)
    watched.put("owl/damaged.png", NEW[0][:100])
    before = watched.run("git", "status", "--porcelain", "--ignored")
    seen = look(watched.set())
    assert watched.run("git", "status", "--porcelain", "--ignored") == before
    assert (list(Path(".work").glob("monitor-*")), seen.problems) == ([], [])
    new, score, drift = seen.new, seen.new.score, seen.new.drift
    assert (seen.source.state, new.objects, new.examples, new.unreadable) == ("changed", 10, 8, 1)
    assert (score.accuracy, score.examples, score.unknown_classes) == (6 / 8, 8, [])
    assert score.low < score.accuracy < score.high
    names = {"cat", "dog", "owl"} | set(new.per_class)
    shares = {name: (new.per_class.get(name, 0) / 8, (name in {"cat", "dog", "owl"}) / 3) for name in names}
    assert drift.labels == pytest.approx(max(abs(now - before) for now, before in shares.values()))
    assert 0 <= drift.brightness <= 1
    _costs_nothing_twice(watched, seen)


@pytest.mark.slow
def test_with_several_labels_an_image_counts_if_the_model_gives_exactly_its_labels(tmp_path: Path) -> None:
    from support.inference import write_export  # noqa: PLC0415 - imports TensorFlow, which other tests do without

    export = write_export(tmp_path / "export", scale=3, thresholds=(0.3, 0.3, 0.3)).folder
    labels = [[*prediction.labels] for prediction in perennial.load(export).predict(NEW)]
    assert len(set(map(tuple, labels))) > 1
    labels[0], labels[1] = [*labels[0], "fox"], [] if labels[1] else ["cat"]
    ends = [0, *np.cumsum([len(image) for image in NEW]).tolist()]
    spans = [(start, end - start) for start, end in pairwise(ends)]
    (tmp_path / "images").write_bytes(b"".join(NEW))
    files.write_json(
        tmp_path / "examples.json", {"file": str(tmp_path / "images"), "labels": labels, "spans": spans}
    )
    job = {"export": str(export), "examples": str(tmp_path / "examples.json")}
    found = child.call(PROGRAM, job, tmp_path / "log")
    assert (found["correct"], found["refused"], found["unknown"]) == (6, 0, ["fox"])


def _costs_nothing_twice(watched: Any, seen: Any) -> None:
    """Nothing is fetched or predicted again, not even by the retraining."""
    fetched, _ = watched.requests()
    assert len(fetched) == 10
    again = look(watched.set())
    assert again.new == seen.new
    pin(watched.set())
    download(watched.set())
    assert watched.requests() == ([], 3)


def test_classes_that_the_champion_does_not_know_are_named(unscored, monkeypatch) -> None:
    counts = {"correct": 0, "refused": 0, "reason": None, "unknown": ["fox"]}
    monkeypatch.setattr("perennial.live.monitor.look.child.call", lambda *_: counts)
    unscored.put("fox/0.png", NEW[0])
    new = look(unscored.set()).new
    assert (new.per_class, new.score.unknown_classes, new.drift.label) == ({"fox": 1}, ["fox"], "fox")


def test_of_many_new_images_as_many_as_allowed_are_fetched(unscored: Any) -> None:
    for number, image in enumerate(NEW):
        unscored.put(f"cat/new {number}.png", image)
    new = look(unscored.set(**{"monitor.max_examples": 3})).new
    assert (new.objects, new.examples, len(unscored.requests()[0])) == (8, 3, 3)


def test_a_model_that_is_missing_is_a_problem_and_the_rest_is_seen(unscored: Any) -> None:
    unscored.put("cat/new.png", NEW[0])
    seen = look(unscored.set())
    assert seen.problems == ["v0.0.1 on new examples: no model here"]
    assert (seen.new.score, seen.new.drift.label) == (None, "cat")


def test_what_a_recorded_run_tried_is_known(unscored: Any) -> None:
    assert look(unscored.set()).tried is None
    unscored.put("cat/new.png", NEW[0])
    champion = unscored.run("git", "rev-parse", "HEAD").strip()
    files.write_json(unscored.folder / "pins/champion.json", {"commit": champion, "version": "v0.0.1"})
    pin(unscored.set())
    unscored.run("git", "checkout", "-qb", "run/night-1")
    unscored.run("git", "add", "-A")
    unscored.run("git", "commit", "-qm", "Rejected")
    unscored.run("git", "push", "-q", "origin", "run/night-1")
    unscored.run("git", "checkout", "-q", "main")
    seen = look(unscored.set())
    assert (seen.source.state, seen.tried) == ("changed", "night-1")


def test_without_a_champion_the_checkout_is_compared(unscored: Any) -> None:
    for repository in (unscored.folder, unscored.folder.parent / "remote"):
        tags = unscored.run("git", "-C", str(repository), "tag").split()
        unscored.run("git", "-C", str(repository), "tag", "-d", *tags)
    seen = look(unscored.set())
    assert (seen.champion, seen.source.state) == (None, "unchanged")
    unscored.put("cat/new.png", NEW[0])
    found = decide(unscored.set().monitor, look(unscored.set()))
    assert (found.retrain, found.key.split("/")[:3]) == (True, ["monitor", "classifier", "none"])


def test_the_age_is_that_of_the_promotion(unscored: Any) -> None:
    first = look(unscored.set())
    promoted = datetime.fromisoformat(first.champion.date)
    assert look(unscored.set(), now=promoted + timedelta(days=3)).champion.age_days == 3
    assert promoted <= datetime.now(UTC)


def test_a_bucket_that_cannot_be_read_is_said(unscored: Any) -> None:
    seen = look(unscored.set(**{"dataset.url": "s3://nowhere/photos"}))
    assert (seen.source.state, len(seen.problems)) == ("unreadable", 1)
    assert "nowhere" in seen.problems[0]


def test_without_the_git_remote_nothing_is_said(unscored: Any) -> None:
    shutil.rmtree(unscored.folder.parent / "remote")
    with pytest.raises(PerennialError, match="nothing was looked at"):
        look(unscored.set())


def test_what_was_trained_on_is_fetched_once(unscored: Any) -> None:
    for number in range(2):
        unscored.put(f"cat/new {number}.png", NEW[number])
        assert look(unscored.set()).new.objects == number + 1
    outputs = ["data/validation.json", "models/export"]
    assert unscored.fetched == ["data/raw", *outputs, *outputs]
