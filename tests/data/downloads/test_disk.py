"""Full and read-only disks, and other files under the name of a download."""

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from data.downloads.fault_server import CONTENT, status

from perennial.base.errors import PerennialError


def refusal(fetching):
    with pytest.raises(PerennialError) as refused:
        fetching()
    assert type(refused.value).exit_code == 1
    return str(refused.value)


@pytest.fixture
def nobody():
    """Run without the rights of root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield
    if root:
        os.seteuid(0)


def test_a_file_larger_than_the_free_space_is_not_started(fetching, server):
    fetching.spec = replace(fetching.spec, bytes=10**17)
    server.plan = [status(200, CONTENT, Content_Length=10**17)]
    free = shutil.disk_usage("/").free
    error = refusal(fetching)
    assert (f"{10**17:,}" in error, free < 10**17) == (True, True)
    assert fetching.part.stat().st_size == 0


def test_a_full_disk_is_reported_without_trying_the_next_mirror_and_the_partial_file_removed(
    fetching, server, start
):
    fetching.folder.mkdir()
    fetching.part.symlink_to("/dev/full")  # every write: ENOSPC
    other = start()
    fetching.mirrors.append(other.url)
    error = refusal(fetching)
    assert (os.strerror(errno.ENOSPC) in error, str(fetching.part) in error) == (True, True)
    assert sorted(path.name for path in fetching.folder.iterdir()) == ["file.bin.lock"]
    assert (len(server.asked), other.asked) == (1, [])


@pytest.fixture
def here(fetching, tmp_path, monkeypatch):
    """The same below the working folder, which other users can reach."""
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o755)
    fetching.folder = Path("kept")
    return fetching


def test_a_read_only_folder_is_reported_with_the_reason(here, nobody):
    assert refusal(here).startswith(f"{here.folder.absolute()}: {os.strerror(errno.EACCES)}")


def test_a_present_file_in_a_read_only_folder_is_used(here, server, request):
    fetching = here
    fetching.folder.mkdir()
    fetching.file.write_bytes(CONTENT)
    request.getfixturevalue("nobody")
    assert (fetching().read_bytes(), server.asked) == (CONTENT, [])


def test_an_unreadable_file_is_reported_with_the_reason(fetching, request):
    fetching.folder.mkdir()
    fetching.file.write_bytes(CONTENT)
    fetching.file.chmod(0)
    request.getfixturevalue("nobody")
    assert refusal(fetching).startswith(f"{fetching.file}: {os.strerror(errno.EACCES)}")


@pytest.mark.parametrize("suffix", ["", ".part", ".lock"])
def test_a_folder_under_a_name_of_the_file_is_named(fetching, suffix):
    path = fetching.file.with_name(fetching.file.name + suffix)
    path.mkdir(parents=True)
    assert str(path) in refusal(fetching)
    assert path.is_dir()


def test_an_old_wrong_file_stays_if_the_download_fails_and_else_is_kept_as_rejected(fetching, server):
    fetching.folder.mkdir()
    fetching.file.write_bytes(b"placed by hand")
    server.plan = [status(503)]
    assert (fetching.refusal().temporary, fetching.file.read_bytes()) == (False, b"placed by hand")
    server.plan = []
    assert (fetching().read_bytes(), fetching.rejected.read_bytes()) == (CONTENT, b"placed by hand")


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir()])
def test_a_folder_without_the_file_fails_permanently(fetching, tmp_path, make):
    make(tmp_path / "file.bin")
    fetching.mirrors = [f"{tmp_path.as_uri()}/"]
    assert not fetching.refusal().temporary


def test_wrong_bytes_in_a_folder_lead_to_the_next_mirror(fetching, tmp_path, server):
    (tmp_path / "file.bin").write_bytes(b"wrong")
    fetching.mirrors = [f"{tmp_path.as_uri()}/", server.url]
    assert fetching().read_bytes() == CONTENT


def test_file_descriptors_are_closed(fetching):
    def count():
        return len(list(Path("/proc/self/fd").iterdir()))

    fetching()
    before = count()
    for _ in range(10):
        fetching.file.unlink()
        fetching()
    assert count() < before + 10
