"""What may be wrong with a Prefect server that answers, each in one line with the remedy."""

import base64
import os
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote

import httpx

from perennial.base.errors import PerennialError, redacted
from perennial.orchestration.client.prefect_server import PrefectServer

HEADERS = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "prefect",
}
TIMEOUT_S = 10.0


def problems(server: PrefectServer, starting: int) -> Iterator[str]:
    """Yield what limits the workers of a server; `starting`: the number of those that are about to start."""
    if found := websockets(server):
        yield found
    with suppress(PerennialError):  # it refuses the question; the workers will say what it refuses
        if found := several_workers(server, starting):
            yield found


def websockets(server: PrefectServer) -> str | None:
    """Say what is wrong if no WebSocket reaches the server, as behind some proxies."""
    key = base64.b64encode(os.urandom(16)).decode()
    try:
        with server.client.stream(
            "GET", "events/in", headers={**HEADERS, "Sec-WebSocket-Key": key}, timeout=TIMEOUT_S
        ) as answer:
            if answer.status_code == httpx.codes.SWITCHING_PROTOCOLS:
                return None
            said = f"it answers {answer.status_code}"
    except httpx.HTTPError as error:
        said = str(error) or type(error).__name__
    return (
        f"WebSockets do not reach {redacted(server.url)} ({said}). Runs send their heartbeats over HTTP and go "
        "on, but the UI and workers hear of events late. Let the proxy pass `Upgrade: websocket` for /api"
    )


def several_workers(server: PrefectServer, starting: int) -> str | None:
    """Name the database that several workers need, unless the server says that it has it."""
    count = starting + sum(
        each["status"] == "ONLINE"
        for pool in server.request("POST", "work_pools/filter", {})
        for each in server.request("POST", f"work_pools/{quote(pool['name'], safe='')}/workers/filter", {})
    )
    if count < 2 or "postgresql" in _driver(server):
        return None
    return (
        f"{count} workers will use {redacted(server.url)}. If its database is SQLite, Prefect's default, their "
        "requests wait for each other (`database is locked`). With PostgreSQL, set "
        "PREFECT_SERVER_DATABASE_DRIVER=postgresql+asyncpg beside PREFECT_SERVER_DATABASE_CONNECTION_URL of "
        "the server: its API shows only the first"
    )


def _driver(server: PrefectServer) -> str:
    """The driver of the server's database, where a setting of its own names it; the address is masked."""
    try:
        found = server.request("GET", "admin/settings")
        return str(found["server"]["database"]["driver"])
    except (PerennialError, LookupError, TypeError):
        return ""
