"""Download stage: accepted and refused files, kept files, errors, recorded digests."""

import gzip
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from data.downloads.fault_server import Server, gated, sha256

from perennial.base import documents, files
from perennial.base.errors import ConfigError, DataError, PerennialError
from perennial.data.datasets import DATASETS
from perennial.data.datasets.dataset import SourceFile
from perennial.data.downloads.spec import TransferLimits
from perennial.stages import download as stage
from perennial.stages.convert import convert

DIGITS = DATASETS["digits"]
LIMITS = TransferLimits(tries=2, backoff_first_s=0.01, backoff_max_s=0.01)
NAME = DIGITS.files[0].name
INSTALLED = Path(unquote(urlsplit(DIGITS.mirrors[0]).path)) / NAME
CONTENT = INSTALLED.read_bytes()
TABLE = gzip.decompress(CONTENT)
KEPT = Path(".work/downloads/digits") / NAME
RAW = Path("data/raw") / NAME


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    running = Server()
    running.content = CONTENT
    yield running
    running.end()


@pytest.fixture
def remote(load, server):
    """Parameters that replace the mirrors by the server."""
    return load(**{"dataset.base_url": f"{server.url}some/folder"})


@pytest.fixture
def recording(load, server):
    """Parameters that trust the server's first file."""
    return load(**{"dataset.base_url": server.url, "dataset.digests": "record"})


def download(config):
    stage.download(config, LIMITS)


def refusal(config, kind=PerennialError):
    with pytest.raises(kind) as refused:
        download(config)
    return refused.value


@pytest.mark.parametrize("base", [None, "{server}some/folder", "{server}some/folder/", "{folder}", "{folder}/"])
def test_a_file_comes_from_the_package_a_server_or_a_folder(load, server, workspace, base):
    (workspace / "a folder").mkdir()
    (workspace / "a folder" / NAME).write_bytes(CONTENT)
    base_url = base and base.format(server=server.url, folder=(workspace / "a folder").as_uri())
    download(load(**{"dataset.base_url": base_url}))
    asked = [f"/some/folder/{NAME}"] if base and "server" in base else []
    assert (RAW.read_bytes(), server.asked) == (CONTENT, asked)


@pytest.mark.parametrize("content", [TABLE, gzip.compress(CONTENT)], ids=["unpacked", "packed twice"])
def test_what_download_accepts_convert_can_read(remote, server, content):
    server.content = content
    try:
        download(remote)
    except DataError:
        return
    convert(remote)


def test_the_old_raw_folder_stays_if_the_download_fails(remote, server):
    for name in ("old", files.MARK):
        files.write_bytes(RAW.with_name(name), b"old")
    server.content = b"wrong"
    refusal(remote)
    assert [path.name for path in RAW.parent.glob("[!.]*")] == ["old"]


def test_the_first_file_is_recorded_accepted_again_and_a_change_of_it_refused(recording, server):
    server.content = b"first"
    for _ in range(2):
        download(recording)
        assert documents.read_json(Path("digests.json")) == {f"{server.url}{NAME}": sha256(b"first")}
        assert RAW.read_bytes() == b"first"
    before = Path("digests.json").read_bytes()
    KEPT.unlink()
    server.content = b"second"
    assert f"sha256 {sha256(b'second')}, expected sha256 {sha256(b'first')}" in str(
        refusal(recording, DataError)
    )
    assert Path("digests.json").read_bytes() == before


def test_recording_keeps_the_digests_of_other_files(recording, server):
    files.write_json(Path("digests.json"), {"other": "digest"})
    download(recording)
    assert set(documents.read_json(Path("digests.json"))) == {"other", f"{server.url}{NAME}"}


@pytest.mark.parametrize("damaged", [b"{", b'{"url": 5}'])
def test_a_damaged_file_of_digests_is_restored_from_git(recording, damaged):
    Path("digests.json").write_bytes(damaged)
    assert "`git checkout -- digests.json` restores it" in str(refusal(recording, DataError))
    assert Path("digests.json").read_bytes() == damaged


def test_recording_without_a_url_is_a_configuration_error(load):
    assert type(refusal(load(**{"dataset.digests": "record"}))) is ConfigError


@pytest.fixture
def define(monkeypatch, server):
    """Changes the definition of the data set, and where it comes from."""

    def change(**changes):
        changed = replace(DIGITS, **{"mirrors": (server.url,)} | changes)
        monkeypatch.setitem(DATASETS, "digits", changed)

    return change


def source(name, content):
    return SourceFile(name=name, bytes=len(content), sha256=sha256(content))


def test_a_digest_is_recorded_before_the_next_file_fails(load, workspace, define):
    define(files=(source("first.bin", b""), source("second.bin", b"")))
    (workspace / "first.bin").write_bytes(b"first")
    refusal(load(**{"dataset.base_url": workspace.as_uri(), "dataset.digests": "record"}))
    assert list(documents.read_json(Path("digests.json"))) == [f"{workspace.as_uri()}/first.bin"]


def test_a_file_in_the_raw_folder_is_a_hard_link(remote):
    download(remote)
    assert RAW.samefile(KEPT)


def test_downloads_kept_on_another_disk_are_copied(remote, load):
    if Path("/dev/shm").stat().st_dev == Path().stat().st_dev:
        pytest.skip("/dev/shm is no other disk here")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        download(load(**{"dataset.base_url": remote.dataset.base_url, "paths.work": other}))
        assert (RAW.read_bytes(), Path(other, "downloads/digits", NAME).exists()) == (CONTENT, True)


def test_a_terminated_stage_keeps_the_received_bytes(remote, server):
    """The signal arrives during the transfer: no library may convert it into an error of its own."""
    server.plan = [gated(30_000)]
    environment = {**os.environ, "PYTHONPATH": str(Path(files.__file__).parents[2])}
    part = KEPT.with_name(f"{NAME}.part")
    with subprocess.Popen(
        [sys.executable, "-m", "perennial", "download"], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        while not (part.exists() and part.stat().st_size == 30_000):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        error = process.stderr.read()
    assert (process.returncode, "SIGTERM" in error, KEPT.exists()) == (75, True, False)
    assert part.stat().st_size == 30_000


def test_a_file_that_is_a_link_is_copied_so_that_the_original_stays_apart(load, tmp_path):
    config = load()
    KEPT.parent.mkdir(parents=True)
    original = tmp_path / "original.csv.gz"
    original.write_bytes(CONTENT)
    KEPT.symlink_to(original)
    download(config)
    assert (original.stat().st_nlink, RAW.read_bytes()) == (1, CONTENT)


NOT_UTF8 = os.fsdecode(b"\xff")
NAMES = dict.fromkeys((f"cat/{NOT_UTF8}.jpg", f"{NOT_UTF8}/1.jpg", f"{NOT_UTF8}.txt"), "UTF-8")
NAMES |= {name: repr(name) for name in ("cat/.1.jpg", ".secret")} | {".c/1.jpg": "'.c'"}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_hidden_or_not_utf8_is_refused_in_characters_that_are(pictures, name):
    files.write_bytes(Path(pictures.dataset.path, name), b"x")
    assert NAMES[name] in str(refusal(pictures, DataError)).encode().decode()


def test_tfrecords_whose_names_are_not_utf8_are_refused(load):
    Path("records").mkdir()
    Path("records", f"{NOT_UTF8}_train.tfrecord").write_bytes(b"x")
    config = load(**{"dataset.name": "tfrecord", "dataset.path": "records"})
    assert "UTF-8" in str(refusal(config, DataError)).encode().decode()
