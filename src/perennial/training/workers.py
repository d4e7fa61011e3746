"""Which of several machines this process is, as TF_CONFIG says."""

import json
import os
from dataclasses import dataclass

from perennial.errors import ConfigError

VARIABLE = "TF_CONFIG"


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One of the processes that train together."""

    index: int  # 0 is the chief, who alone writes
    count: int
    address: str  # host:port

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
        addresses = [address for role in ("chief", "worker") for address in cluster.get(role, [])]
        index += len(cluster.get("chief", [])) if kind == "worker" else 0
        address = str(addresses[index if index >= 0 else len(addresses)])
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
    return Worker(index=index, count=len(addresses), address=address) if len(addresses) > 1 else None
