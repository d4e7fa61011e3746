"""An S3 server over HTTP, and a proxy before it that fails requests."""

import functools
import http.client
import logging
import random
import re
import socket
import struct
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from perennial.base import retries

SECRET = "planted/secret+key"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "planted-id", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/nowhere/config",
    "AWS_SHARED_CREDENTIALS_FILE": "/nowhere/credentials",
}  # fmt: skip
CHECKSUM = re.compile(
    r"x-amz-(checksum-|sdk-checksum-algorithm|trailer|content-sha256: STREAMING-.*-TRAILER)", re.IGNORECASE
)
XML = '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>injected</Message></Error>'


@contextmanager
def moto():
    """The URL of a server without buckets."""
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - slow

    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def share_loader(patch):
    """Let all clients of this process share boto3's description of S3, which takes a second to read."""
    import botocore.session  # noqa: PLC0415 - slow

    patch.setattr(botocore.session, "create_loader", functools.cache(botocore.session.create_loader))


def create_bucket(url, name="bucket", **options):
    """An empty bucket, with its boto3 client."""
    import boto3  # noqa: PLC0415 - slow

    client = boto3.session.Session().client("s3", endpoint_url=url)
    client.create_bucket(Bucket=name, **options)
    return client


class Proxy(ThreadingHTTPServer):
    """Passes requests on to `target`; the next fault of `plan`, or a random one at `rate`, fails a request.

    A plan holds faults by name, or None for a request that passes. `asked` lists methods and paths.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, target, *, rate=0.0, faults=None, seed=0):
        super().__init__(("127.0.0.1", 0), Handler)
        self.target, self.rate, self.faults = urlsplit(target).netloc, rate, faults or list(FAULTS)
        self.plan, self.asked, self.failed, self.only = [], [], [], ""
        self.without_checksums = False  # answers 501 to a request with a checksum in its headers
        self.denies = lambda method, path, headers: False  # answers 403 to such a request
        self.on_request = lambda method, path: None  # called before a request is passed on
        self.random, self.lock, self.open = random.Random(seed), threading.Lock(), threading.Event()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def fault(self, method, path):
        with self.lock:
            self.asked.append((method, path))
            if self.only not in f"{method} {path}":
                return None
            fault = self.plan.pop(0) if self.plan else None
            if self.random.random() < self.rate:
                fault = self.random.choice(self.faults)
            if fault:
                self.failed.append((fault, method, path))
            return fault

    def requests(self, folder):
        """Objects of a folder that were asked for since the last call, and the number of other requests."""
        asked, self.asked[:] = list(self.asked), []
        objects = [path.partition(folder)[2] for _, path in asked if folder in path]
        return sorted(objects), len(asked) - len(objects)

    def end(self):
        self.open.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        pass  # clients leave


def before_objects(proxy, action):
    """Call a function once, before the first request for an object passes; the others wait for it."""
    lock, waiting = threading.Lock(), [action]

    def on_request(_method, path):
        with lock:
            if waiting and "/" in path.partition("?")[0][1:]:
                waiting.pop()()

    proxy.on_request = on_request


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def forward(self):
        fault = self.server.fault(self.command, self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        self.server.on_request(self.command, self.path)
        if self.server.without_checksums and any(map(CHECKSUM.match, map(": ".join, self.headers.items()))):
            refused(501, "NotImplemented")(self, body)
        elif self.server.denies(self.command, self.path, self.headers):
            refused(403, "AccessDenied")(self, body)
        else:
            FAULTS.get(fault, passed)(self, body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward

    def ask(self, body):
        upstream = http.client.HTTPConnection(self.server.target, timeout=60)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
            upstream.request(self.command, self.path, body, headers | {"Connection": "close"})
            answer = upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            upstream.close()

    def answer(self, status, headers, body, sent=None):
        self.send_response_only(status)
        length = len(body)
        for name, value in headers:
            if name.lower() == "content-length":
                length = int(value)
            elif name.lower() not in {"transfer-encoding", "connection"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if sent is None else body[:sent])

    def reset(self):
        """Ends the connection with RST."""
        self.close_connection = True
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def log_message(self, *_):
        pass


def passed(handler, body):
    handler.answer(*handler.ask(body))


def refused(status, code):
    def fault(handler, body):
        handler.answer(status, [("Content-Type", "application/xml")], XML.format(code=code).encode())

    return fault


def reset(handler, body):
    handler.reset()


def lost(handler, body):
    """The server does what is asked, and its answer is lost."""
    handler.ask(body)
    handler.reset()


def short(handler, body):
    """A body that ends early; an answer without one is lost."""
    status, headers, content = handler.ask(body)
    if len(content) > 1 and handler.command == "GET":
        handler.answer(status, headers, content, sent=len(content) // 2)
        handler.close_connection = True
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)
    else:
        handler.reset()


def stalled(handler, body):
    """Half of a body, and nothing more while the client waits."""
    status, headers, content = handler.ask(body)
    handler.answer(status, headers, content, sent=len(content) // 2 if handler.command == "GET" else 0)
    handler.wfile.flush()
    handler.server.open.wait(120)
    handler.close_connection = True


def silent(handler, body):
    """No answer while the client waits."""
    handler.server.open.wait(120)
    handler.close_connection = True


FAULTS = {
    "500": refused(500, "InternalError"), "503": refused(503, "SlowDown"), "reset": reset, "lost": lost,
    "short": short,
}  # fmt: skip
FAULTS_THAT_WAIT = {"stalled": stalled, "silent": silent}
FAULTS |= FAULTS_THAT_WAIT
FAST_FAULTS = [name for name in FAULTS if name not in FAULTS_THAT_WAIT]


@pytest.fixture(scope="module")
def server():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        share_loader(patch)
        with moto() as url:
            yield url


@pytest.fixture
def bucket(server, monkeypatch, request):
    """The client of an empty bucket, which the environment leads to; it has `name` and `url`."""
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": server}.items():
        monkeypatch.setenv(name, value)
    client = create_bucket(server, name := f"bucket-{abs(hash(request.node.nodeid))}")
    client.name, client.url = name, f"s3://{name}"
    return client


@pytest.fixture
def proxy(bucket, server, monkeypatch):
    """A proxy with faults before the server; retries pause shortly."""
    proxy = Proxy(server)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    monkeypatch.setattr(retries, "STORE_PAUSE_S", 0.001)
    yield proxy
    proxy.end()
