"""A webhook on this machine that keeps what it receives."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

SECRET = "B0c4/s3cr3tT0k3n"  # at the end of its address, as in those of Slack


@dataclass(frozen=True)
class Hook:
    """Its address, and the bodies that it received."""

    url: str
    received: list[str] = field(default_factory=list)

    def texts(self) -> list[str]:
        """The texts of all messages, each of which must be an object of JSON with a text alone."""
        found = []
        for body in self.received:
            message = json.loads(body)
            assert message.keys() == {"text"}
            found.append(message["text"])
        return found


@contextmanager
def webhook(status: int = 200) -> Iterator[Hook]:
    """A webhook that answers with a status code."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if self.headers["Content-Type"] == "application/json":
                hook.received.append(body)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"ok" if status < 400 else b"no_service")

        def log_message(self, *_: object) -> None:
            """Not to the output of the tests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hook = Hook(f"http://127.0.0.1:{server.server_port}/services/{SECRET}")
        Thread(target=server.serve_forever, daemon=True).start()
        yield hook
        server.shutdown()
