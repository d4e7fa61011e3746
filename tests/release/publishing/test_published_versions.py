"""Versions in a folder and in a bucket alike: their numbers, rollbacks, and what is refused."""

from pathlib import Path

import pytest
from support.exports import Place

from perennial.base import files
from perennial.base.errors import DataError, QualityError
from perennial.base.storage import open_store
from perennial.release.publishing import publish_to_bucket, publish_to_folder


@pytest.fixture(params=["folder", "bucket"])
def place(request, load, tmp_path):
    if request.param == "folder":
        return Place(load(), str(tmp_path / "above" / "versions"), publish_to_folder)
    bucket = request.getfixturevalue("bucket")
    return Place(load(), f"s3://{bucket.name}/models/digits", publish_to_bucket)


def test_versions_count_from_one_and_the_last_is_current(place):
    assert ([place.add(model).version for model in "aba"], place.read()) == ([1, 2, 3], "a")


def test_the_current_version_is_not_published_again(place):
    first, before = place.add("a"), [entry.key for entry in open_store(place.url).list()]
    assert (first.moved, place.add("a").moved, place.add("a").version) == (True, False, 1)
    assert [entry.key for entry in open_store(place.url).list()] == before


@pytest.mark.parametrize(("version", "now"), [(None, 2), (1, 1), (3, 3)])
def test_current_is_rolled_back_to_the_previous_or_a_chosen_version(place, version, now):
    for model in "abc":
        place.add(model)
    done = place.roll_back(version)
    assert (done.version, done.moved, place.read()) == (now, now != 3, "abc"[now - 1])


def test_a_rolled_back_model_is_not_published_again_until_it_is_current(place):
    for model in "abc":
        place.add(model)
    place.roll_back(1)
    for model in "bc":
        with pytest.raises(QualityError, match=r"version [23] .*rolled back; current stays 1"):
            place.add(model, card="another card")
    assert (place.add("d").version, place.read()) == (4, "d")
    assert (place.roll_back().version, place.roll_back(3).moved) == (1, True)
    assert (place.read(), place.add("c").moved) == ("c", False)
    with pytest.raises(QualityError, match="version 2"):
        place.add("b")
    assert (place.roll_back().version, place.read()) == (1, "a")


@pytest.mark.parametrize("version", [None, 4])
def test_a_missing_version_cannot_be_rolled_back_to(place, version):
    place.add("a")
    with pytest.raises(DataError, match=r"\[1\], current is 1; nothing was changed"):
        place.roll_back(version)


def test_a_damaged_version_cannot_be_rolled_back_to(place):
    for model in "ab":
        place.add(model)
    open_store(place.url).put("1/variables/variables.index", b"damaged")
    with pytest.raises(DataError, match=r"/1(/variables/variables.index has the SHA-256| is not what was pub)"):
        place.roll_back()
    assert place.read() == "b"


def test_an_export_that_changes_meanwhile_is_not_published(place, monkeypatch):
    place.add("a")
    allowed = place.allowed("b")
    with monkeypatch.context() as patch:
        patch.setattr(files, "digests", lambda _: {})
        with pytest.raises(DataError, match="the export was changed meanwhile"):
            place.module.add(place.url, allowed)
    assert place.read() == "a"
    if place.module is publish_to_folder:
        assert sorted(path.name for path in Path(place.url).iterdir()) == [".publish.lock", "1", "current"]
