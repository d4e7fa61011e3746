"""Prefect's temporary server, for one run on a machine without another.

Prefect imports its whole server into the process that starts one, and only then starts it, which takes most of
ten seconds on two cores. Here it starts while this process imports Prefect and checks the parameters.

Run as a program, this module is the server.
"""

import atexit
import gc
import importlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from unittest.mock import patch

import httpx
from prefect.settings import get_current_settings

from perennial.base.errors import PerennialError

HOST = "127.0.0.1"
STOP_S = 5.0  # to end in order, before it is killed
# As Prefect sets them for the server of a single process.
PREFECT = {"PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1", "PREFECT_UI_ENABLED": "0"}
# SQLite lets one connection write at a time. On a busy machine the others wait longer than Prefect lets them,
# and each that gives up prints a traceback.
PATIENCE = {"PREFECT_SERVER_DATABASE_TIMEOUT": "300", "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": "300"}
_servers: list["TemporaryServer"] = []  # of this process: none or one


class TemporaryServer:
    """A server in a process and session of its own, which ends with this process.

    Ctrl-C and `timeout` signal a whole process group. A server that ended with it could not record the last
    state of the run, for which Prefect waits minutes.
    """

    def __init__(self) -> None:
        given = get_current_settings().to_environment_variables(exclude_unset=True)
        self.is_announced = False
        # It listens from now on: the first request waits for its answer, and no other program gets the port.
        with socket.create_server((HOST, 0)) as listener:
            self.address = f"http://{HOST}:{listener.getsockname()[1]}"
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(listener.fileno())],
                env={**PATIENCE, **os.environ, **PREFECT, **given},
                stdin=subprocess.PIPE,  # closes when this process ends, even after SIGKILL
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )

    def wait(self, timeout_s: float) -> None:
        """Wait for its first answer."""
        logging.getLogger("prefect").info("Starting temporary server on %s", self.address)
        self.is_announced = True
        try:
            httpx.get(f"{self.address}/api/health", timeout=timeout_s, trust_env=False).raise_for_status()
        except httpx.HTTPError as error:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
            code = self._process.poll()
            how = f"did not answer within {timeout_s:.0f} s" if code is None else f"ended with code {code}"
            raise PerennialError(
                f"Prefect's temporary server {how} ({error}); its messages are above, and its files in "
                f"{get_current_settings().home}; nothing was run"
            ) from error

    def stop(self) -> None:
        """Let it write what it has, and end it."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def start() -> None:
    """Start a temporary server if no server is configured, and go on while it starts."""
    settings = get_current_settings()
    if settings.api.url or not settings.server.ephemeral.enabled or _servers:
        return
    _servers.append(TemporaryServer())
    atexit.register(_stop)


def use() -> None:
    """Wait for the temporary server, started or not, if no server is configured; Prefect uses it then."""
    start()
    for server in _servers:
        server.wait(get_current_settings().server.ephemeral.startup_timeout_seconds)
        atexit.register(_stop)  # once more: before functions that were registered meanwhile
        # In the settings of all threads. This server has no pages, so Prefect shows no links to them.
        with patch.dict(os.environ, {"PREFECT_API_URL": f"{server.address}/api", "PREFECT_UI_URL": ""}):
            importlib.import_module("prefect.context").refresh_global_settings_context()


def is_used() -> bool:
    """Whether the server of the current settings is the temporary one."""
    return any(get_current_settings().api.url == f"{server.address}/api" for server in _servers)


def _stop() -> None:
    while _servers:
        server = _servers.pop()
        if server.is_announced:
            logging.getLogger("prefect").info("Stopping temporary server on %s", server.address)
        server.stop()


def _serve(listener: int) -> None:
    """Be the server, on a socket that listens."""
    threading.Thread(target=_end_with_starter, daemon=True).start()
    gc.disable()  # a sixth of the time, and what is imported stays
    uvicorn = importlib.import_module("uvicorn")
    app = importlib.import_module("prefect.server.api.server").create_app()
    gc.freeze()
    gc.enable()
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    server.run(sockets=[socket.socket(fileno=listener)])
    if not server.started:
        raise SystemExit(1)


def _end_with_starter() -> None:
    """End this process once its stdin closes."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_S)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
