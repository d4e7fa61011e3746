"""Workers that train together: this process's place among them, and the others' reachability.

The place comes from TF_CONFIG, which lists all workers, or from a pattern of their addresses, their number and
the index that Kubernetes gives each pod of an Indexed Job.
"""

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

from perennial.base.errors import ConfigError, Interrupted

log = logging.getLogger(__name__)
VARIABLE = "TF_CONFIG"
# Without TF_CONFIG: an address with {index}, such as training-{index}.training:12345, and the workers' number.
HOSTS, SIZE = "PERENNIAL_CLUSTER_HOSTS", "PERENNIAL_CLUSTER_SIZE"
JOB_INDEX = "JOB_COMPLETION_INDEX"  # Kubernetes sets it in the pods of an Indexed Job
PLACE = "{index}"
WAIT = "PERENNIAL_CLUSTER_WAIT_S"
RENDEZVOUS_S = 600  # without WAIT; machines of a cluster may start minutes apart
LONGEST_WAIT_S = 86400
PORT_WAIT_S = 30  # enough for the previous process of an interrupted training to end
PATIENCE_S = 10  # before the log names the missing workers
PROBE_S = 2.0
POLL_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One of the processes that train together."""

    index: int  # 0 is the chief: it alone writes checkpoints, model and records
    addresses: tuple[str, ...]  # host:port of each worker, by index

    @property
    def count(self) -> int:
        """Number of workers."""
        return len(self.addresses)

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes checkpoints, model and records."""
        return self.index == 0


def this_worker() -> Worker | None:
    """This process among the workers of TF_CONFIG, or of PERENNIAL_CLUSTER_HOSTS; None if it is alone."""
    text = os.environ.get(VARIABLE)
    if built := _config_by_index():
        if text and text != built:
            raise ConfigError(
                f"{HOSTS} and {VARIABLE} are both set; nothing was trained; unset one of them, got "
                f"{os.environ[HOSTS]} and {text}"
            )
        text = os.environ[VARIABLE] = built
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
            f"{VARIABLE} is invalid ({type(error).__name__}: {error}); expected "
            '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}, got ' + text
        ) from error
    if unknown := {*cluster, kind} - {"chief", "worker"}:
        raise ConfigError(
            f"{VARIABLE} names {', '.join(sorted(unknown))}; training is synchronous, "
            "and each worker has all weights: give every machine the type worker"
        )
    if len(set(addresses)) < len(addresses):
        raise ConfigError(f"{VARIABLE} gives two workers the same address: {', '.join(addresses)}")
    return Worker(index=index, addresses=addresses) if len(addresses) > 1 else None


def named_by() -> str:
    """The variable that names the workers, for a message."""
    return HOSTS if os.environ.get(HOSTS) else VARIABLE


def _config_by_index() -> str | None:
    """TF_CONFIG of one of several equal workers, from their number and the index of this one."""
    pattern = os.environ.get(HOSTS)
    if not pattern:
        return None
    if PLACE not in pattern:
        raise ConfigError(
            f"{HOSTS} must be an address with {PLACE} in it, such as training-{PLACE}.training:12345, "
            f"got {pattern}"
        )
    count = _number(SIZE, os.environ.get(SIZE), 1, 4096)
    index = _number(JOB_INDEX, os.environ.get(JOB_INDEX), 0, count - 1)
    addresses = [pattern.replace(PLACE, str(each)) for each in range(count)]
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})


def _number(name: str, text: str | None, low: int, high: int) -> int:
    if text and text.isascii() and text.isdecimal() and low <= int(text) <= high:
        return int(text)
    hint = "; Kubernetes sets it in the pods of a Job with completionMode: Indexed" if name == JOB_INDEX else ""
    raise ConfigError(f"{name} must be a number from {low} to {high}, got {text or 'nothing'}{hint}")


def rendezvous(worker: Worker) -> None:
    """Wait until the other workers can be reached; TensorFlow would say nothing and handle no signal."""
    given = os.environ.get(WAIT)
    timeout_s = _number(WAIT, given, 0, LONGEST_WAIT_S) if given else RENDEZVOUS_S
    started, announced = time.monotonic(), False
    with _answering(worker):
        while absent := _absent(worker):
            waited_s = time.monotonic() - started
            if waited_s > timeout_s:
                raise Interrupted(
                    f"worker {worker.index} of {worker.count} waited {waited_s:.0f} s for {absent}; "
                    f"nothing was trained; check the log of that worker and its address in {named_by()}, "
                    "then start all workers again"
                )
            if waited_s > PATIENCE_S and not announced:
                log.info("waiting up to %.0f s for %s", timeout_s, absent)
                announced = True
            time.sleep(POLL_S)


def unreachable(worker: Worker) -> str:
    """Describe the workers that do not answer, for a message."""
    return _absent(worker) or "another worker (all answer, so one hangs)"


def _absent(worker: Worker) -> str:
    """Describe the other workers that do not answer, with address and reason; empty if all answer."""
    others = [(index, address) for index, address in enumerate(worker.addresses) if index != worker.index]
    found = [(f"worker {index} at {address}", _failure(address)) for index, address in others]
    return ", ".join(f"{name} ({reason})" for name, reason in found if reason)


def _failure(address: str) -> str:
    try:
        socket.create_connection(_host_and_port(address), timeout=PROBE_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


@contextmanager
def _answering(worker: Worker) -> Iterator[None]:
    """Accept connections at this worker's port while the block runs."""
    with _listener(worker) as listener:
        thread = threading.Thread(target=_answer, args=(listener,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # ends `accept`
            thread.join()


def _answer(listener: socket.socket) -> None:
    with suppress(OSError):
        while True:  # with a full queue nobody could connect
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.settimeout(PROBE_S)
                connection.recv(1)  # the other side closes first, so that this port is free afterwards


def _listener(worker: Worker) -> socket.socket:
    """Listen at this worker's port on all of the machine's addresses, as TensorFlow does afterwards."""
    _, port = _host_and_port(worker.addresses[worker.index])
    deadline = time.monotonic() + PORT_WAIT_S
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
        raise ValueError(f"{address} is not host:port")
    return host.strip("[]"), int(port)
