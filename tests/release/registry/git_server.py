"""Remotes of git that refuse: a real server over HTTP with faults, hooks, and places that cannot be written."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from support.pipelines import Project


class GitServer:
    """`git http-backend` for the repositories in a folder; `fault` decides about pushes.

    An HTTP status to answer with, `drop` to close the connection before anything is done, or `drop answer` to
    close it afterwards.
    """

    def __init__(self, folder: Path) -> None:
        outer = self
        self.fault: int | str | None = None

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self, b"")

            def do_POST(self) -> None:
                outer.answer(self, _body(self))

            def log_message(self, *_: object) -> None:
                pass

        self._folder = folder
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"

    def answer(self, request: Any, body: bytes) -> None:
        """Answer one request."""
        path, _, query = request.path.partition("?")
        pushes = "git-receive-pack" in request.path
        posted = request.command == "POST"
        if pushes and (self.fault in {401, 403} or (posted and isinstance(self.fault, int))):
            request.send_response(int(self.fault))
            if self.fault == 401:
                request.send_header("WWW-Authenticate", 'Basic realm="git"')
            request.end_headers()
            return
        if pushes and posted and self.fault == "drop":
            request.close_connection = True
            return
        environment = {
            **os.environ, "GIT_PROJECT_ROOT": str(self._folder), "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": "tester", "PATH_INFO": path, "QUERY_STRING": query,
            "REQUEST_METHOD": request.command, "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
        }  # fmt: skip
        done = subprocess.run(
            ["git", "http-backend"], env=environment, input=body, capture_output=True, check=True
        )
        if pushes and posted and self.fault == "drop answer":
            request.close_connection = True
            return
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        request.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)


def _body(request: Any) -> bytes:
    if request.headers.get("Transfer-Encoding") != "chunked":
        return bytes(request.rfile.read(int(request.headers.get("Content-Length") or 0)))
    chunks = []
    while size := int(request.rfile.readline(), 16):
        chunks.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(chunks)


@contextmanager
def serving(folder: Path) -> Iterator[GitServer]:
    """A server for the repositories in a folder."""
    server = GitServer(folder)
    thread = threading.Thread(target=server.http.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()
        thread.join()


def hook(remote: Path, name: str, script: str) -> None:
    """Let a remote run a script at each push; an empty one removes it."""
    file = remote / "hooks" / name
    file.unlink(missing_ok=True)
    if script:
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)


@dataclass(frozen=True)
class World:
    """A project that has a model to record, and its remote."""

    project: Project
    remote: Path
    resources: ExitStack

    def configure(self, name: str, value: str | None) -> None:
        """Set an option of the remote; None removes it."""
        self.project.git("-C", str(self.remote), "config", *((name, value) if value else ("--unset", name)))

    def http(self, fault: int | str | None) -> GitServer:
        """Serve the remote over HTTP, with a fault."""
        self.configure("http.receivepack", "true")
        server = self.resources.enter_context(serving(self.remote.parent))
        server.fault = fault
        self.project.git("remote", "set-url", "origin", f"{server.url}/{self.remote.name}")
        return server

    def refs(self) -> dict[str, str]:
        """The references of the remote."""
        listed = self.project.git("-C", str(self.remote), "for-each-ref", "--format=%(refname) %(objectname)")
        return dict(line.split() for line in listed.splitlines())

    def waiting(self) -> list[str]:
        """The branches with commits that were not pushed."""
        return self.project.git("for-each-ref", "--format=%(refname:short)", "refs/heads/unpushed/").split()


def record(project: Project, run: str, **extra: str) -> dict[str, Any]:
    """Record a run of a deployment; the variables are added to its environment."""
    file = project.folder / "runs" / run / "run.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"run": run, "revision": project.git("rev-parse", "HEAD"), "stages": []}))
    done = project.run("perennial", "record", run, "--json", **extra)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout)
