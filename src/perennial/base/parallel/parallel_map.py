"""Tasks in parallel, on the cores of this machine or on a Ray cluster, as `compute.engine` says."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from perennial.base.parallel import process_pool, ray_driver

if TYPE_CHECKING:
    from perennial.base.config.data import ComputeConfig

Shared = TypeVar("Shared")
Task = TypeVar("Task")
Result = TypeVar("Result")
THREADS = 2  # processes that threads replace; more would wait for the interpreter lock


def prepare(compute: "ComputeConfig", function: Callable[..., object]) -> None:
    """Start in advance what a later `map_ordered` of this function needs, or prepare for threads."""
    if compute.engine == "processes" and process_pool.count(compute.processes) > THREADS:
        process_pool.start_server(function)
    else:
        process_pool.keep_freed_blocks()


def map_ordered(
    compute: "ComputeConfig",
    function: Callable[[Shared, Task], Result],
    shared: Shared,
    tasks: Iterable[Task],
    *,
    small: bool = False,
    unlocked: bool = False,
) -> Iterator[Result]:
    """Yield `function(shared, task)` for each task, in order, few ahead; `small` work runs in this process.

    `unlocked`: the function spends most of its time without the interpreter lock, so that few processes may be
    threads instead, which start at once and hand over results without a copy.
    """
    if compute.engine == "ray" and not small:
        return ray_driver.map_on_ray(function, shared, tasks)
    count = 1 if small else process_pool.count(compute.processes)
    if unlocked and count == THREADS:
        return process_pool.map_in_threads(function, shared, tasks, count=count)
    return process_pool.map_in_processes(function, shared, tasks, count=count)
