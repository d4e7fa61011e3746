"""Which versions saw an image: compared with all records of all versions, read one by one."""

import hashlib
import json
import random
import shutil
from pathlib import Path

import PIL.Image
import pytest
from ruamel.yaml import YAML
from support import raw
from support.git import git
from support.records import data_in
from typer.testing import CliRunner

from perennial.base import config, files
from perennial.base.choices import SPLITS
from perennial.base.dvc import dvc_digests
from perennial.base.errors import DataError, PerennialError
from perennial.base.project.git import repository
from perennial.cli import app
from perennial.data.records import manifest
from perennial.data.tfrecord import example
from perennial.data.validation import image_index
from perennial.release.audit.sides import DvcObjects
from perennial.release.registry import versions
from perennial.reproduce.lineage import seen
from perennial.reproduce.lineage.seen import Indices, trainings
from perennial.stages.convert import convert
from perennial.stages.download import download
from perennial.stages.validate import validate

pytestmark = pytest.mark.usefixtures("forked_dvc")
CACHE = Path(".dvc/cache/files/md5")


def keep(path):
    """Put a folder into DVC's cache, as `dvc repro` does; returns its digest."""
    members = {name: dvc_digests.digest(file) for name, file in dvc_digests.files_of(path).items()}
    listed = [{"md5": md5, "relpath": name} for name, md5 in sorted(members.items())]
    for name, md5 in members.items():
        files.copy(path / name, CACHE / md5[:2] / md5[2:])
    digest = dvc_digests.digest(path)
    files.write_bytes(CACHE / digest[:2] / digest[2:], json.dumps(listed).encode())
    return digest


def record(chosen, *, version=True):
    """Commit what dvc.lock would say of a run on the records of now, and register it as a version."""
    records, index = keep(chosen.paths.records), keep(chosen.paths.index)
    read = [{"path": "data/records", "hash": "md5", "md5": records}]
    lock = {"stages": {
        "convert": {"outs": read},
        "validate": {"deps": read, "outs": [{"path": "data/validation.json", "md5": "0" * 32},
                                            {"path": "data/index", "md5": index}]},
        "train": {"deps": read, "outs": [{"path": "models/weights", "md5": records[:32]}]},
    }}  # fmt: skip
    with Path("dvc.lock").open("w") as stream:
        YAML().dump(lock, stream)
    git("add", "dvc.lock")
    git("commit", "-qm", "Run")
    if version:
        here = repository(Path(), "t", "t@t")
        _, tags = versions.promotion(here, versions.read(here, "classifier"), git("rev-parse", "HEAD"), {})
        here.update(tags)


def digests_by_split(folder):
    """The digests of the images of each split, read from the records one by one."""
    described = manifest.load(folder)
    return {
        split: [
            hashlib.sha256(example.parse(data)[1]).hexdigest()
            for shard in described.splits[split].shards
            for data in data_in((folder / shard.file).read_bytes())
        ]
        for split in SPLITS
    }


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Four versions of a folder of pictures, each without some of the one before, and a run without one."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("history")
        patch.chdir(folder)
        shutil.copy(Path(__file__).parents[3] / "params.yaml", folder)
        git("init", "-qb", "main")
        git("commit", "-q", "--allow-empty", "-m", "Start")
        Path(".dvc").mkdir()
        chosen = config.load(Path("params.yaml"))
        dataset = chosen.dataset.model_copy(update={"name": "image_folder", "path": Path("own")})
        chosen = chosen.model_copy(update={"dataset": dataset})
        raw.write_pictures(Path("own"), each=16)
        draw, brute = random.Random(0), []
        for number in range(5):
            for file in draw.sample(sorted(Path("own").rglob("*.*g")), 5 if number else 0):
                file.rename(folder / f"gone-{file.parent.name}-{file.name}")
            for stage in (download, convert, validate):
                stage(chosen)
            record(chosen, version=number != 2)
            brute.append(digests_by_split(chosen.paths.records))
    return folder, brute


@pytest.fixture(scope="module")
def warm(history, tmp_path_factory):
    """The trainings of the history, and a folder with the index of each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(history[0])
        cache, here = tmp_path_factory.mktemp("warm"), repository(Path())
        listed = trainings(here, versions.read(here, "classifier"), cache)
        search = seen.search(ANY, listed, Indices(cache), bits=4)
        assert (search.trainings, search.sightings, search.unknown) == (5, [], [])
        return listed, cache


@pytest.fixture
def here(history, warm, tmp_path, monkeypatch):
    """What the versions hold; their indices are in a cache of the test's own."""
    monkeypatch.chdir(history[0])
    shutil.copytree(warm[1], tmp_path / "cache")
    return history[1]


@pytest.fixture
def find(warm, here, tmp_path):
    """Searches for an image; gives all that is found, and the versions and splits with the same image."""

    def search(query, **options):
        found = seen.search(query, warm[0], Indices(tmp_path / "cache"), bits=4, **options)
        return found, {each.training.version: dict(each.same) for each in found.sightings if each.same}

    return search


def by_digest(digest):
    return seen.Query(sha256=[bytes.fromhex(digest)])


