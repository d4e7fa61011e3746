"""Artifacts of runs. A server that does not take one is no failure of the run, which is recorded in git."""

from collections.abc import Callable
from typing import Any

import httpx
from prefect import get_run_logger
from prefect.artifacts import create_image_artifact, create_markdown_artifact
from prefect.settings import PREFECT_API_REQUEST_TIMEOUT, temporary_settings

from perennial.base.errors import redacted
from perennial.orchestration.server.server_runs import await_server

TIMEOUT_S = 60.0
_missing: list[str] = []  # of this process


def write_text(text: str, key: str, description: str) -> None:
    """Write an artifact of Markdown, or log that it is missing."""
    _tried(key, lambda: create_markdown_artifact(redacted(text), key=key, description=description))


def write_image(address: str, key: str, description: str) -> None:
    """Write an artifact of an image, or log that it is missing."""
    _tried(key, lambda: create_image_artifact(address, key=key, description=description))


def _tried(key: str, create: Callable[[], Any]) -> None:
    """Create an artifact, with the retries of Prefect's client; wait once for a server that does not answer."""
    log = get_run_logger()
    try:
        with temporary_settings({PREFECT_API_REQUEST_TIMEOUT: TIMEOUT_S}):
            try:
                create()
            except httpx.TransportError:
                if _missing:
                    raise
                await_server(log)
                create()
    except httpx.HTTPError as error:
        _missing.append(key)
        reason = " ".join(str(error).split()) or type(error).__name__
        log.warning("artifact missing: %s: %s", key, reason)
