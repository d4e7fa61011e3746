"""A client of Prefect's API: read a run, log to it, end it as failed, and send any other request.

It does not import Prefect, which takes seconds; a flow runs with the Prefect version of its own revision.
"""

import logging
import math
import os
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Self

import httpx

from perennial.base import limits, retries
from perennial.base.errors import redacted
from perennial.orchestration.client import responses, settings
from perennial.orchestration.client.responses import ServerAway, ServerRefused, WrongServer

FIRST_S = 15.0  # for the first answer, which needs no database
RAISED = re.compile(r"(?:Flow|Task) run encountered an exception:? (?:[A-Z]\w+: )?")  # before our words
MAJOR = "3"  # version of Prefect


class PrefectServer:
    """The API of a Prefect server; requests are retried if the network or the server fails."""

    def __init__(self, client: httpx.Client, pauses: Sequence[float], *, csrf: bool, total_s: float) -> None:
        self.client, self.pauses, self._csrf = client, pauses, csrf
        self._end = time.monotonic() + limits.scaled(total_s)
        self._name = str(uuid.uuid4())  # of this client, which its CSRF token is for
        self._reached = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.client.close()

    @property
    def url(self) -> str:
        """Its address."""
        return str(self.client.base_url).rstrip("/")

    def flow_run(self, run: str) -> dict[str, Any]:
        """Read a flow run: `parameters`, including those of its deployment, and more."""
        return dict(self.request("GET", f"flow_runs/{run}"))

    def states(self, run: str) -> list[dict[str, Any]]:
        """Read the states of a flow run, oldest first, each with `type`, `message` and more."""
        found = self.request("GET", f"flow_run_states/?flow_run_id={run}")
        return sorted(found, key=lambda state: datetime.fromisoformat(state["timestamp"]))

    def fail(self, run: str, message: str) -> None:
        """End a run as Failed with a message, which is also logged."""
        state = {"type": "FAILED", "name": "Failed", "message": message}
        self.request("POST", f"flow_runs/{run}/set_state", {"state": state})
        self.log(run, message, logging.ERROR)

    def emit(self, event: str, resource: str, *, identity: str = "", **payload: str) -> None:
        """Emit an event about a resource, by default with a new id."""
        content = {
            "id": identity or str(uuid.uuid4()),
            "occurred": datetime.now(UTC).isoformat(),
            "event": event,
            "resource": {"prefect.resource.id": resource},
            "payload": payload,
        }
        self.request("POST", "events", [content])

    def log(self, run: str, message: str, level: int = logging.INFO) -> None:
        """Add a line to the log of a run."""
        now = datetime.now(UTC).isoformat()
        line = {"name": "perennial", "level": level, "message": message, "timestamp": now, "flow_run_id": run}
        self.request("POST", "logs/", [line])

    def reach(self) -> None:
        """Check that a Prefect server of the right version answers, once."""
        if self._reached:
            return
        version = None
        try:
            version = self._request("GET", "admin/version", None, limits.scaled(FIRST_S))
        except ServerRefused as error:  # of an old server or a proxy: the request itself will say more
            if error.status in responses.REFUSED:
                raise
        if isinstance(version, str) and version.partition(".")[0] not in {MAJOR, "0"}:
            raise WrongServer(
                f"the server {redacted(self.url)} runs Prefect {version}, and this is a client of Prefect "
                f"{MAJOR}; start a server with `prefect server start` of this environment, or correct "
                f"{settings.URL}"
            )
        self._reached = True

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Send a request and return the JSON response."""
        self.reach()
        return self._request(method, path, body)

    def _request(self, method: str, path: str, body: object, limit_s: float | None = None) -> Any:
        where = redacted(f"{self.client.base_url}{path}")
        for pause in (*self.pauses, None):
            try:
                answer = self._send(method, path, body, limit_s)
            except httpx.TransportError as error:
                responses.require_fitting(error, self.url)
                problem = responses.described(error, self.url)
            else:
                if answer.is_success:
                    return responses.parsed(answer, self.url)
                reason = responses.detail(answer)
                problem = f"{answer.status_code}: {reason}"
                if not retries.is_temporary(answer.status_code):
                    raise ServerRefused(where, answer.status_code, reason, self.url)
            if pause is not None:
                time.sleep(pause)
        raise ServerAway(where, problem, first=not self._reached)

    def _send(self, method: str, path: str, body: object, limit_s: float | None) -> httpx.Response:
        """Send a request, with a CSRF token where the server wants one."""
        answer = self._ask(method, path, body, limit_s)
        if self._csrf and answer.status_code == responses.FORBIDDEN and "CSRF" in answer.text:
            token = responses.parsed(self._ask("GET", f"csrf-token?client={self._name}", None), self.url)
            self.client.headers.update(
                {"Prefect-Csrf-Token": token["token"], "Prefect-Csrf-Client": self._name}
            )
            answer = self._ask(method, path, body, limit_s)
        return answer

    def _ask(self, method: str, path: str, body: object, limit_s: float | None = None) -> httpx.Response:
        left_s = max(self._end - time.monotonic(), 0.01)
        limit = min(filter(None, (limit_s, self.client.timeout.read, left_s)))
        answer = self.client.request(method, path, json=body, timeout=limit)
        if answer.has_redirect_location:
            raise responses.redirected(answer, path, self.url)
        return answer


def connect(
    environment: Mapping[str, str] = os.environ,
    pauses: Sequence[float] = retries.PREFECT_PAUSES_S,
    total_s: float = math.inf,
) -> PrefectServer:
    """Connect to the server of Prefect's settings; `total_s`: for all its answers."""
    found = settings.read(environment)
    if not found.url:
        raise responses.NoServer
    base = f"{found.url.rstrip('/')}/"
    try:
        client = httpx.Client(
            base_url=base, headers=dict(found.headers), timeout=found.timeout_s, verify=found.verify
        )
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        raise responses.unusable_proxy(error, found.url) from error
    return PrefectServer(client, pauses, csrf=found.csrf, total_s=total_s)


def said(state: Mapping[str, Any]) -> str | None:
    """The message of a state without Prefect's words about an exception; None if it has none."""
    return RAISED.sub("", state["message"] or "") or None
