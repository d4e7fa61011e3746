"""Servers of a few answers: an API like Prefect's, a webhook that keeps what it receives, and silence."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

SECRET = "B0c4/s3cr3tT0k3n"  # at the end of its address, as in those of Slack


class Answering(BaseHTTPRequestHandler):
    """Answers with JSON, and logs nothing to the output of the tests."""

    def answer(self, body: object, status: int = 200) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def served(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server during the block."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@dataclass
class Hook:
    """Its address, the status code that it answers with, and the bodies that it received."""

    url: str
    status: int = 200
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
def webhook() -> Iterator[Hook]:

    class Handler(Answering):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if self.headers["Content-Type"] == "application/json":
                hook.received.append(body)
            self.send_response(hook.status)
            self.end_headers()
            self.wfile.write(b"ok" if hook.status < 400 else b"no_service")

    with served(Handler) as address:
        hook = Hook(f"{address}/services/{SECRET}")
        yield hook


@dataclass
class Silent:
    """A server that accepts connections, and says nothing; what each connection sent first."""

    address: str  # HOST:PORT
    heard: list[bytes] = field(default_factory=list)


@contextmanager
def silent_server() -> Iterator[Silent]:
    """The server during the block."""
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = Silent(f"127.0.0.1:{listener.getsockname()[1]}")

        def read(connection: socket.socket) -> None:
            with suppress(OSError):
                found.heard.append(connection.recv(1 << 16))
                while connection.recv(1 << 16):
                    pass

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    kept.append(connection)
                    Thread(target=read, args=(connection,), daemon=True).start()

        Thread(target=accept, daemon=True).start()
        yield found
        listener.shutdown(socket.SHUT_RDWR)
    for each in kept:
        each.close()
