"""Tasks on a Ray cluster: the one that RAY_ADDRESS names, else one made of this machine's cores.

The machines see the project's folders under the same paths (a shared file system); the code of this
checkout is sent to them.
"""

import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from perennial.errors import ConfigError, PerennialError

WAITING = 2  # results a core that may wait for the one who asked


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
    if "RAY_ADDRESS" not in os.environ and " " in sys.executable:
        raise ConfigError(
            f"Ray cannot start its processes here: the path of {sys.executable} holds a space; "
            "move the project, or set compute.engine to processes"
        )
    try:
        package = str(Path(__file__).parents[1])
        ray.init(
            runtime_env={"py_modules": [package]},
            log_to_driver=False,
            include_dashboard=False,
            logging_level=logging.WARNING,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(f"the Ray cluster cannot be reached: {error}") from error
    return ray
