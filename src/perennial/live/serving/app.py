"""The HTTP endpoints: TensorFlow Serving's REST API, health, metrics, and the page."""

import asyncio
import io
import time
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from perennial.base.errors import printable
from perennial.live.capture.keeper import Keeper, Served
from perennial.live.serving import requests, web
from perennial.live.serving.batching import Batcher
from perennial.live.serving.prometheus import ServingMetrics
from perennial.live.serving.requests import RequestRefused, ServingLimits, Verb
from perennial.live.serving.served_version import LoadedVersion
from perennial.live.serving.shadow import Shadow
from perennial.live.serving.web import Origins

SMALL_BYTES = 1 << 16  # larger bodies are parsed in a thread
DISCARDED = 8  # times the limit: how much of a rejected body is read, so that the client receives the reason
RETRY_S = 1
LEFT = 499  # nginx's code for a client that closed its connection, in the metrics
HEALTH = "/health"
PROBED = ["GET", "HEAD"]  # load balancers may send HEAD
VERSION_HEADER = "Model-Version"
SAFE = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class Service:
    """The shared state of the endpoints.

    `current` returns the served version, None before the first; `rejected` why the gate rejected it.
    """

    def __init__(
        self,
        name: str,
        limits: ServingLimits,
        current: Callable[[], LoadedVersion | None],
        rejected: Callable[[], str | None],
    ) -> None:
        self.name, self.limits, self.current, self.rejected = name, limits, current, rejected
        self.observers: list[Keeper | Shadow] = []  # of answered images
        self.shadow: Shadow | None = None
        self.metrics = ServingMetrics(lambda: self.batcher.waiting)
        self.batcher = Batcher(limits, self.metrics.batches.observe)
        # One: parsing holds Python's lock, and two at once would keep `/health` waiting for longer.
        self._thread = ThreadPoolExecutor(1, "json")
        self._held = 0  # bytes of the bodies of pending requests

    def close(self) -> bool:
        """Stop the threads; return False if one is still running the model after a second."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        return self.batcher.close()

    def version(self, name: str, number: str | None = None) -> LoadedVersion:
        """Return the version that a URL path names."""
        if name != self.name:
            raise RequestRefused(404, f"there is no model {name!r}; this server has {self.name!r}")
        if (version := self.current()) is None:
            raise RequestRefused(503, "the model is not loaded yet; try again")
        if number not in {None, version.number}:
            raise RequestRefused(404, f"version {number} is not served; version {version.number} is")
        return version

    async def classes(self, request: Request, verb: Verb, name: str, number: str | None) -> Response:
        """Answer a request to classify images."""
        self.version(name, number)  # before the body is read
        if (encoding := request.headers.get("content-encoding", "identity")) != "identity":
            raise RequestRefused(415, f"the body is compressed ({printable(encoding)}); send it as it is")
        if request.headers.get("content-type", "").lower().startswith("multipart/"):
            raise RequestRefused(415, "the body is a form; send the image file itself as the body, or JSON")
        body = io.BytesIO()
        try:
            await self._read(request, body)
            images, form = await self._parsed(body.getvalue(), verb)
            version = self.version(name, number)  # the version may have changed while the body was received
            outputs = await asyncio.wrap_future(self.batcher.submit(version, images))
        except asyncio.CancelledError:  # the drain took too long
            raise RequestRefused(503, "the server is shutting down; try another one") from None
        finally:
            self._held -= body.tell()
        names, answers = version.classifier.classes, version.classifier.answers(outputs)
        self.metrics.predicted(outputs, names, answers)
        content = requests.answer(form, outputs, names, version.number, answers)
        for observer in self.observers:
            observer.offer(Served(version.number, version.classifier, images, outputs))
        return Response(content, media_type="application/json", headers={VERSION_HEADER: version.number})

    async def _parsed(self, body: bytes, verb: Verb) -> requests.ImageRequest:
        """Parse a body: here, or in a thread if it is large."""
        if file := requests.of_file(self.limits, body, verb):
            return file
        parse = partial(requests.parse, self.limits, body, verb)
        if len(body) <= SMALL_BYTES:
            return parse()
        return await asyncio.get_running_loop().run_in_executor(self._thread, parse)

    async def _read(self, request: Request, body: io.BytesIO) -> None:
        """Read a request body, and add it to the total of held bytes."""
        most = self.limits.request_bytes
        too_large = RequestRefused(413, f"the body has more than {most} bytes; send fewer or smaller images")
        declared = request.headers.get("content-length", "")
        size = int(declared) if declared.isdecimal() and len(declared) < 20 else 0
        refused = too_large if size > most else None
        if size > most * DISCARDED:
            raise too_large
        read = 0
        try:
            async with asyncio.timeout(self.limits.body_s):
                async for chunk in request.stream():
                    read += len(chunk)
                    if read > most:
                        refused = refused or too_large
                    elif self._held + len(chunk) > self.limits.held_bytes:
                        refused = refused or RequestRefused(503, "too many concurrent requests; try again")
                    if refused is None:
                        self._held += body.write(chunk)
                    elif read > most * DISCARDED:
                        break
        except TimeoutError:
            raise RequestRefused(408, f"the body did not arrive within {self.limits.body_s:g} s") from None
        if refused:
            raise refused


def build(service: Service, is_full: Callable[[], bool], origins: Origins) -> App:
    """Build the application of a service; while `is_full`, only its health is answered."""
    app = FastAPI(title="perennial serve", openapi_url=None)
    if origins.allowed:
        app.add_middleware(
            CORSMiddleware, allow_origins=sorted(origins.allowed), allow_methods=["POST"], allow_headers=["*"]
        )
    add_models(app, service)
    add_people_and_probes(app, service)

    @app.exception_handler(RequestRefused)
    async def refused(_: Request, error: RequestRefused) -> Response:
        return _error(error.status, str(error))

    @app.exception_handler(HTTPException)
    async def failed(request: Request, error: HTTPException) -> Response:
        response = _error(error.status_code, f"{request.method} {request.url.path}: {error.detail}")
        response.headers.update(error.headers or {})  # such as Allow
        return response

    @app.exception_handler(ClientDisconnect)
    async def left(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=LEFT)  # nobody receives it

    @app.exception_handler(Exception)
    async def broken(_: Request, __: Exception) -> Response:
        return _error(500, "internal server error; the log has the reason")

    return _Counted(app, service.metrics, is_full, origins)


def add_models(app: FastAPI, service: Service) -> None:
    """Add TensorFlow Serving's endpoints: predictions, status and metadata."""
    model, version = "/v1/models/{name}", "/v1/models/{name}/versions/{number}"

    @app.post(f"{version}:predict")
    @app.post(f"{model}:predict")
    async def predict(request: Request, name: str, number: str | None = None) -> Response:
        return await service.classes(request, "predict", name, number)

    @app.post(f"{version}:classify")
    @app.post(f"{model}:classify")
    async def classify(request: Request, name: str, number: str | None = None) -> Response:
        return await service.classes(request, "classify", name, number)

    @app.get(f"{version}/metadata")
    @app.get(f"{model}/metadata")
    async def metadata(name: str, number: str | None = None) -> Response:
        served = service.version(name, number)
        return web.as_json(
            {
                "model_spec": {"name": name, "signature_name": "", "version": served.number},
                "metadata": {
                    "signature_def": {"signature_def": served.signatures},
                    "classes": served.classifier.classes,
                    "model_card": served.card,
                },
            }
        )

    @app.get(version)
    @app.get(model)
    async def status(name: str, number: str | None = None) -> Response:
        if name.endswith((":predict", ":classify")):
            raise RequestRefused(405, f"{name} takes POST, with the images in the body")
        served = service.version(name, number)
        why = service.rejected()
        message = f"the gate rejected this model: {why}" if why else ""
        state = {"state": "AVAILABLE", "status": {"error_code": "OK", "error_message": message}}
        return web.as_json({"model_version_status": [{"version": served.number, **state}]})


