"""What the monitor sees of a champion and its bucket: real git, DVC, S3, and a real model."""

import shutil
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support import raw

from perennial.base import files
from perennial.base.errors import PerennialError
from perennial.data.sources.pin import pin
from perennial.live.monitor.rules import decide, look

NEW = raw.encoded(raw.picture(50_000))


def test_an_unchanged_source_is_listed_and_nothing_else(watched: Any) -> None:
    seen = look(watched.set())
    assert (seen.source.state, seen.problems, seen.tried) == ("unchanged", [], None)
    assert seen.source.now is not None
    assert (seen.source.now.objects, watched.requests()) == (18, ([], 1))
    assert decide(watched.set().monitor, seen).retrain is False


def test_what_a_recorded_run_tried_is_known(watched: Any) -> None:
    assert look(watched.set()).tried is None
    watched.put("cat/new.png", NEW)
    champion = watched.run("git", "rev-parse", "HEAD").strip()
    files.write_json(watched.folder / "pins/champion.json", {"commit": champion, "version": "v0.0.1"})
    pin(watched.set())
    watched.run("git", "checkout", "-qb", "run/night-1")
    watched.run("git", "add", "-A")
    watched.run("git", "commit", "-qm", "Rejected")
    watched.run("git", "push", "-q", "origin", "run/night-1")
    watched.run("git", "checkout", "-q", "main")
    seen = look(watched.set())
    assert (seen.source.state, seen.tried) == ("changed", "night-1")


def test_without_a_champion_the_checkout_is_compared(watched: Any) -> None:
    for repository in (watched.folder, watched.folder.parent / "remote"):
        tags = watched.run("git", "-C", str(repository), "tag").split()
        watched.run("git", "-C", str(repository), "tag", "-d", *tags)
    seen = look(watched.set())
    assert (seen.champion, seen.source.state) == (None, "unchanged")
    watched.put("cat/new.png", NEW)
    found = decide(watched.set().monitor, look(watched.set()))
    assert (found.retrain, found.key.split("/")[:3]) == (True, ["monitor", "classifier", "none"])


def test_the_age_is_that_of_the_promotion(watched: Any) -> None:
    first = look(watched.set())
    promoted = datetime.fromisoformat(first.champion.date)
    assert look(watched.set(), now=promoted + timedelta(days=3)).champion.age_days == 3
    assert promoted <= datetime.now(UTC)


def test_a_bucket_that_cannot_be_read_is_said(watched: Any) -> None:
    seen = look(watched.set(**{"dataset.url": "s3://nowhere/photos"}))
    assert (seen.source.state, len(seen.problems)) == ("unreadable", 1)
    assert "nowhere" in seen.problems[0]


def test_without_the_git_remote_nothing_is_said(watched: Any) -> None:
    shutil.rmtree(watched.folder.parent / "remote")
    with pytest.raises(PerennialError, match="nothing was looked at"):
        look(watched.set())
