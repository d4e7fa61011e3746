"""A server that accepts connections, reads what it gets, and says nothing."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Silent:
    """Its address as `HOST:PORT`, and what each connection sent first."""

    address: str
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
                    threading.Thread(target=read, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield found
        listener.shutdown(socket.SHUT_RDWR)
    for each in kept:
        each.close()
