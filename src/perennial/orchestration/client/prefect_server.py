"""A client of Prefect's API: read a run, log to it, end it as failed, and send any other request.

It does not import Prefect, which takes seconds; a flow runs with the Prefect version of its own revision.
"""

import logging
import os
import re
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from perennial.base import limits
from perennial.base.errors import ConfigError, redacted
from perennial.base.retries import PREFECT_PAUSES_S
from perennial.orchestration.client import responses, settings
from perennial.orchestration.client.responses import BROKEN, ServerAway, ServerRefused, WrongServer

CLOCK_S = 60.0  # a run counts as dead 80 s after its last heartbeat
FIRST_S = 15.0  # for the first answer, which needs no database
REDIRECTS = 5
RAISED = re.compile(r"(?:Flow|Task) run encountered an exception:? (?:[A-Z]\w+: )?")  # before our words
MAJOR = "3"  # version of Prefect


class PrefectServer:
    """The API of a Prefect server; requests are retried if the network or the server fails."""

    def __init__(
        self, client: httpx.Client, pauses: Sequence[float] = PREFECT_PAUSES_S, *, csrf: bool = True
    ) -> None:
        self.client, self.pauses, self._csrf = client, pauses, csrf
        self._name = str(uuid.uuid4())  # of this client, which its CSRF token is for
        self._reached = False
        self._ahead_s = 0.0  # the clock of this machine, of the server's

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.client.close()

    @property
    def url(self) -> str:
        """The address that answers, which may be the one that PREFECT_API_URL redirects to."""
        return str(self.client.base_url).rstrip("/")

    @property
    def clock(self) -> str | None:
        """What is wrong if the clock of this machine differs from that of the server's last answer."""
        if abs(self._ahead_s) <= CLOCK_S:
            return None
        which = "ahead of" if self._ahead_s > 0 else "behind"
        return (
            f"the clock of this machine is {abs(self._ahead_s):,.0f} s {which} that of {redacted(self.url)}: "
            "runs start at other times, and those at work may count as dead; set the clock that is wrong"
        )

    def flow_run(self, run: str) -> dict[str, Any]:
        """Read a flow run: `parameters`, including those of its deployment, and more."""
        found: dict[str, Any] = self.request("GET", f"flow_runs/{run}")
        return found

    def states(self, run: str) -> list[dict[str, Any]]:
        """Read the states of a flow run, oldest first, each with `type`, `message` and more."""
        found: list[dict[str, Any]] = self.request("GET", f"flow_run_states/?flow_run_id={run}")
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
        line = {
            "name": "perennial",
            "level": level,
            "message": message,
            "timestamp": now,
            "flow_run_id": run,
        }
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
                if answer.status_code < BROKEN or answer.status_code == httpx.codes.NOT_IMPLEMENTED:
                    raise ServerRefused(where, answer.status_code, reason, self.url)
            if pause is not None:
                time.sleep(pause)
        raise ServerAway(where, problem, first=not self._reached)

    def _send(self, method: str, path: str, body: object, limit_s: float | None) -> httpx.Response:
        """Send a request, with a CSRF token where the server wants one."""
        answer = self._follow(method, path, body, limit_s)
        if self._csrf and responses.wants_csrf(answer):
            token = responses.parsed(
                self._follow("GET", f"csrf-token?client={self._name}", None, None), self.url
            )
            self.client.headers.update(
                {"Prefect-Csrf-Token": token["token"], "Prefect-Csrf-Client": self._name}
            )
            answer = self._follow(method, path, body, limit_s)
        return answer

    def _follow(self, method: str, path: str, body: object, limit_s: float | None) -> httpx.Response:
        """Send a request; where the API is elsewhere, send it there with the same method, and all later ones.

        Browsers, and httpx, would turn a POST into a GET.
        """
        address: str | httpx.URL = path
        limit = httpx.USE_CLIENT_DEFAULT if limit_s is None else httpx.Timeout(limit_s)
        for _ in range(REDIRECTS):
            answer = self.client.request(method, address, json=body, timeout=limit)
            self._ahead_s = _ahead_s(answer)
            if not answer.has_redirect_location:
                return answer
            address = responses.moved(answer, path, self.url, secret="Authorization" in self.client.headers)
            if str(address).endswith(f"/{path}"):
                self.client.base_url = str(address).removesuffix(path)
        raise WrongServer(
            f"{settings.URL}: {redacted(self.url)} redirects in a circle; correct it, or the proxy"
        )


def _ahead_s(answer: httpx.Response) -> float:
    """By how much the clock of this machine is ahead of that of an answer; 0 if it does not say."""
    dates = answer.headers.get_list("date")
    with suppress(TypeError, ValueError):
        return time.time() - parsedate_to_datetime(dates[-1] if dates else "").timestamp()
    return 0.0


def connect(
    environment: Mapping[str, str] = os.environ, pauses: Sequence[float] = PREFECT_PAUSES_S
) -> PrefectServer:
    """Connect to the server of Prefect's settings."""
    found = settings.read(environment)
    if not found.url:
        raise responses.NoServer
    base = f"{found.url.rstrip('/')}/"
    with responses.proxies_named(urlsplit(found.url)):
        client = httpx.Client(
            base_url=base, headers=dict(found.headers), timeout=found.timeout_s, verify=found.verify
        )
    return PrefectServer(client, pauses, csrf=found.csrf)


def said(state: Mapping[str, Any]) -> str | None:
    """The message of a state without Prefect's words about an exception; None if it has none."""
    return RAISED.sub("", state["message"] or "") or None


def require_usable() -> None:
    """End this process with exit code 2 and one line if Prefect's import, or its client, would fail."""
    try:
        found = settings.read()
        with responses.proxies_named(urlsplit(found.url or settings.EXAMPLE)):
            httpx.Client(verify=False).close()  # noqa: S501 - it sends nothing
    except ConfigError as error:
        sys.stderr.write(f"{error}; nothing was started\n")
        raise SystemExit(error.exit_code) from None
