"""A checkout of the project, and the programs that run beside it."""

import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from uuid import uuid4

import httpx
import psutil
from support import forks
from support.edits import edit
from support.git import IDENTITY
from support.parameters import change_params

ROOT = Path(__file__).parents[2]
STANDIN = ROOT / "tests" / "endtoend" / "standin"
BIN = Path(sys.executable).parent
RESPONSE_S = 600  # a busy machine answers late
TRIES = 60
USER, _, PASSWORD = os.environ.get("PREFECT_API_AUTH_STRING", "").partition(":")
CLIENT = str(uuid4())  # whose CSRF tokens these are
TOKENS: dict[str, dict[str, str]] = {}  # the last one of each server, as headers
AUTH = (USER, PASSWORD) if USER else None
TLS = ssl.create_default_context()  # httpx would read all certificates again for each request


@dataclass(frozen=True)
class Checkout:
    """A clone of the project with its packages, as after `make install`."""

    folder: Path
    home: Path
    forked: bool = False  # whether `python`, `dvc` and `perennial` are forks that no signal reaches

    def environment(self, **extra: str) -> dict[str, str]:
        """Environment of a person who works in the checkout and has set nothing else."""
        names = ("LANG", "TMPDIR", "PREFECT_API_AUTH_STRING")
        kept = {name: os.environ[name] for name in names if name in os.environ}
        return {
            **kept, "PATH": forks.path(tensorflow=True) if self.forked else f"{BIN}:{os.environ['PATH']}",
            "HOME": str(self.home), "PYTHONPATH": str(self.folder / "src"), "DO_NOT_TRACK": "1", **extra,
        }  # fmt: skip

    def run(self, *command: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run a command; its output and errors in one text."""
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment(**extra),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=3600,
            check=False,
        )

    def must(self, *command: str, **extra: str) -> str:
        """Run a command that must succeed; returns its output."""
        done = self.run(*command, **extra)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def commit(self, message: str, *options: str) -> None:
        """Commit what git tracks, as a person."""
        self.must("git", *IDENTITY, "commit", "-qam", message, *options)

    def dvc(self, *arguments: str) -> str:
        """What DVC prints, without the time of its imports: for settings, and what a test looks up."""
        return self.must(forks.python(), "-m", "dvc", *arguments)

    def set(self, section: str, **values: object) -> None:
        change_params(self.folder / "params.yaml", {f"{section}.{key}": values[key] for key in values})

    def restore(self) -> None:
        """Restore committed files and the outputs that dvc.lock lists."""
        self.must("git", "checkout", "-q", ".")
        self.dvc("checkout", "-q", "--force")


def copy_project(folder: Path, left_out: Collection[str]) -> None:
    """Copy the working tree as it is, without some files and folders at its top, and with its bytecode."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    tracked = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    names = [name for name in tracked.split("\0") if name and Path(name).parts[0] not in left_out]
    names += [str(file.relative_to(ROOT)) for file in (ROOT / "src").rglob("*.pyc")]
    for name in names:
        with suppress(FileNotFoundError):  # removed, but not for git
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)  # with its time, which bytecode names


def start_repository(folder: Path) -> None:
    """Make a repository of a folder, with a commit of all that is in it."""
    for command in (("init", "-q", "-b", "main"), ("add", "."), (*IDENTITY, "commit", "-qm", "start")):
        subprocess.run(["git", *command], cwd=folder, check=True)


def copy_standin(folder: Path, steps: int) -> None:
    """Write a project of one small stage that takes so many steps, as a repository with DVC."""
    shutil.copytree(STANDIN, folder)
    parameters = folder / "params.yaml"
    edit(parameters, "seconds: 30", f"seconds: {steps / 2}")
    start_repository(folder)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], cwd=folder, check=True)


