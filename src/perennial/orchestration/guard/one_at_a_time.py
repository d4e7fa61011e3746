"""Allow one run of a pipeline at a time, whoever starts it."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from perennial.orchestration.engine import this_run
from perennial.orchestration.engine.this_run import Stopped
from perennial.orchestration.guard.fence import Held, Holder, fence, holder, repositories


def one_at_a_time(pipeline: str, when_busy: Literal["end", "wait"]) -> AbstractContextManager[None]:
    """Let only one run of a pipeline enter the block; others end, or wait if a server orders them."""
    if not this_run.has_server():
        return _alone_here(pipeline, holder())
    from perennial.orchestration.guard import server_turn

    return server_turn.turn(pipeline, wait=when_busy == "wait")


def require_worth_starting() -> None:
    """Stop if the run was cancelled while its process started."""
    if this_run.has_server():
        from perennial.orchestration.guard import server_turn

        server_turn.require_worth_starting()


def require_idle(pipeline: str) -> None:
    """Stop if a run of the pipeline is active in this checkout."""
    with _alone_here(pipeline, Holder("another run", "", "", str(Path.cwd()), os.getpid())):
        pass


@contextmanager
def _alone_here(pipeline: str, run: Holder) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(fence(repositories(deployed=False, server=False), pipeline, run))
        except Held as held:
            raise Stopped(f"{held.reason}; this one was not started") from None
        yield
