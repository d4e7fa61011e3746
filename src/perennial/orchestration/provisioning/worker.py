"""A supervisor of Prefect workers that stops their runs properly; for a shell, systemd or a container.

A Prefect worker ignores the first SIGTERM while it has a run, and a second one orphans the run.
"""

import argparse
import base64
import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from urllib.parse import quote

import httpx

from perennial.base import limits, logs
from perennial.base.errors import SIGNALS, ConfigError, PerennialError, redacted
from perennial.base.processes.process import children
from perennial.base.processes.programs import Program
from perennial.orchestration.client.prefect_server import PrefectServer, connect
from perennial.orchestration.client.responses import ServerAway
from perennial.orchestration.remote_runs.status import KIND, existing

log = logging.getLogger("perennial.orchestration")
KINDS = (KIND, "kubernetes", "docker")  # of work pools; a run of the others is a container of its own
POLL_S = 0.2
QUERY_S = "2"  # between two looks for runs
SAVE_S = limits.RUNS_GRACE_S  # for runs to save their work
REPORT_S = 2.0  # for workers to report the ends of their runs, and again to end themselves
LONGEST_PAUSE_S = 60.0
HEALTHY_S = 60.0
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "prefect",
}
WEBSOCKET_S = 10.0


class SupervisedProcess:
    """A Prefect worker of one pool, or the process beside them; it is restarted when it ends."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command, self.pause_s = command, 1.0
        self.process: Program | None = None
        self.started = self.next_start = 0.0

    def keep_alive(self) -> bool:
        """Start the process if it is not running; wait longer after each short-lived start."""
        # Returns whether it has ended since the last call.
        now, ended = time.monotonic(), False
        if self.process and (code := self.process.poll()) is not None:
            ended = True
            self.process.stop()
            self.process = None
            self.pause_s = 1.0 if now - self.started > HEALTHY_S else min(2 * self.pause_s, LONGEST_PAUSE_S)
            self.next_start = now + self.pause_s
            log.warning("the worker ended (%d); starting it again in %.0f s", code, self.pause_s)
        if self.process is None and now >= self.next_start:
            self.started = now
            # The supervisor gets Ctrl-C and passes it on in order; its own end is that of its workers.
            self.process = Program(self.command, stdout=None, stderr=None, grace_s=SAVE_S)
        return ended


def main(project: Path) -> None:
    """Run workers of a project until SIGTERM, SIGINT or SIGHUP; then stop their runs, and then the workers."""
    parser = argparse.ArgumentParser(
        prog="python -m tasks.worker",
        description="Run Prefect workers. On SIGTERM or Ctrl-C the running stages save their work first; the "
        "runs resume where they stopped at the next start, or on another machine.",
    )
    parser.add_argument("--pool", action="append", required=True, help="work pool; once for each")
    pools = parser.parse_args().pool
    logs.to_stderr("perennial worker: %(message)s", logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # else a line for each request
    os.environ["PREFECT_API_URL"] = _server(pools)
    os.chdir(project)  # Prefect also loads the flow in the worker, when a run is dead
    os.environ.setdefault("PREFECT_WORKER_QUERY_SECONDS", QUERY_S)
    # The pools' command is `perennial flow-run`, and systemd's PATH does not have the programs of this Python.
    bin_folder = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join((bin_folder, os.environ.get("PATH", os.defpath)))
    # Runs whose worker was killed become children of this process, which stops them, too.
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signals: list[int] = []
    for number in SIGNALS:
        signal.signal(number, lambda number, _frame: signals.append(number))
    # Runs of several pipelines go to several workers; one that has none waits.
    start = [sys.executable, "-m", "prefect", "worker", "start", "--limit", "1", "--pool"]
    dead_runs = SupervisedProcess([sys.executable, "-m", "perennial.orchestration.server.dead_runs", *pools])
    workers = [dead_runs, *(SupervisedProcess([*start, pool]) for pool in pools)]
    explaining = Thread()
    while not signals:
        ended = [worker.keep_alive() for worker in workers]
        if any(ended) and not explaining.is_alive():  # the server may hang, and signals must not wait for it
            explaining = Thread(target=_explain, args=(pools,), daemon=True)
            explaining.start()
        _reap(workers)
        time.sleep(POLL_S)
    _stop(workers, signals)


def _server(pools: Sequence[str]) -> str:
    """The address of the server; the workers wait for one that does not answer."""
    try:
        with connect(pauses=()) as server, suppress(ServerAway):
            of = f"{', '.join(pools)} for {redacted(server.url)}"
            log.info("starting Prefect's workers of pool %s, which takes some seconds", of)
            require_usable(server, pools)
            for each in problems(server, len(pools)):
                log.warning("%s", each)
    except PerennialError as error:
        sys.stderr.write(f"perennial worker: {error}\n")
        raise SystemExit(error.exit_code) from None
    return server.url


def _explain(pools: Sequence[str]) -> None:
    """Say why workers cannot work, if the server does: Prefect's own words name no setting."""
    try:
        with connect(pauses=()) as server:
            require_usable(server, pools)
    except PerennialError as error:
        log.warning("%s", error)


