"""Work on many parts of the data at once: on the cores of this machine, or on the machines of a Ray cluster."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from perennial.compute import cluster, processes
from perennial.config.sections import ComputeConfig

Shared = TypeVar("Shared")
Task = TypeVar("Task")
Result = TypeVar("Result")


def prepare(compute: ComputeConfig, function: Callable[..., object]) -> None:
    """Says that `mapped` will be called with this function, so that what it needs can start meanwhile."""
    if compute.engine == "processes" and processes.count(compute.processes) > 1:
        processes.prepare(function)


def mapped(
    compute: ComputeConfig,
    function: Callable[[Shared, Task], Result],
    shared: Shared,
    tasks: Iterable[Task],
    *,
    small: bool = False,
) -> Iterator[Result]:
    """`function(shared, task)` of each task, in their order, whoever computed it.

    Only a few results wait at a time, so memory does not grow with the number of tasks. What is `small` is
    done faster right here than by processes that have to start first. An error of the function is raised as
    it is; a process that was killed is a PerennialError.
    """
    if compute.engine == "ray":
        return cluster.mapped(function, shared, tasks)
    count = 1 if small else processes.count(compute.processes)
    return processes.mapped(function, shared, tasks, count=count)
