"""A Prefect server over HTTP: read a run, log to it, end it as failed, and let the server send a test alert.

It does not import Prefect, which takes seconds; a flow runs with the Prefect version of its own revision.
"""

import base64
import json
import logging
import os
import ssl
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx

from perennial.errors import ConfigError, PerennialError, redacted

PAUSES_S = (1, 2, 4, 8, 16)  # delay before each retry; a restarting server answers within their sum
TIMEOUT_S = 60
BROKEN = 500  # status codes from here on may be temporary
DETAIL = 500  # characters of a message
EVENT = "perennial.test-alert"
AUTOMATION = "perennial: test alert"  # of infra/automations.yaml
ALERT = "This is a test. Alerts of perennial arrive here."
POLL_S = 1.0
WAIT_S = 120.0  # a server writes its events down every few seconds, a busy one later
REFUSED = 400  # status codes from here on
INSTALL = "`PERENNIAL_NOTIFY_URL=https://... make deploy` installs alerts"


@dataclass(frozen=True)
class PrefectServer:
    """The API of a Prefect server; requests are retried if the network or the server fails."""

    client: httpx.Client
    pauses: Sequence[float] = PAUSES_S

    def flow_run(self, run: str) -> dict[str, Any]:
        """Read a flow run: `parameters`, including those of its deployment, and more.

        Raises:
            PerennialError: the server does not answer, or does not know the run.
        """
        found: dict[str, Any] = self.request("GET", f"flow_runs/{run}")
        return found

    def states(self, run: str) -> list[dict[str, Any]]:
        """Read the states of a flow run, oldest first, each with `type`, `message` and more.

        Raises:
            PerennialError: the server does not answer or refuses.
        """
        found: list[dict[str, Any]] = self.request("GET", f"flow_run_states/?flow_run_id={run}")
        return sorted(found, key=lambda state: datetime.fromisoformat(state["timestamp"]))

    def fail(self, run: str, message: str) -> None:
        """End a run as Failed with a message, which is also logged.

        Raises:
            PerennialError: the server does not answer or refuses.
        """
        state = {"type": "FAILED", "name": "Failed", "message": message}
        self.request("POST", f"flow_runs/{run}/set_state", {"state": state})
        self.log(run, message, logging.ERROR)

    def emit(self, event: str, resource: str, *, identity: str = "", **payload: str) -> None:
        """Emit an event about a resource, by default with a new id.

        Raises:
            PerennialError: the server does not answer or refuses.
        """
        content = {
            "id": identity or str(uuid.uuid4()),
            "occurred": datetime.now(UTC).isoformat(),
            "event": event,
            "resource": {"prefect.resource.id": resource},
            "payload": payload,
        }
        self.request("POST", "events", [content])

    def log(self, run: str, message: str, level: int = logging.INFO) -> None:
        """Add a line to the log of a run.

        Raises:
            PerennialError: the server does not answer or refuses.
        """
        now = datetime.now(UTC).isoformat()
        line = {
            "name": "perennial",
            "level": level,
            "message": message,
            "timestamp": now,
            "flow_run_id": run,
        }
        self.request("POST", "logs/", [line])

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Send a request and return the JSON response.

        Raises:
            ServerRefused: the server refuses the request.
            PerennialError: the server does not answer.
        """
        where = redacted(f"{self.client.base_url}{path}")
        for pause in (*self.pauses, None):
            try:
                answer = self.client.request(method, path, json=body)
            except httpx.TransportError as error:
                problem = f"{type(error).__name__}: {error}"
            else:
                if answer.is_success:
                    return answer.json() if answer.content else None
                problem = f"{answer.status_code}: {_detail(answer)}"
                if answer.status_code < BROKEN:
                    raise ServerRefused(where, answer.status_code, _detail(answer))
            if pause is not None:
                time.sleep(pause)
        raise PerennialError(f"the Prefect server does not answer at {where}: {problem}")


class ServerRefused(PerennialError):
    """The server refuses a request; a retry would not help."""

    def __init__(self, where: str, status: int, reason: str) -> None:
        hint = "; look at PREFECT_API_AUTH_STRING or PREFECT_API_KEY" if status in {401, 403} else ""
        super().__init__(f"the Prefect server refuses {where} ({status}): {reason}{hint}")
        self.status, self.reason = status, reason


def _detail(answer: httpx.Response) -> str:
    """The server's reason for refusing a request."""
    try:
        detail = answer.json()["detail"]
    except (ValueError, LookupError, TypeError):
        detail = answer.text
    return " ".join(str(detail).split())[:DETAIL]