def add_people_and_probes(app: FastAPI, service: Service) -> None:
    """Add the page, and the endpoints for probes and metrics."""

    @app.api_route("/", methods=PROBED)
    async def page() -> Response:
        return web.page(Path(__file__).parent, images="blob:", service=service, version=service.current())

    @app.api_route(HEALTH, methods=PROBED)
    async def health() -> Response:
        return web.as_json({"status": "alive"})

    @app.api_route("/ready", methods=PROBED)
    async def ready() -> Response:
        served = service.version(service.name)
        return web.as_json({"status": "ready", "model": service.name, "version": served.number})

    @app.get("/shadow")
    async def shadow() -> Response:
        if service.shadow is None:
            raise RequestRefused(404, "no candidate in the shadow; `perennial serve --shadow PLACE` names one")
        return web.as_json(service.shadow.snapshot().document(service.shadow.failure))

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


def _error(status: int, reason: str) -> Response:
    response = web.as_json({"error": reason}, status)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers["Retry-After"] = str(RETRY_S)
    return response


class _Counted:
    """Middleware that counts and times requests, refuses too many, and adds headers to every response."""

    def __init__(
        self, app: FastAPI, metrics: ServingMetrics, is_full: Callable[[], bool], origins: Origins
    ) -> None:
        self._app, self._metrics, self._is_full, self._origins = app, metrics, is_full, origins

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                # Only names of endpoints, because each path of a client would create a new series.
                endpoint = getattr(scope.get("endpoint"), "__name__", "none")
                self._metrics.requests.labels(endpoint, str(message["status"])).inc()
                self._metrics.seconds.labels(endpoint).observe(time.perf_counter() - started)
                message["headers"] = [*message.get("headers", []), *SAFE]
            await send(message)

        if self._is_full() and scope["path"] != HEALTH:
            response = _error(503, "too many concurrent connections; try again")
            response.headers["Connection"] = "close"
            await response(scope, receive, counted)
        elif self._origins.refuses(scope["method"], Headers(scope=scope)):
            response = _error(403, "another site's page sent this; `perennial serve --allow-origin` allows one")
            response.headers["Connection"] = "close"
            await response(scope, receive, counted)
        else:
            await self._app(scope, receive, counted)
