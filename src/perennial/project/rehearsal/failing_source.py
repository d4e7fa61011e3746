"""A web server for one archive that fails on demand."""

import hashlib
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CHUNK_BYTES = 1 << 12


class FailingSource:
    """Serves a file, whole or from a byte offset; its answers fail as a promise asks."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.content: bytes | None = None  # sent instead of the file's
        self.errors = 0  # requests that it still answers with `status`
        self.status = 503
        self.cut_after: int | None = None  # bytes that it still sends; then each connection is closed
        handler = type("Handler", (_Handler,), {"source": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """The address of the file."""
        return f"http://127.0.0.1:{self._server.server_port}/{self.file.name}"

    def heal(self) -> None:
        """Answer correctly again."""
        self.content, self.errors, self.cut_after = None, 0, None

    def stop(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    source: FailingSource

    def log_message(self, *_: object) -> None:
        """Do not log to the terminal."""

    def _respond(self) -> None:
        source = self.source
        if source.errors > 0:
            source.errors -= 1
            self.send_error(source.status)
            return
        content = source.file.read_bytes() if source.content is None else source.content
        start = 0
        if (wanted := self.headers.get("Range", "")).startswith("bytes="):
            start = int(wanted[6:].partition("-")[0])
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.end_headers()
        for at in range(start, len(content) if self.command == "GET" else start, CHUNK_BYTES):
            piece = content[at : at + CHUNK_BYTES]
            if source.cut_after is not None:
                allowed = piece[: source.cut_after]
                source.cut_after -= len(allowed)
                if len(allowed) < len(piece):
                    self._hang_up(allowed)
                    return
            self.wfile.write(piece)

    def _hang_up(self, last: bytes) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.wfile.write(last)
            self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_HEAD = _respond