ANY = by_digest("00" * 32)


def test_each_image_is_found_in_the_versions_and_splits_that_hold_it(here, find):
    names = ["v0.0.1", "v0.0.2", None, "v0.0.3", "v0.0.4"]
    images = sorted(Path().glob("own/*/*")) + sorted(Path().glob("gone-*"))
    assert len(images) == 48
    for file in images:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        expected = {
            name: {split: held.count(digest) for split, held in splits.items() if digest in held}
            for name, splits in zip(names, here, strict=True)
            if any(digest in held for held in splits.values())
        }
        assert expected
        assert [find(query)[1] for query in (by_digest(digest), seen.of_file(file))] == [expected, expected]


def test_a_match_names_the_record_by_its_number_in_the_split(here, find):
    held = dict(zip(["v0.0.1", "v0.0.2", None, "v0.0.3", "v0.0.4"], here, strict=True))
    for split in SPLITS:
        found, _ = find(by_digest(held["v0.0.2"][split][-1]))
        shown = [(each.training.version, match) for each in found.sightings for match in each.matches]
        assert {match.split for _, match in shown} >= {split}
        assert {held[version][match.split][match.record] == match.digest for version, match in shown} == {True}


def test_an_image_saved_again_is_found_by_its_pixels_and_a_changed_one_by_its_looks(find, tmp_path):
    original = max(Path("own").glob("*/*.png"), key=lambda file: file.stat().st_size)
    opened = PIL.Image.open(original)
    opened.save(tmp_path / "again.png", compress_level=1)
    opened.save(tmp_path / "again.jpg", quality=90)
    kinds = []
    for name in ("again.png", "again.jpg"):
        (sighting, *_) = find(seen.of_file(tmp_path / name))[0].sightings
        kinds.append({(match.kind, match.digest) for match in sighting.matches})
    digest = files.sha256(original)
    assert kinds == [{("pixels", digest)}, {("near", digest)}]


def test_an_image_that_nobody_saw_is_in_no_version(find, tmp_path):
    (tmp_path / "new.png").write_bytes(raw.encoded(raw.picture(4242)))
    assert find(seen.of_file(tmp_path / "new.png"))[0].sightings == []


def test_versions_whose_data_are_gone_are_named_and_others_are_not_asked_again(find, tmp_path):
    for file in (tmp_path / "cache").glob("*.npy"):
        file.unlink()
    moved = tmp_path / "moved"
    CACHE.rename(moved)
    try:
        unknown = find(ANY)[0].unknown
    finally:
        moved.rename(CACHE)
    assert {training.version for training, _ in unknown} == {None, *(f"v0.0.{n}" for n in range(1, 5))}
    assert all("is missing or damaged in the cache of DVC" in reason for _, reason in unknown)
    assert [training.version for training, _ in find(ANY)[0].unknown] == [None]
    assert find(ANY, ask=True)[0].unknown == []


def test_a_version_whose_data_are_gone_ends_the_command_with_3(here, tmp_path):
    moved = tmp_path / "moved"
    CACHE.rename(moved)
    try:
        done = CliRunner().invoke(app, ["seen", "00" * 32])
    finally:
        moved.rename(CACHE)
        shutil.rmtree(Path(".work", "lineage"), ignore_errors=True)
    assert (done.exit_code, "unknown for v0.0.4 and 3 more: " in done.output) == (3, True)


def test_an_outage_of_the_remote_is_not_remembered(find, tmp_path, monkeypatch):
    def fail(*_):
        raise PerennialError("the remote cannot be reached")

    for file in (tmp_path / "cache").glob("*.npy"):
        file.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(DvcObjects, "members", fail)
        assert len(find(ANY)[0].unknown) == 5
    assert find(ANY)[0].unknown == []


def test_damaged_files_of_the_cache_are_replaced(here, find, warm, tmp_path):
    digest = here[4]["train"][0]
    before = find(by_digest(digest))[1]
    for number, file in enumerate(sorted((tmp_path / "cache").glob("*.npy"))):
        file.write_bytes((b"", b"\x93NUMPY", b"no index", file.read_bytes()[:-9], bytes(500))[number % 5])
    for name in ("locks.json", "missing.json"):
        (tmp_path / "cache" / name).write_text("[")
    git_here = repository(Path())
    assert trainings(git_here, versions.read(git_here, "classifier"), tmp_path / "cache") == warm[0]
    assert find(by_digest(digest))[1] == before


def test_a_file_that_is_no_image_is_an_error(tmp_path):
    (tmp_path / "text").write_text("no image")
    with pytest.raises(DataError, match="not a JPEG, HEIC, PNG"):
        seen.of_file(tmp_path / "text")


def test_fingerprints_of_a_file_are_those_of_its_record(here):
    index = image_index.read(Path("data/index", image_index.FILE))
    for file in sorted(Path("own").rglob("*.*g")):
        query = seen.of_file(file)
        (entry,) = index[(index["sha256"] == list(query.sha256[0])).all(axis=1)]
        assert (entry["pixels"].tolist(), entry["hash"]) == (query.pixels.tolist(), query.hash or entry["hash"])