def require_usable(server: PrefectServer, pools: Sequence[str]) -> None:
    """Check that the server answers, and that this supervisor knows the types of its pools."""
    server.reach()
    for pool in pools:
        found = existing(server, f"work_pools/{quote(pool, safe='')}")
        if found is None:
            log.warning(
                "the server has no pool %s; the worker makes one, and `perennial deploy` cpu and gpu", pool
            )
            continue
        kind, what = found["type"], f"the work pool {pool} on {redacted(server.url)} is of type {found['type']}"
        if kind not in KINDS:
            raise ConfigError(
                f"{what}, not {', '.join(KINDS)}, so no run of it could start here; name another pool, in "
                "prefect.yaml, too; nothing was started"
            )
        if kind != KIND and find_spec(f"prefect_{kind}") is None:
            raise ConfigError(
                f"{what}, whose package is not installed; run `perennial add {kind}`; nothing was started"
            )


def _stop(workers: Sequence[SupervisedProcess], signals: Sequence[int]) -> None:
    """Stop the runs with SIGTERM, then the workers; kill what is left. A repeated signal kills at once."""
    # The order matters: a worker that gets a signal kills its runs before they have saved.
    log.info("stopping; runs save their work first")
    started = [worker.process for worker in workers if worker.process]
    signalled: set[int] = set()
    since = time.monotonic()
    deadline, runs = since + SAVE_S, [0]
    while time.monotonic() < deadline and (len(signals) == 1 or time.monotonic() - since < 1):
        had_runs, runs = bool(runs), list(_runs(started))
        for run in set(runs) - signalled:
            # The run passes the signal on. When DVC ends, its stage becomes a child of this process, but is not
            # a run.
            signalled |= {run, *children(run, all_below=True)}
            _signal(run, signal.SIGTERM)
        if had_runs and not runs:
            deadline = min(deadline, time.monotonic() + REPORT_S)
        _reap(workers)
        time.sleep(POLL_S)
    for process in started:
        process.signal(signal.SIGTERM)
    deadline = time.monotonic() + REPORT_S
    while time.monotonic() < deadline and any(process.poll() is None for process in started):
        _reap(workers)
        time.sleep(POLL_S)
    for left in children(os.getpid(), all_below=True):
        _signal(left, signal.SIGKILL)
    log.info("stopped")


def _runs(workers: Sequence[Program]) -> Iterator[int]:
    """Processes of runs: children of the workers, and those that killed workers left to this process."""
    own = set().union(*(worker.own for worker in workers))
    for process in children(os.getpid()):
        yield from children(process) if process in own else [process]


def _signal(process: int, number: int) -> None:
    """Signal a run as Prefect does: its process group if it leads one, else only its process."""
    with suppress(ProcessLookupError):
        if os.getpgid(process) == process:
            os.killpg(process, number)
        else:
            os.kill(process, number)


def _reap(workers: Sequence[SupervisedProcess]) -> None:
    """Reap ended children; a worker keeps its exit code."""
    own = {worker.process.pid: worker.process for worker in workers if worker.process}
    with suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in own:
                own[ended.si_pid].poll()
            else:
                os.waitpid(ended.si_pid, 0)


def problems(server: PrefectServer, starting: int) -> Iterator[str]:
    """Yield what limits the workers of a server; `starting`: the number of those that are about to start."""
    yield from _websockets(server)
    with suppress(PerennialError):  # it refuses the question; the workers will say what it refuses
        yield from _several_workers(server, starting)


def _websockets(server: PrefectServer) -> Iterator[str]:
    """Say what is wrong if no WebSocket reaches the server, as behind some proxies."""
    key = base64.b64encode(os.urandom(16)).decode()
    try:
        with server.client.stream(
            "GET", "events/in", headers={**UPGRADE, "Sec-WebSocket-Key": key}, timeout=WEBSOCKET_S
        ) as answer:
            if answer.status_code == httpx.codes.SWITCHING_PROTOCOLS:
                return
            said = f"it answers {answer.status_code}"
    except httpx.HTTPError as error:
        said = str(error) or type(error).__name__
    yield (
        f"WebSockets do not reach {redacted(server.url)} ({said}). Runs send their heartbeats over HTTP and go "
        "on, but the UI and workers hear of events late. Let the proxy pass `Upgrade: websocket` for /api"
    )


def _several_workers(server: PrefectServer, starting: int) -> Iterator[str]:
    """Name the database that several workers need, unless the server says that it has it."""
    count = starting + sum(
        each["status"] == "ONLINE"
        for pool in server.request("POST", "work_pools/filter", {})
        for each in server.request("POST", f"work_pools/{quote(pool['name'], safe='')}/workers/filter", {})
    )
    if count < 2:
        return
    with suppress(PerennialError, LookupError, TypeError):  # a setting of its own may name the driver
        if "postgresql" in str(server.request("GET", "admin/settings")["server"]["database"]["driver"]):
            return
    yield (
        f"{count} workers will use {redacted(server.url)}. If its database is SQLite, Prefect's default, their "
        "requests wait for each other (`database is locked`). With PostgreSQL, set "
        "PREFECT_SERVER_DATABASE_DRIVER=postgresql+asyncpg beside PREFECT_SERVER_DATABASE_CONNECTION_URL of "
        "the server: its API shows only the first"
    )