def processes_under(folder: Path) -> list[str]:
    """The command lines of running processes that work in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder:
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def wait_until(condition: Callable[[], object], seconds: float = 900, pause: float | None = None) -> None:
    """Wait for a condition, long enough for a busy machine; fail when it does not come.

    Without `pause`, in seconds, it is looked at less and less often: each request takes time from the server
    that has to get there.
    """
    deadline, longer = time.monotonic() + seconds, 1.2 if pause is None else 1
    pause = pause or 0.05
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(pause)
        pause = min(longer * pause, 2)


def signal_child(module: str, number: int, ready: Callable[[], object] = lambda: True) -> None:
    """Signal the process of this one that runs a module, once it is there and all is ready for it."""

    def running() -> psutil.Process | None:
        return next((each for each in psutil.Process().children() if module in each.cmdline()), None)

    def kill() -> None:
        wait_until(lambda: ready() and running(), pause=0.01)
        running().send_signal(number)

    threading.Thread(target=kill, daemon=True).start()


@dataclass(frozen=True)
class Server:
    """A running Prefect server."""

    url: str
    program: "Beside"

    def restart(self, away_s: float = 0) -> None:
        """Kill the server, and start it again with the same database after some seconds."""
        self.program.kill()
        time.sleep(away_s)
        self.program.start()
        wait_until(lambda: responds(f"{self.url}/health"))

    def request(self, method: str, path: str, body: object = None, **parameters: str) -> object:
        """The response of the server's API, None if it is empty; asked again while its database is busy."""
        for _ in range(TRIES):
            with httpx.Client(
                base_url=self.url, params=parameters, auth=AUTH, timeout=RESPONSE_S, verify=TLS
            ) as client:
                done = client.request(method, path, json=body, headers=TOKENS.get(self.url))
                if done.status_code == httpx.codes.FORBIDDEN and "CSRF" in done.text:
                    done = client.get("/csrf-token", params={"client": CLIENT})
                    if done.is_success:
                        token = {"Prefect-Csrf-Token": done.json()["token"], "Prefect-Csrf-Client": CLIENT}
                        TOKENS[self.url] = token
                        done = client.request(method, path, json=body, headers=token)
            if not done.is_server_error:
                break
            time.sleep(1)
        done.raise_for_status()
        return done.json() if done.content else None

    def post(self, path: str, body: object) -> list[dict[str, object]]:
        """What a search in the server finds."""
        return self.request("POST", path, body)

    def runs(self, *states: str) -> list[dict[str, object]]:
        """Flow runs by the type of their state; all runs if none is named."""
        named = {"flow_runs": {"state": {"type": {"any_": states}}}} if states else {}
        return self.post("/flow_runs/filter", named)

    @contextmanager
    def schedule(self, deployment: str, *, seconds: float, **more: str) -> Iterator[None]:
        """An active schedule of a deployment, for the block."""
        named = {"deployments": {"name": {"any_": [deployment]}}}
        (found,) = self.post("/deployments/filter", named)
        path = f"/deployments/{found['id']}/schedules"
        (schedule,) = self.post(path, [{"active": True, "schedule": {"interval": seconds, **more}}])
        try:
            yield
        finally:
            self.request("DELETE", f"{path}/{schedule['id']}")

    @contextmanager
    def acting(self, automation: str, *, after_s: int) -> Iterator[None]:
        """An automation that acts after this time, for the block."""
        (found,) = self.post("/automations/filter", {"automations": {"name": {"any_": [automation]}}})
        kept = {key: value for key, value in found.items() if key not in {"id", "created", "updated"}}
        path, trigger = f"/automations/{found['id']}", {**found["trigger"], "within": after_s}  # type: ignore[dict-item]
        self.request("PUT", path, {**kept, "trigger": trigger})
        try:
            yield
        finally:
            self.request("PUT", path, kept)


class Beside:
    """Run a program during the block; then kill it and all that it started."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.log = folder / f"{Path(command[0]).name}-{command[1]}.log"
        self._command = [str(BIN / command[0]), *command[1:]]
        self._folder, self._environment = folder, environment
        self.start()

    def start(self) -> None:
        """Start the program, again after `kill`."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                self._command, cwd=self._folder, env=self._environment, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def kill(self) -> None:
        """Kill the program and all that it started; a Prefect worker may not end on SIGTERM."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()


def free_port() -> int:
    """A port of this machine that the system gives to no connection before it is used."""
    while True:
        port = random.randrange(20_000, 30_000)  # below those of outgoing connections
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def responds(url: str) -> bool:
    try:
        return httpx.get(url, verify=TLS).is_success
    except httpx.TransportError:
        return False
