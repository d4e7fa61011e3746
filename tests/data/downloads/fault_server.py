"""A local HTTP server that follows a plan of faults, one step a request."""

import hashlib
import random
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONTENT = random.Random(0).randbytes(300_000)
OTHER = random.Random(1).randbytes(300_000)
PIECE = 8192


def sha256(content):
    return hashlib.sha256(content).hexdigest()


class Server(ThreadingHTTPServer):
    """Gives `content` to who asks, unless `plan` has another step for the request; its last step is kept."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host="127.0.0.1"):
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, 0), Handler)
        self.content, self.etag, self.plan = CONTENT, '"one"', []
        self.asked, self.headers, self.served = [], [], 0
        self.open = threading.Event()  # a step may wait for it
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/"

    def step(self):
        with self.lock:
            return self.plan.pop(0) if len(self.plan) > 1 else (self.plan or [honest])[0]

    def end(self):
        self.open.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        pass  # clients leave


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.close_connection = True
        with self.server.lock:
            self.server.asked.append(self.path)
            self.server.headers.append(dict(self.headers))
        self.server.step()(self)

    do_HEAD = do_GET

    def head(self, status, **headers):
        self.send_response(status)
        for name, value in {"Connection": "close", **headers}.items():
            if value is not None:
                self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def send(self, body):
        if self.command == "HEAD":
            return
        for start in range(0, len(body), PIECE):
            self.wfile.write(body[start : start + PIECE])
            with self.server.lock:
                self.server.served += len(body[start : start + PIECE])

    def log_message(self, *_):
        pass


def honest(handler):
    """As RFC 9110 wants it."""
    content, etag = handler.server.content, handler.server.etag
    wanted = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
    if wanted is None or handler.headers.get("If-Range") != etag:
        handler.head(200, Content_Length=len(content), ETag=etag)
        handler.send(content)
    elif (first := int(wanted[1])) >= len(content):
        handler.head(416, Content_Range=f"bytes */{len(content)}", Content_Length=0)
    else:
        rest = content[first:]
        of = f"bytes {first}-{len(content) - 1}/{len(content)}"
        handler.head(206, Content_Length=len(rest), Content_Range=of, ETag=etag)
        handler.send(rest)


def cut(count, **headers):
    """Breaks off after so many bytes of the whole."""

    def step(handler):
        whole = handler.server.content
        handler.head(200, **{"Content_Length": len(whole), "ETag": handler.server.etag} | headers)
        handler.send(whole[:count])

    return step


def gated(count):
    """Sends so many bytes, then waits."""

    def step(handler):
        cut(count)(handler)
        handler.wfile.flush()
        handler.server.open.wait(600)

    return step


def chunked(count, *, ended):
    """A body without length, with or without its last chunk."""

    def step(handler):
        handler.head(200, Transfer_Encoding="chunked", ETag=handler.server.etag)
        part = handler.server.content[:count]
        handler.wfile.write(b"%x\r\n" % len(part))
        handler.send(part)
        handler.wfile.write(b"\r\n0\r\n\r\n" if ended else b"\r\n")

    return step


def status(code, body=b"", **headers):
    def step(handler):
        handler.head(code, **{"Content_Length": len(body)} | headers)
        handler.send(body)

    return step


def part(first, last, total, body, **headers):
    """A 206 that says what it likes."""
    of = f"bytes {first}-{last}/{total}"
    return status(206, body, **{"Content_Range": of, "ETag": '"one"'} | headers)


def redirect(target, code=302):
    return status(code, Location=target)


def by_name(handler):
    """The file of that name, where `content` is a dictionary."""
    content = handler.server.content.get(handler.path.lstrip("/"))
    status(404 if content is None else 200, content or b"")(handler)


def hang(handler):
    handler.server.open.wait(600)


def drip_head(handler):
    """A byte of headers now and then, without end."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not handler.server.open.wait(0.05):
        handler.wfile.write(b"x")


def drip_body(handler):
    handler.head(200, Content_Length=len(handler.server.content))
    for index in range(len(handler.server.content)):
        if handler.server.open.wait(0.05):
            return
        handler.wfile.write(handler.server.content[index : index + 1])


def drip_chunk_size(handler):
    """Bytes on the line that are no content: a chunk's extension without end."""
    handler.head(200, Transfer_Encoding="chunked")
    handler.wfile.write(b"1;")
    while not handler.server.open.wait(0.05):
        handler.wfile.write(b"x")
