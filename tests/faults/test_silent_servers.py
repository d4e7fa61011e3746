"""Servers that accept a connection and never answer: each command ends within its limit, and leaves nothing."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from support import forks
from support.s3 import CREDENTIALS
from support.small_servers import Answering, Silent, served, silent_server

from perennial.base import limits
from perennial.base.errors import PerennialError
from perennial.orchestration.client.prefect_server import connect
from perennial.orchestration.remote_runs import start_run

PERENNIAL = ("-m", "perennial")
DVC = ("-c", "from perennial.base.dvc import dvc_program; dvc_program.run('pull')")
MARK = "PERENNIAL_TEST_OF_SILENCE"


@dataclass(frozen=True)
class Case:
    """A command, the variables that lead it to `{address}`, the factor of its limits, and what it says."""

    command: tuple[str, ...]
    words: str
    factor: float = 0.01
    remote: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


CASES = {
    "S3": Case(
        (*PERENNIAL, "fetch", "s3://bucket/models", "--to", "model"),
        "the server accepts the connection and does not answer",
        variables={**CREDENTIALS, "AWS_ENDPOINT_URL": "http://{address}"},
    ),
    "Prefect": Case(
        (*PERENNIAL, "monitor", "--alert", "text"),
        "the Prefect server does not answer at http://127.0.0.1",
        variables={"PREFECT_API_URL": "http://{address}/api"},
    ),
    "DVC over HTTP": Case(
        DVC, "dvc pull did not end within 5.4 s", factor=0.00025, remote="http://{address}/dvc"
    ),
    "DVC over S3": Case(
        DVC,
        "did not end within 5.4 s",
        factor=0.00025,
        remote="s3://bucket/dvc",
        variables={**CREDENTIALS, "AWS_ENDPOINT_URL": "http://{address}"},
    ),
}


@pytest.fixture
def server() -> Iterator[Silent]:
    with silent_server() as found:
        yield found


def left(mark: str) -> list[int]:
    """The processes that a command has left."""
    found = []
    for each in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if each.environ().get(MARK) == mark and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each.pid)
    return found


@pytest.mark.fast_rows("S3", "Prefect")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_command_ends_within_its_limit(case: Case, server: Silent, tmp_path: Path) -> None:
    (tmp_path / ".dvc").mkdir()
    remote = case.remote.format(address=server.address)
    (tmp_path / ".dvc" / "config").write_text(
        f"[core]\n    no_scm = true\n    remote = r\n['remote \"r\"']\n    url = {remote}\n"
    )
    out = {"md5": "9a0364b9e99bb480dd25e1f0284c8555", "hash": "md5", "path": "data"}
    (tmp_path / "data.dvc").write_text(json.dumps({"outs": [out]}))
    mark = str(uuid.uuid4())
    environment = {
        **os.environ,
        **{name: value.format(address=server.address) for name, value in case.variables.items()},
        limits.FACTOR: str(case.factor),
        MARK: mark,
    }
    # A fork is no child that `left` sees; what starts other programs is a process of its own.
    python = forks.python() if case.command[:2] == PERENNIAL else sys.executable
    done = subprocess.run(
        [python, *case.command],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert (done.returncode in {1, 2}, case.words in done.stderr) == (True, True), done.stderr
    assert server.heard
    assert left(mark) == []
    assert not list(tmp_path.rglob("*.lock"))


def test_a_webhook_that_never_answers_is_named_after_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the server's call there is no record then."""

    class Handler(Answering):
        def do_GET(self) -> None:
            self.answer("3.8.8")

        def do_POST(self) -> None:
            known = {"automations/filter": [{"id": "a", "enabled": True}], "events/filter": {"events": []}}
            self.body()
            self.answer(known.get(self.path.removeprefix("/api/")))

    monkeypatch.setenv(limits.FACTOR, "0.01")
    with (
        served(Handler) as address,
        connect({"PREFECT_API_URL": f"{address}/api"}, pauses=()) as server,
        pytest.raises(PerennialError, match=r"has not recorded within 1 s what became of the alert"),
    ):
        start_run.send_alert(server, "text")
