"""The pin of a source, and the download of what is pinned: only what is new, and nothing else."""

import json
from dataclasses import replace

import pytest
from support import raw, s3

from perennial.base import files
from perennial.base.errors import ConfigError, DataError
from perennial.base.project.pins import SourcePin
from perennial.data import archives
from perennial.data.datasets import DATASETS, image_folder
from perennial.data.sources import listing
from perennial.data.sources.pin import SourceChanged, pin
from perennial.stages.download import download

PICTURE = raw.encoded(raw.picture(99))


@pytest.fixture
def remote(load, photos):
    """Parameters with a source in S3."""
    return load(**{"dataset.name": "image_folder", "dataset.url": photos.url})


@pytest.fixture
def local(load, photos):
    """Parameters with a folder of the same pictures as the source."""
    return load(**{"dataset.name": "image_folder", "dataset.url": str(photos.folder)})


def run(config):
    """Pin and download; the digests of the raw files."""
    pin(config)
    download(config)
    return files.digests(config.paths.raw)


def test_without_a_source_nothing_is_pinned(load):
    assert pin(load()) == SourcePin.read() == SourcePin(url=None, objects=None, bytes=None, listing_sha256=None)


@pytest.mark.parametrize(
    ("url", "folder"),
    [("/images.zip", "/"), ("images.zip", "."), ("s3://bucket/some/images.zip", "s3://bucket/some")],
)
def test_an_archive_is_looked_for_in_the_folder_that_holds_it(monkeypatch, url, folder):
    opened = []
    monkeypatch.setattr(listing, "open_store", opened.append)
    listing.open_origin(url)
    assert opened == [folder]


def test_a_pin_holds_the_number_and_size_of_the_objects_by_one_listing(remote, photos):
    photos.requests()
    found = pin(remote)
    assert photos.requests() == ([], 1)
    sizes = [file.stat().st_size for file in photos.folder.rglob("*.*")]
    assert (found.url, found.objects, found.bytes) == (photos.url, 6, sum(sizes))
    assert SourcePin.read() == found
    assert sorted(json.loads(SourcePin.FILE.read_text())) == ["bytes", "listing_sha256", "objects", "url"]


def test_a_bucket_and_a_folder_as_source_or_as_path_give_the_same_raw_files(remote, local, photos, load):
    fetched = run(remote)
    assert run(local) == fetched
    config = load(**{"dataset.url": None, "dataset.path": str(photos.folder)})
    download(config)
    assert files.digests(config.paths.raw) == fetched


def test_only_new_objects_are_fetched_and_removed_ones_are_gone_from_raw_files_and_copies(remote, photos):
    before = run(remote)
    photos.put("cat/new.png", PICTURE)
    photos.requests()
    run(remote)
    assert photos.requests() == (["cat/new.png"], 2)  # and two listings
    photos.client.delete_object(Bucket=photos.name, Key="photos/cat/new.png")
    assert run(remote) == before
    assert len([path for path in (remote.paths.work / "source").glob("*/*/*") if path.is_file()]) == 6


def test_a_damaged_copy_is_fetched_again(remote, photos):
    before = run(remote)
    damaged = next((remote.paths.work / "source").glob("*/*/*"))
    damaged.chmod(0o644)
    damaged.write_bytes(b"\0" * damaged.stat().st_size)
    photos.requests()
    assert run(remote) == before
    assert len(photos.requests()[0]) == 1


@pytest.mark.parametrize(
    ("where", "change"), [("remote", "removed"), ("remote", "changed"), ("local", "changed")]
)
def test_a_source_that_is_not_as_pinned_is_refused(request, where, change, photos):
    config = request.getfixturevalue(where)
    before = run(config)
    name = "cat/00.png"
    if change == "removed":
        photos.client.delete_object(Bucket=photos.name, Key=f"photos/{name}")
        (photos.folder / name).unlink()
    else:
        photos.put(name, PICTURE)
        files.write_bytes(photos.folder / name, PICTURE)
    message = r"differs from its pin in pins/source\.json.*`perennial pin source`"
    with pytest.raises(SourceChanged, match=message) as caught:
        download(config)
    assert (caught.value.exit_code, files.digests(config.paths.raw)) == (1, before)
    pin(config)
    download(config)
    assert files.digests(config.paths.raw) != before


