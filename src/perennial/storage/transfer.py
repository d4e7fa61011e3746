"""Many objects at once, in threads."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from perennial.storage import Store

Item = TypeVar("Item")
Result = TypeVar("Result")
THREADS = 16
WAITING = 4  # items ahead, per thread


def together(
    store: Store, function: Callable[[Item], Result], items: Iterable[Item], *, threads: int = THREADS
) -> Iterator[Result]:
    """`function(item)` of each item, in threads, as they finish; memory does not grow with the items.

    The first error is raised unchanged, and so is a signal; before that the store is stopped, which ends the
    calls that still run.
    """
    executor = ThreadPoolExecutor(threads, "transfer")
    running: set[Future[Result]] = set()
    try:
        for item in items:
            running.add(executor.submit(function, item))
            if len(running) >= threads * WAITING:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (each.result() for each in done)
    except BaseException:
        store.stop()
        raise
    finally:
        executor.shutdown(cancel_futures=True)
