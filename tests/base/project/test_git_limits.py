"""A git that waits for something that never answers ends within its limit, with all that it started."""

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.checkout import wait_until
from support.small_servers import Answering, served

from perennial.base.limits import FACTOR
from perennial.base.processes.process import children
from perennial.base.project.git import GitError, GitTimedOut, Repository

pytestmark = pytest.mark.timing

SILENT = '#!/bin/sh\necho "I wait" >&2\nsleep 1000 & sleep 1000\n'


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """An empty repository, whose limits are short."""
    monkeypatch.setenv(FACTOR, "0.005")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    found = Repository(tmp_path)
    found.run("init", "-q")
    return found


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port of a server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def program(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    file.chmod(0o755)
    return file


def ends(git: Repository, remote: str) -> str:
    """The message of a fetch that ends without an answer; nothing that it started is left."""
    before = set(children(os.getpid(), all_below=True))
    with pytest.raises(GitTimedOut) as error:
        git.fetch(remote, ["+refs/heads/*:refs/remotes/origin/*"])
    wait_until(lambda: set(children(os.getpid(), all_below=True)) <= before)
    assert list((git.folder / ".git").rglob("*.lock")) == []
    return str(error.value)


@pytest.mark.fast_rows("https")
@pytest.mark.parametrize("scheme", ["http", "https", "git", "ssh"])
def test_a_server_that_accepts_and_says_nothing(scheme: str, git: Repository, silent_port: int) -> None:
    assert "did not end within 0.6 s" in ends(git, f"{scheme}://127.0.0.1:{silent_port}/x.git")


def test_an_ssh_that_is_silent(git: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_SSH_COMMAND", str(program(tmp_path, "own-ssh", SILENT)))
    monkeypatch.setenv("GIT_SSH_VARIANT", "ssh")  # else git asks the program for it, and drops what it says
    assert re.search(r"git ls-remote .*: I wait; look at the network, at ssh", ends(git, "ssh://host/x.git"))


class Closed(Answering):
    """A server that asks for a password."""

    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="git"')
        self.end_headers()


def test_a_credential_helper_that_waits(git: Repository, tmp_path: Path) -> None:
    git.run("config", "credential.helper", str(program(tmp_path, "helper", SILENT)))
    with served(Closed) as url:
        assert "0.6 s and was stopped: I wait; look at" in ends(git, f"{url}/x.git")


def test_a_password_that_nobody_can_type(git, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(FACTOR, "1")
    monkeypatch.setenv("SSH_ASKPASS", str(program(tmp_path, "window", SILENT)))  # as a desktop sets it
    with served(Closed) as url, pytest.raises(GitError, match=r"could not read Username .*prompts disabled"):
        git.fetch(f"{url}/x.git", [])


@pytest.mark.parametrize("reason", [
    "Host key verification failed.", "ssh: connect to host h port 22: Connection refused",
    "me@h: Permission denied (publickey).",
])  # fmt: skip
def test_the_reason_of_ssh_is_shown(reason, git, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(FACTOR, "1")
    ssh = program(
        tmp_path, "ssh", f"#!/bin/sh\necho \"$@\" > {tmp_path}/given\necho '{reason}' >&2\nexit 255\n"
    )
    git.run("config", "core.sshCommand", f"{ssh} -i my-key")
    with pytest.raises(GitError, match=re.escape(f"{reason} fatal: Could not read from remote repository.")):
        git.fetch("ssh://me@h/x.git", [])
    given = (tmp_path / "given").read_text()
    assert given.startswith("-i my-key -o ConnectTimeout=60")
    assert "-o BatchMode=yes" in given
