"""Which of several machines this process is, as TF_CONFIG says, and whether the others are there."""

import errno
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from perennial.errors import ConfigError, Interrupted

log = logging.getLogger(__name__)
VARIABLE = "TF_CONFIG"
MEETING_S = 600  # machines of a cluster may come up minutes apart
PORT_WAIT_S = 30  # in which the worker of a training that was lost is sure to end
PATIENCE_S = 10  # before it is said whom this worker waits for
PROBE_S = 2.0
POLL_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One of the processes that train together."""

    index: int  # 0 is the chief, who alone writes
    addresses: tuple[str, ...]  # host:port of all workers, by their numbers

    @property
    def count(self) -> int:
        """How many workers there are."""
        return len(self.addresses)

    @property
    def is_chief(self) -> bool:
        """Whether this one writes checkpoints, model and records."""
        return self.index == 0


def this_worker() -> Worker | None:
    """This process among the workers of TF_CONFIG; None where there is none, or only this one.

    The form is TensorFlow's own: the addresses of a cluster, and which task of it this is.

    Raises:
        ConfigError: TF_CONFIG is not of this form; slim's parameter servers are refused by name.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        kind, index = task["type"], int(task["index"])
        addresses = tuple(str(each) for role in ("chief", "worker") for each in cluster.get(role, []))
        own = cluster.get(kind, addresses)
        _ = own[index if index >= 0 else len(own)], [_host_and_port(each) for each in addresses]
        index += len(cluster.get("chief", [])) if kind == "worker" else 0
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{VARIABLE} is not what it should be ({type(error).__name__}: {error}); expected "
            '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}, got ' + text
        ) from error
    if unknown := {*cluster, kind} - {"chief", "worker"}:
        raise ConfigError(
            f"{VARIABLE} names {', '.join(sorted(unknown))}; workers train synchronously here, "
            "each with all weights: give every machine the type worker"
        )
    if len(set(addresses)) < len(addresses):
        raise ConfigError(f"{VARIABLE} gives two workers one address: {', '.join(addresses)}")
    return Worker(index=index, addresses=addresses) if len(addresses) > 1 else None


def rendezvous(worker: Worker, *, timeout_s: float = MEETING_S, port_wait_s: float = PORT_WAIT_S) -> None:
    """Returns when this worker has reached all others, each of which listens at its own address meanwhile.

    TensorFlow would wait for them without a word, and hear no signal while it does.

    Raises:
        ConfigError: another process has the port.
        Interrupted: a worker was not there in time.
    """
    started, told = time.monotonic(), False
    with _answering(worker, port_wait_s):
        while absent := _absent(worker):
            waited_s = time.monotonic() - started
            if waited_s > timeout_s:
                raise Interrupted(
                    f"worker {worker.index} of {worker.count} waited {waited_s:.0f} s in vain for {absent}; "
                    f"nothing was trained; see what that worker says and whether {VARIABLE} has its address, "
                    "then start all workers again"
                )
            if waited_s > PATIENCE_S and not told:
                log.info("waiting for %s, for %.0f s at most", absent, timeout_s)
                told = True
            time.sleep(POLL_S)


def unreachable(worker: Worker) -> str:
    """The workers that do not answer any more, in words."""
    return _absent(worker) or "another worker (all answer, so one hangs)"


def _absent(worker: Worker) -> str:
    """The others that do not answer, each with its address and the reason; empty where all do."""
    reasons = {
        f"worker {number} at {address}": _failure(address)
        for number, address in enumerate(worker.addresses)
        if number != worker.index
    }
    return ", ".join(f"{name} ({reason})" for name, reason in reasons.items() if reason)


def _failure(address: str) -> str:
    """Why nothing answers at an address; empty where something does."""
    try:
        socket.create_connection(_host_and_port(address), timeout=PROBE_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


@contextmanager
def _answering(worker: Worker, wait_s: float) -> Iterator[None]:
    """Lets others reach this worker's port while the block runs."""
    with _listener(worker, wait_s) as listener:
        thread = threading.Thread(target=_answer, args=(listener,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # it waits for the next one
            thread.join()


def _answer(listener: socket.socket) -> None:
    """Takes whoever comes until the listener is shut down; in a queue that is full nobody is answered."""
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.settimeout(PROBE_S)
                connection.recv(1)  # who asked hangs up first, so that this port is free afterwards


def _listener(worker: Worker, wait_s: float) -> socket.socket:
    """Listens at this worker's port on all of the machine's addresses, as TensorFlow does afterwards."""
    _, port = _host_and_port(worker.addresses[worker.index])
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return socket.create_server(("", port), backlog=worker.count)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise ConfigError(
                    f"worker {worker.index} cannot listen at port {port} ({os.strerror(error.errno or 0)}); "
                    f"end the process that does, or give {VARIABLE} another port on every worker"
                ) from error
        time.sleep(POLL_S)


def _host_and_port(address: str) -> tuple[str, int]:
    """The parts of `host:port`, or of `[host]:port` for IPv6."""
    host, _, port = address.rpartition(":")
    if not host or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{address} is no host:port")
    return host.strip("[]"), int(port)
