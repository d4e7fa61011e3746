"""Artifacts and alerts of a run on its server. One that it does not take is no failure of the run."""

from collections.abc import Callable
from typing import Any, Literal

from perennial.base.errors import redacted
from perennial.orchestration.engine import this_run

TIMEOUT_S = 60.0
Alert = Literal["promoted", "rejected", "retraining-started", "approval-wanted", "approval-expired", "drift"]
_missing: list[str] = []  # of this process


def write_text(text: str, key: str, description: str) -> None:
    """Write an artifact of Markdown, or log that it is missing."""
    if this_run.has_server():
        from prefect.artifacts import create_markdown_artifact

        _tried(key, lambda: create_markdown_artifact(redacted(text), key=key, description=description))


def write_image(address: str, key: str, description: str) -> None:
    """Write an artifact of an image, or log that it is missing."""
    if this_run.has_server():
        from prefect.artifacts import create_image_artifact

        _tried(key, lambda: create_image_artifact(address, key=key, description=description))


def alert(kind: Alert, words: str) -> None:
    """Emit an event about this run of a deployment, which infra/automations.yaml turns into an alert."""
    if this_run.is_deployed():
        from prefect.events import emit_event

        run = f"prefect.flow-run.{this_run.run_id()}"
        resource = {"prefect.resource.id": run, "prefect.resource.name": this_run.run_name()}
        emit_event(f"perennial.{kind}", resource=resource, payload={"words": words})


def _tried(key: str, create: Callable[[], Any]) -> None:
    """Create an artifact, with the retries of Prefect's client; wait once for a server that does not answer."""
    import httpx
    from prefect.settings import PREFECT_API_REQUEST_TIMEOUT, temporary_settings

    from perennial.orchestration.server.server_runs import await_server

    log = this_run.log()
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
