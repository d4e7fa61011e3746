"""A test alert: the server calls the webhook that `perennial deploy` saved, and records what became of it."""

import re
import time
from collections.abc import Collection, Mapping
from typing import Any

from perennial.base import limits
from perennial.base.errors import ConfigError, PerennialError
from perennial.orchestration.client.prefect_server import PrefectServer

EVENT = "perennial.test-alert"
AUTOMATION = "perennial: test alert"  # of infra/automations.yaml
POLL_S = 1.0
WAIT_S = 120.0  # a server writes its events down every few seconds, a busy one later
ADDRESS = re.compile(r"(https?://[^/\s'\"]*)/[^\s'\"]+")  # of a webhook, whose path is its password
INSTALL = "`PERENNIAL_NOTIFY_URL=https://... perennial deploy` installs alerts"


def send_alert(server: PrefectServer, text: str) -> int:
    """Make the server send a test alert; returns the webhook's status code."""
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
        reason = ADDRESS.sub(r"\1/***", str(done.get("reason")))
        raise PerennialError(f"the server could not call the webhook: {reason}; {INSTALL}")
    if status >= 400:
        answer = ADDRESS.sub(r"\1/***", str(done.get("response_body")))
        raise PerennialError(f"the webhook answered {status}: {answer}; {INSTALL}")
    return int(status)


def _outcome(server: PrefectServer, automation: str, before: Collection[str]) -> Mapping[str, Any]:
    """The server's record of this webhook call: a new one, whatever the clocks show."""
    limit_s = limits.scaled(WAIT_S)
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if new := [each for each in _calls(server, automation) if each["id"] not in before]:
            return dict(new[0]["payload"])
        time.sleep(POLL_S)
    raise PerennialError(
        f"the server has not recorded within {limit_s:.0f} s what became of the alert; look at its automation "
        f"`{AUTOMATION}`"
    )


def _calls(server: PrefectServer, automation: str) -> list[dict[str, Any]]:
    """The newest events about calls of the webhook by an automation."""
    wanted = {
        "event": {"name": ["prefect.automation.action.executed", "prefect.automation.action.failed"]},
        "resource": {"id": [f"prefect.automation.{automation}"]},
    }
    return list(server.request("POST", "events/filter", {"filter": wanted})["events"])