def test_the_pin_of_another_url_is_refused(remote, local, load):
    pin(local)
    with pytest.raises(SourceChanged):
        download(remote)


@pytest.mark.parametrize("change", ["changed", "removed"])
def test_a_source_that_changes_while_it_is_read_is_refused(remote, photos, change):
    """Between the listing and the first request for an object."""
    pin(remote)

    def change_one():
        if change == "changed":
            photos.put("owl/01.jpeg", PICTURE)
        else:
            photos.client.delete_object(Bucket=photos.name, Key="photos/owl/01.jpeg")

    s3.before_objects(photos.proxy, change_one)
    with pytest.raises(SourceChanged, match="changed during the read"):
        download(remote)
    assert not remote.paths.raw.exists()
    run(remote)
    assert remote.paths.raw.exists()


def test_a_local_source_that_changes_while_it_is_read_is_refused(local, photos, monkeypatch):
    pin(local)

    def collect(content, raw_folder):
        image_folder.collect(content, raw_folder)
        files.write_bytes(photos.folder / "cat" / "late.png", PICTURE)

    monkeypatch.setitem(DATASETS, "image_folder", replace(DATASETS["image_folder"], collect=collect))
    with pytest.raises(SourceChanged):
        download(local)


def test_a_server_that_fails_requests_delays_and_damages_nothing(remote, photos):
    expected = run(remote)
    for path in (remote.paths.work / "source").glob("*/*/*"):
        path.unlink()
    photos.proxy.faults, photos.proxy.plan = s3.FAST_FAULTS, list(s3.FAST_FAULTS)
    assert run(remote) == expected
    assert photos.proxy.failed


def test_one_archive_in_s3_is_a_source(load, photos, tmp_path):
    archives.pack(photos.folder, tmp_path / "photos.tar")
    photos.put("photos.tar", (tmp_path / "photos.tar").read_bytes())
    photos.put("photos.tar.md5", b"beside it")
    config = load(**{"dataset.name": "image_folder", "dataset.url": f"{photos.url}/photos.tar"})
    assert run(config) == {"images.tar": files.sha256(tmp_path / "photos.tar")}
    assert SourcePin.read().objects == 1


def test_only_tfrecords_and_labels_are_taken_from_a_source_of_records(load, bucket, caplog):
    for name in ("pets_train.tfrecord", "labels.txt", "README.md", "old/pets_train.tfrecord", "val/part-00000"):
        bucket.put(name, name.encode())
    config = load(**{"dataset.name": "tfrecord", "dataset.url": bucket.url})
    assert sorted(run(config)) == ["labels.txt", "part-00000_validation.tfrecord", "pets_train.tfrecord"]
    assert "left out 2 objects" in caplog.text
    assert "'README.md', 'old/pets_train.tfrecord'" in caplog.text


def test_a_folder_of_this_machine_may_have_any_names_as_a_source(load, photos):
    for name in ("Fox/00.png", "cat/00.PNG", "cat\nnap/00.png", "sp./00.png"):
        files.write_bytes(photos.folder / name, PICTURE)
    found = run(load(**{"dataset.name": "image_folder", "dataset.url": str(photos.folder)}))
    assert list(found) == ["images.tar"]


@pytest.mark.parametrize(
    ("name", "url", "error", "message"),
    [
        ("image_folder", None, DataError, r"has no files for dataset\.name image_folder"),
        ("image_folder", "s3://nowhere/photos", ConfigError, "nowhere"),
        ("image_folder", "https://host/folder", ConfigError, "must name one archive"),
        ("tfrecord", "https://host/folder", ConfigError, "must name one archive"),
    ],
)
def test_a_source_that_cannot_be_one_is_refused(load, bucket, name, url, error, message):
    with pytest.raises(error, match=message):
        pin(load(**{"dataset.name": name, "dataset.url": url or bucket.url}))


@pytest.mark.parametrize("content", [b"", b"[]", b'{"objects": "many"}'])
def test_a_damaged_pin_is_reported_with_its_remedy(load, content):
    SourcePin.FILE.parent.mkdir()
    SourcePin.FILE.write_bytes(content)
    with pytest.raises(DataError, match=r"`perennial pin source` writes it"):
        download(load(**{"dataset.name": "image_folder", "dataset.url": "s3://bucket/photos"}))
