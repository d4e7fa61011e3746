"""The part of a training on Ray that runs on each node: an actor that starts a worker and watches it."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from perennial.base.devices import gpus, lease
from perennial.base.errors import SIGNALS
from perennial.base.processes import process
from perennial.base.processes.programs import STDOUT, Program

POLL_S = 0.5
REPORT_S = 2.0  # longest wait of a call for something to report
SILENT_S = 30.0  # without a call, though `report` is called again and again: nobody watches any more
LAST_LINES_S = 5.0  # for the output of a worker that has ended; another process may keep the pipe open
# What a process inherits here from the node, whose Ray may have been started elsewhere and long ago: not these.
NOT_OF_THE_NODE = ("PERENNIAL_", "DVC_", "PREFECT_", "PYTHON", "RAY_", "TF_", "XLA_", "KERAS_", "OMP_")
OF_THE_NODE = (gpus.LISTED, "PERENNIAL_HOME")  # the caller's, if it has one, counts more
# What a worker gets from the caller: settings of the run and of its libraries, and credentials for its stores.
FROM_THE_CALLER = (
    "PERENNIAL_", "DVC_", "PYTHON", "TF_", "XLA_", "KERAS_", "NCCL_", "CUDA_", "OMP_", "OPENBLAS_",
    "AWS_", "MLFLOW_", "HF_", "KAGGLE_",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "NETRC", "GIT_", "LANG", "LC_", "TZ",
)  # fmt: skip
# These name a process, a device or a place of the caller's machine.
NOT_FROM_THE_CALLER = (
    process.STARTED_BY, process.WORKER_OF, gpus.LISTED, gpus.VISIBLE, lease.SHARE, lease.ORDER,
)  # fmt: skip


def passed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a caller that its workers on other machines get."""
    return {
        name: value
        for name, value in environment.items()
        if name.upper().startswith(FROM_THE_CALLER) and name not in NOT_FROM_THE_CALLER
    }


class Agent:
    """Runs one worker as a child process. It ends soon after its node's process, or once nobody calls it."""

    def __init__(self) -> None:
        import ray  # noqa: PLC0415 - an extra

        process.die_with(os.getppid())
        self._called, self._reported = time.monotonic(), False
        context: Any = ray.get_runtime_context()
        services: Any = ray.util
        self._node = str(services.get_node_ip_address())  # as Ray is configured: a host may have several
        self._gpus = [str(each) for each in context.get_accelerator_ids().get("GPU", [])]
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind(("", 0))
        self._child: Program | None = None
        self._reader: threading.Thread | None = None
        self._changed = threading.Condition()
        self._lines: list[str] = []
        self._sent = 0  # lines that were reported and forgotten

    def look(self, folder: str, token: str, python: str) -> dict[str, Any]:
        """The facts of this node: its address, and what it finds in the caller's file `token`."""
        host = f"[{self._node}]" if ":" in self._node else self._node
        return {
            "node": self._node,
            "address": f"{host}:{self._port.getsockname()[1]}",
            "token": _text(Path(folder, token)),
            "python": python if os.access(python, os.X_OK) else sys.executable,
        }

    def start(self, command: Sequence[str], folder: str, given: Mapping[str, str], devices: str) -> None:
        """Start the worker in a folder, on the GPUs that Ray gave to this actor."""
        node = {
            name: value
            for name, value in os.environ.items()
            if name in OF_THE_NODE or not name.startswith(NOT_OF_THE_NODE)
        }
        own = {
            process.WORKER_OF: str(os.getpid()),
            gpus.VISIBLE: ",".join(self._gpus),
            lease.SHARE: devices,
            "PYTHONUNBUFFERED": "1",
        }
        # Ray blocks SIGINT in the threads of an actor, and a child inherits that.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        # Ray ends the group of a killed actor at once; outside of it, the worker may save.
        child = self._child = Program(
            command, cwd=Path(folder), env={**node, **given, **own}, stderr=STDOUT, to=self._add,
            grace_s=process.GRACE_S,
        )  # fmt: skip
        self._reader = threading.Thread(target=child.finish, kwargs={"limit_s": None}, daemon=True)
        self._reader.start()
        self._called = time.monotonic()
        threading.Thread(target=self._die_with_calls, daemon=True).start()

    def _die_with_calls(self) -> None:
        while time.monotonic() - self._called < (LAST_LINES_S if self._reported else SILENT_S):
            time.sleep(POLL_S)
        os.kill(os.getpid(), signal.SIGKILL)  # its worker notices, and saves

    def _add(self, line: str) -> None:
        with self._changed:
            self._lines.append(f"{line}\n")
            self._changed.notify_all()

    def report(self, known: int, failure: str) -> tuple[list[str], int | None, str]:
        """Return lines after the first `known` ones; at the end also the exit code, and the file `failure`."""
        self._called = time.monotonic()
        child, reader = self._child, self._reader
        if child is None or reader is None:
            return [], None, ""
        with self._changed:
            del self._lines[: known - self._sent]
            self._sent = known
            if not self._lines and reader.is_alive():
                self._changed.wait(REPORT_S)
        code = child.poll()
        if code is not None:
            reader.join(LAST_LINES_S)
        with self._changed:
            lines = list(self._lines)
        self._reported = code is not None
        return lines, code, _text(Path(failure)) if code else ""

    def signal(self, number: int) -> None:
        """Send a signal to the worker."""
        if self._child is not None:
            self._child.signal(number)


def _text(file: Path) -> str:
    """The text of a file; empty if it cannot be read."""
    with suppress(OSError):
        return file.read_text(encoding="utf-8")
    return ""
