"""The start of a run on a server whose answers get lost."""

from collections.abc import Iterator
from contextlib import contextmanager

from support.small_servers import Answering, served

from perennial.orchestration.client import prefect_server
from perennial.orchestration.remote_runs import start_run


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


def test_a_request_that_is_repeated_starts_one_run() -> None:
    runs: dict[str, dict[str, object]] = {}
    with losing(2, runs) as url:
        connected = prefect_server.connect({"PREFECT_API_URL": url}, pauses=(0, 0))
        first = start_run.start(connected, "on-demand", {})
        second = start_run.start(connected, "on-demand", {})
    assert (first.id, second.id, len(runs)) == ("0", "1", 2)
