"""Which failures are worth another try, and how often one is made.

Prefect applies it; without a server, orchestration/engine/decorators.py does.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from perennial.base import failures
from perennial.base.errors import Failure
from perennial.orchestration.engine.decorators import Policy, task
from perennial.orchestration.work.stage_failures import StageFailed

MINUTE_S, HOUR_S = 60, 3600
PAUSES_S = (10, MINUTE_S)  # before the second and the third try
GATE_TRIES = 5  # another run may promote its model between the gate and the push
# Not what a person must change first, and not a bug: both end the same way again.
RETRIED = (Failure.NETWORK, Failure.DISK, Failure.INTERRUPTED, Failure.OUTSIDE)
P = ParamSpec("P")
T = TypeVar("T")


def is_worth_retrying(error: Exception) -> bool:
    """Whether a failed stage or command is worth retrying."""
    return (error.kind if isinstance(error, StageFailed) else failures.kind(error)) in RETRIED


def once(limit_s: int | None = None, name: str | None = None) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function as a task that is not retried."""
    return task(Policy(limit_s=limit_s, name=name))


def retried(limit_s: int | None = None) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function as a task that is retried if a retry can help."""
    return task(Policy(limit_s=limit_s, pauses_s=PAUSES_S, is_worth_retrying=is_worth_retrying))
