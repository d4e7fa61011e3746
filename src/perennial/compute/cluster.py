"""Tasks on a Ray cluster: the one that RAY_ADDRESS names, else one made of this machine's cores.

The machines see the project's folders under the same paths (a shared file system); the code of this
checkout is sent to them.
"""

import logging
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from perennial.errors import ConfigError, PerennialError

WAITING = 2  # results a core that may wait for the one who asked
CLIENT_PORT = 10001  # of ray://head, where it names none
CONNECT_S = 5


def mapped(function: Callable[[Any, Any], Any], shared: Any, tasks: Iterable[Any]) -> Iterator[Any]:
    """`function(shared, task)` of each task, in order.

    Raises:
        ConfigError: Ray is not installed or its cluster cannot be reached.
    """
    ray = _connected()
    remote = ray.remote(function)
    given, waiting = ray.put(shared), deque[Any]()
    most = WAITING * max(int(ray.cluster_resources().get("CPU", 1)), 1)
    try:
        for task in tasks:
            waiting.append(remote.remote(given, task))
            if len(waiting) == most:
                yield ray.get(waiting.popleft())
        while waiting:
            yield ray.get(waiting.popleft())
    except ray.exceptions.RayTaskError as error:
        raise (error.cause or error) from None
    except ray.exceptions.RayError as error:
        raise PerennialError(
            f"the Ray cluster failed: {' '.join(str(error).split())}; nothing was changed; run this again"
        ) from error
    finally:
        ray.shutdown()


def _connected() -> Any:
    """The ray module, connected."""
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(
            "compute.engine: ray needs the extra `ray`: pip install --require-hashes -r requirements/ray.txt"
        ) from error
    address = os.environ.get("RAY_ADDRESS") or "local"
    if address == "local" and " " in sys.executable:
        raise ConfigError(
            f"Ray cannot start its processes here: the path of {sys.executable} holds a space; "
            "move the project, or set compute.engine to processes"
        )
    if address not in {"local", "auto"}:
        _require_listening(address)
    try:
        package = str(Path(__file__).parents[1])
        ray.init(
            runtime_env={"py_modules": [package]},
            log_to_driver=False,
            include_dashboard=False,
            logging_level=logging.WARNING,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(f"the Ray cluster of RAY_ADDRESS={address} cannot be reached: {error}") from error
    return ray


def _require_listening(address: str) -> None:
    """Refuses an address where nobody listens; Ray itself would try for minutes."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port or (CLIENT_PORT if parts.scheme == "ray" else None)
    except ValueError:
        host, port = None, None
    if host is None or port is None:
        raise ConfigError(f"RAY_ADDRESS must be host:port, ray://host:port, auto or local, got {address}")
    try:
        socket.create_connection((host, port), CONNECT_S).close()
    except OSError as error:
        raise ConfigError(
            f"the Ray cluster of RAY_ADDRESS={address} cannot be reached: {error.strerror or error}; "
            "nothing was changed; start it or correct the address, or set compute.engine to processes"
        ) from error
