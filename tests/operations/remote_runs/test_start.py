"""The start of a run on a server whose answers get lost."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from perennial.operations.prefect_api import server
from perennial.operations.remote_runs import start


@contextmanager
def losing(answers: int, runs: dict[str, dict[str, object]]) -> Iterator[str]:
    """A server that creates runs by their key, as Prefect's does, and loses its first answers to that."""
    left = [answers]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(200, {"id": "d"})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            key = body.get("idempotency_key") or f"none {len(runs)}"
            run = runs.setdefault(key, {"id": str(len(runs)), "name": "night", "state": None})
            left[0] -= 1
            self.answer(503 if left[0] >= 0 else 201, run)

        def answer(self, status: int, body: dict[str, object]) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            """Not to the output of the tests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        Thread(target=served.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{served.server_port}/api"
        served.shutdown()


def test_a_request_that_is_repeated_starts_one_run() -> None:
    runs: dict[str, dict[str, object]] = {}
    with losing(2, runs) as url:
        connected = server.connect({"PREFECT_API_URL": url}, pauses=(0, 0))
        first = start.start(connected, "on-demand", {})
        second = start.start(connected, "on-demand", {})
    assert (first.id, second.id, len(runs)) == ("0", "1", 2)
