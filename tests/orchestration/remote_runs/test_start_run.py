"""The start of a run on a server whose answers get lost, and the end of one that waits for a person."""

from collections.abc import Iterator
from contextlib import contextmanager

from support.small_servers import Answering, served
from typer.testing import CliRunner

from perennial.cli import app
from perennial.orchestration.client import prefect_server
from perennial.orchestration.remote_runs import start_run
from perennial.release.registry import approval


@contextmanager
def losing(answers: int, runs: dict[str, dict[str, object]]) -> Iterator[str]:
    """A server that creates runs by their key, as Prefect's does, and loses its first answers to that."""
    left = [answers]

    class Handler(Answering):
        def do_GET(self) -> None:
            self.answer({"id": "d"})

        def do_POST(self) -> None:
            body = self.body()
            key = body.get("idempotency_key") or f"none {len(runs)}"
            run = runs.setdefault(key, {"id": str(len(runs)), "name": "night", "state": None})
            left[0] -= 1
            self.answer(run, 503 if left[0] >= 0 else 201)

    with served(Handler) as address:
        yield f"{address}/api"


def test_an_answer_wakes_the_run_that_waits_on_a_server_that_a_profile_names(workspace, monkeypatch) -> None:
    woken: list[str] = []

    class Handler(Answering):
        def do_GET(self) -> None:
            self.answer("3.8.8")

        def do_POST(self) -> None:
            woken.append(self.path)
            self.answer([{"id": number, "parameters": {"run": f"night-{number}"}} for number in "12"])

    done = approval.ApprovalRequest(
        run="night-1", state="approved", commit="", since="", until="", opponent=None, reasons=(), candidate={},
        champion=None,
    )  # fmt: skip
    monkeypatch.setattr(approval, "decide", lambda *_: done)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(workspace))
    with served(Handler) as address:
        text = f'active = "a"\n[profiles.a]\nPREFECT_API_URL = "{address}/api"\n'
        (workspace / "profiles.toml").write_text(text)
        assert CliRunner().invoke(app, ["approve", "night-1", "--by", "Ada"]).exit_code == 0
    assert woken == ["/api/flow_runs/filter", "/api/flow_runs/1/set_state"]


def test_a_request_that_is_repeated_starts_one_run() -> None:
    runs: dict[str, dict[str, object]] = {}
    with losing(2, runs) as url:
        connected = prefect_server.connect({"PREFECT_API_URL": url}, pauses=(0, 0))
        first = start_run.start(connected, "on-demand", {})
        second = start_run.start(connected, "on-demand", {})
    assert (first.id, second.id, len(runs)) == ("0", "1", 2)
