"""A server in a thread of the test, and what clients send to it."""

import base64
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from support.exports import list_files
from support.inference import World

from perennial.base.storage import Store
from perennial.live.capture.keeper import CaptureLimits
from perennial.live.serving.requests import ServingLimits
from perennial.live.serving.server import SWITCH_S, ModelServer, listen, url
from perennial.live.serving.shadow import Candidate
from perennial.model.export import loading
from perennial.model.export_layout import GRAPH
from perennial.model.inference.classifier import Classifier
from perennial.release.publishing import publish_to_folder
from perennial.release.publishing.publish import verified_digests
from perennial.release.publishing.version_layout import AllowedExport

NAME = "pets"
MODEL = f"v1/models/{NAME}"


LOADED: dict[tuple[object, ...], object] = {}
load = loading.load


def load_once(folder: Path) -> object:
    """The model of an export that no test changes, loaded once: it has no state."""
    found = (folder / GRAPH).stat()
    key = folder, found.st_ino, found.st_mtime_ns
    if key not in LOADED:
        LOADED[key] = load(folder)
    return LOADED[key]


@contextmanager
def serving(
    model: Path | str,
    *,
    poll_s: float = 0.1,
    decision: Path | None = None,
    keep: tuple[Store, CaptureLimits] | None = None,
    shadow: Candidate | None = None,
    **limits: float,
) -> Iterator[tuple[ModelServer, httpx.Client]]:
    """A server that is ready, and a client of it; both end with the block."""
    patch = pytest.MonkeyPatch()
    patch.setattr(loading, "load", load_once)
    listener = listen("127.0.0.1", 0)
    more = {"decision": decision, "keep": keep, "shadow": shadow}
    server = ModelServer(NAME, str(model), ServingLimits(**limits), poll_s, listener, **more)
    thread = threading.Thread(target=server.run)
    address = url(listener)
    thread.start()
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        transport = httpx.HTTPTransport(retries=3)
        with httpx.Client(base_url=address, timeout=60, transport=transport) as client:
            while client.get("ready").status_code != 200:
                assert thread.is_alive()
                time.sleep(0.01)
            yield server, client
    finally:
        server.stop()
        thread.join()
        patch.undo()
        sys.setswitchinterval(before)


def b64(content: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(content).decode()}


def publish(to: Path, world: World) -> int:
    """Publishes a copy of an export as the next version."""
    copy = to.parent / "copy"
    shutil.copytree(world.folder, copy)
    list_files(copy)
    version = publish_to_folder.add(
        to, AllowedExport(export=copy, digests=verified_digests(copy), decision={}, provenance=b"{}")
    ).version
    shutil.rmtree(copy)
    return version


def expected(classifier: Classifier, *images: bytes) -> list[list[float]]:
    """The probabilities that `perennial predict` gives."""
    return [each.probabilities.tolist() for each in classifier.predict(images)]