def connect(environment: Mapping[str, str] = os.environ, pauses: Sequence[float] = PAUSES_S) -> PrefectServer:
    """Connect to the server that Prefect's own variables name.

    Raises:
        ConfigError: PREFECT_API_URL is not set.
    """
    url = environment.get("PREFECT_API_URL")
    if not url:
        raise ConfigError(
            "PREFECT_API_URL is not set; it names the server, such as http://127.0.0.1:4200/api. Without a "
            "server, `make run` runs the pipeline, and `dvc exp run -S train.epochs=2` tries a value"
        )
    headers = dict(json.loads(environment.get("PREFECT_CLIENT_CUSTOM_HEADERS") or "{}"))
    if user := environment.get("PREFECT_API_AUTH_STRING"):
        headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
    elif key := environment.get("PREFECT_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    base = f"{url.rstrip('/')}/"
    verify = _verification(environment) if base.startswith("https:") else False
    return PrefectServer(httpx.Client(base_url=base, headers=headers, timeout=TIMEOUT_S, verify=verify), pauses)


def _verification(environment: Mapping[str, str]) -> ssl.SSLContext | bool:
    if environment.get("PREFECT_API_TLS_INSECURE_SKIP_VERIFY", "").lower() in {"1", "true"}:
        return False
    own = environment.get("PREFECT_API_SSL_CERT_FILE")
    return ssl.create_default_context(cafile=own) if own else True


def send_alert(server: PrefectServer, text: str) -> int:
    """Make the server send a test alert; returns the webhook's status code.

    Raises:
        ConfigError: the server has no alerts, or a person has disabled this one.
        PerennialError: the webhook cannot be reached or refuses the alert, or the server records no result in
            time.
    """
    wanted = {"automations": {"name": {"any_": [AUTOMATION]}}}
    installed = next(iter(server.request("POST", "automations/filter", wanted)), None)
    if installed is None:
        raise ConfigError(f"the server sends no alerts; {INSTALL}")
    if not installed["enabled"]:
        raise ConfigError(f"the automation `{AUTOMATION}` is disabled on the server; enable it in the UI")
    before = {each["id"] for each in _calls(server, installed["id"])}
    server.emit(EVENT, EVENT, words=text)
    done = _outcome(server, installed["id"], before)
    status = done.get("status_code")
    if status is None:
        raise PerennialError(f"the server could not call the webhook: {done.get('reason')}; {INSTALL}")
    if status >= REFUSED:
        raise PerennialError(f"the webhook answered {status}: {done.get('response_body')}; {INSTALL}")
    return int(status)


def _outcome(server: PrefectServer, automation: str, before: Collection[str]) -> Mapping[str, Any]:
    """The server's record of this webhook call: a new one, whatever the clocks show."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if new := [each for each in _calls(server, automation) if each["id"] not in before]:
            payload: dict[str, Any] = new[0]["payload"]
            return payload
        time.sleep(POLL_S)
    raise PerennialError(
        f"the server has not recorded within {WAIT_S:.0f} s what became of the alert; look at its automation "
        f"`{AUTOMATION}`"
    )


def _calls(server: PrefectServer, automation: str) -> list[dict[str, Any]]:
    """The newest events about calls of the webhook by an automation."""
    wanted = {
        "event": {"name": ["prefect.automation.action.executed", "prefect.automation.action.failed"]},
        "resource": {"id": [f"prefect.automation.{automation}"]},
    }
    events: list[dict[str, Any]] = server.request("POST", "events/filter", {"filter": wanted})["events"]
    return events
