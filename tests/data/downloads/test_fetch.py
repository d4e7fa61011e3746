"""All files of a data set: files put there by hand, errors that list missing files, and several processes."""

import fcntl

import pytest
from data.downloads import client
from data.downloads.conftest import QUICK
from data.downloads.fault_server import CONTENT, OTHER, by_name, honest, sha256, status

from perennial.base.errors import DataError, PerennialError
from perennial.data.downloads.fetch import Fetcher
from perennial.data.downloads.spec import FileSpec

CONTENTS = {"a.bin": CONTENT, "b.bin": OTHER}
A, B = (FileSpec(name=name, bytes=len(content), sha256=sha256(content)) for name, content in CONTENTS.items())


@pytest.fixture
def fetched(server, tmp_path):
    server.content, server.plan = dict(CONTENTS), [by_name]

    def fetch(specs=(A, B), mirrors=(server.url,), on_file=lambda _: None):
        fetcher = Fetcher(mirrors=mirrors, folder=tmp_path, limits=QUICK)
        return [file.name for file in fetcher.fetch_all(specs, on_file)]

    return fetch


def refusal(fetched, **changes):
    with pytest.raises(PerennialError) as refused:
        fetched(**changes)
    return refused.value


def test_on_file_is_called_after_each_file_and_the_error_does_not_list_a_present_one(fetched, server):
    arrived = []
    del server.content["b.bin"]
    error = str(refusal(fetched, on_file=lambda file: arrived.append(file.name)))
    assert (arrived, "\n  a.bin (" in error, "\n  b.bin (" in error) == (["a.bin"], False, True)


def test_the_error_lists_every_missing_file_and_where_it_goes(fetched, server, tmp_path):
    del server.content["a.bin"]
    error = str(refusal(fetched))
    assert (
        f"{tmp_path}\n"
        f"  a.bin (300,000 bytes, sha256 {sha256(CONTENT)})\n"
        f"  b.bin (300,000 bytes, sha256 {sha256(OTHER)})\n"
        f"(from {server.url})"
    ) in error


def test_the_error_names_every_mirror_without_its_password(fetched, server):
    server.content.clear()
    mirrors = (server.url.replace("//", "//user:hush@"), "http://127.0.0.1:1/")
    error = str(refusal(fetched, mirrors=mirrors))
    assert (f"(from {server.url}, http://127.0.0.1:1/)" in error, "hush" in error) == (True, False)


@pytest.mark.parametrize(
    ("code", "kind"), [(404, DataError), (503, PerennialError)], ids=["for good", "are temporary"]
)
def test_the_type_of_the_error_depends_on_whether_a_retry_helps(fetched, server, code, kind):
    server.plan = [status(code)]
    assert type(refusal(fetched)) is kind


def test_one_temporary_failure_makes_the_error_temporary(fetched, server, start):
    busy = start()
    busy.plan = [status(503)]
    server.content.clear()
    assert type(refusal(fetched, mirrors=(server.url, busy.url))) is PerennialError


def test_a_file_without_a_digest_cannot_be_placed_by_hand(fetched, server, tmp_path):
    server.plan = [status(503)]
    assert str(tmp_path) not in str(refusal(fetched, specs=(FileSpec(name="a.bin"),)))


def test_a_file_without_a_digest_is_fetched_although_one_is_present(fetched, server, tmp_path):
    server.plan, server.content = [honest], CONTENT
    (tmp_path / "a.bin").write_bytes(b"of another origin")
    fetched(specs=(FileSpec(name="a.bin"),))
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_four_processes_download_once(fetching, server):
    barrier = client.PROCESSES.Barrier(4)
    processes = [client.start(fetching.spec, server.url, fetching.folder, barrier) for _ in range(4)]
    for process in processes:
        process.join(600)
    assert [process.exitcode for process in processes] == [0] * 4
    assert (len(server.asked), fetching.file.read_bytes()) == (1, CONTENT)


def test_a_lock_that_is_never_released_is_reported(fetching, server):
    fetching.folder.mkdir()
    fetching.limit(total_s=0.3)
    with fetching.file.with_name("file.bin.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(PerennialError, match=r"file\.bin\.lock"):
            fetching()
    assert server.asked == []
