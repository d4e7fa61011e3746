"""The page that shows one image at a time and takes its label, and its server on this machine."""

import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response

from perennial.base.errors import ConfigError, DataError
from perennial.data.datasets.readers import labelled
from perennial.data.images import png
from perennial.live.label import queue
from perennial.live.label.answers import Answers, Taken
from perennial.live.label.queue import Queue
from perennial.live.serving import web
from perennial.live.serving.web import LOOPBACK, Origins

SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
ORIGINS = Origins(loopback=True)
MOST_BYTES = 1 << 16  # of a request


class Labelling:
    """What the page shows, and what it writes."""

    def __init__(
        self, found: Queue, answers: Answers, classes: Sequence[str], who: str, none: str = "", *,
        several: bool = False,
    ) -> None:  # fmt: skip
        self.queue, self.answers, self.classes, self.who, self.none = found, answers, classes, who, none
        self.several = several  # labels an image
        if several and none:
            raise ConfigError("--none-as is for one label an image; with several, none of these is an answer")
        self._images = {each.sha256: each for each in found.images}

    def state(self) -> dict[str, Any]:
        """What the page needs."""
        left = queue.left(self.queue.images, self.answers.labels())
        return {
            "classes": self.classes,
            "several": self.several,
            "who": self.who,
            "total": len(self._images),
            "left": [each.sha256 for each in left],
            "next": self.answers.next_step,
        }

    def answer(self, sha256: str, given: Any) -> dict[str, Any]:
        """Write a label, None being none of the classes; of several labels, a list."""
        if sha256 not in self._images:
            raise DataError("this image is not in the queue; reload the page")
        if isinstance(given, list) != self.several:
            raise DataError("the page is of another task; reload it")
        names = given if self.several else [] if given is None else [given]
        if strange := [name for name in names if name not in self.classes]:
            raise DataError(f"there is no class {strange[0]!r}; reload the page")
        name = labelled.cell(names) if self.several else names[0] if names else self.none
        return {"time": self.answers.add(self._images[sha256], name, self.who).time}


def build(labelling: Labelling) -> FastAPI:
    """The application; it answers only requests that name this machine, from its own page."""
    app = FastAPI(openapi_url=None)
    _add_guards(app)
    _add_endpoints(app, labelling)
    return app


def _add_guards(app: FastAPI) -> None:
    @app.middleware("http")
    async def guard(request: Request, call_next: Any) -> Response:
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname
        if host not in LOOPBACK or ORIGINS.refuses(request.method, request.headers):
            response = web.as_json({"error": "this address is for the page of `perennial label` only"}, 403)
        else:
            response = await call_next(request)
        response.headers.update({name: value for name, value in SAFE.items() if name not in response.headers})
        return response

    @app.exception_handler(Taken)
    async def taken(_: Request, error: Exception) -> Response:
        return web.as_json({"error": str(error)}, 409)

    @app.exception_handler(DataError)
    async def refused(_: Request, error: Exception) -> Response:
        return web.as_json({"error": str(error)}, 400)


def _add_endpoints(app: FastAPI, labelling: Labelling) -> None:
    @app.get("/")
    def page() -> Response:
        return web.page(Path(__file__).parent, images="'self'", labelling=labelling)

    @app.get("/queue")
    def state() -> Response:
        return web.as_json(labelling.state())

    @app.get("/images/{sha256}")
    def image(sha256: str) -> Response:
        known = sha256 in {each.sha256 for each in labelling.queue.images}
        content = labelling.answers.shown(sha256) if known else None
        if content is None:
            return web.as_json({"error": "there is no such image"}, 404)
        kind = "image/png" if content.startswith(png.SIGNATURE) else "image/jpeg"
        kept = {"Cache-Control": "private, max-age=3600, immutable"}  # so that the next one is there at once
        return Response(content, media_type=kind, headers=kept)

    @app.post("/answers")
    async def answer(request: Request) -> Response:
        body = await _body(request)
        return web.as_json(labelling.answer(str(body.get("sha256")), body.get("class")))

    @app.post("/undo")
    async def undo(request: Request) -> Response:
        body = await _body(request)
        labelling.answers.undo(str(body.get("sha256")), str(body.get("time")))
        return web.as_json({})


async def _body(request: Request) -> dict[str, Any]:
    content = b""
    async for block in request.stream():
        content += block
        if len(content) > MOST_BYTES:
            raise DataError("the request is too large")
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise DataError(f"the request is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise DataError("the request is no JSON object")
    return found


def listen(port: int) -> socket.socket:
    """Open a listening socket on the loopback address; port 0 means any free one."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"cannot listen on port {port}: {reason}; choose another with --port") from error


def serve(labelling: Labelling, listener: socket.socket) -> None:
    """Show the page until SIGTERM or SIGINT."""
    server = _Uvicorn(
        uvicorn.Config(build(labelling), log_config=None, access_log=False, server_header=False, lifespan="off",
                       log_level="error", timeout_graceful_shutdown=2)
    )  # fmt: skip
    server.run([listener])


class _Uvicorn(uvicorn.Server):
    """Uvicorn whose signals end it, and are not raised again."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
