"""A Ray cluster on this machine, whose nodes can be lost."""

import contextlib
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Any]:
    """Two nodes of one core each, started in a folder of their own; RAY_ADDRESS names them in the block."""
    if " " in sys.executable:
        pytest.skip("Ray starts no processes of a Python whose path holds a space")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Processes of Ray start late on a busy machine.
        patch.setenv("RAY_raylet_start_wait_time_s", "600")
        patch.setenv("RAY_worker_register_timeout_seconds", "600")
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))  # the tests' tasks, and not the project
        from ray.cluster_utils import Cluster  # noqa: PLC0415 - its import warns

        with contextlib.chdir(folder):
            head = {"num_cpus": 1, "include_dashboard": False}
            started = Cluster(initialize_head=True, head_node_args=head)
            started.add_node(num_cpus=1)
        patch.setenv("RAY_ADDRESS", started.address)
        yield started
        started.shutdown()


def kill(node: Any, name: str) -> None:
    """Kill a process of a node with SIGKILL, and leave it a zombie."""
    os.kill(node.all_processes[name][0].process.pid, signal.SIGKILL)
