"""Processes that hold or wait for GPUs, by the real lease; the GPUs are names."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
LIMIT_S = 900  # of a busy machine
HOLDER = """
import logging, os, subprocess, sys, time
from pathlib import Path
from perennial.base.errors import PerennialError
from perennial.base.devices import lease
from perennial.base.processes import process

logging.basicConfig(level=logging.INFO, format="%(message)s")
name, devices, count, *how = sys.argv[1:]
count = count if count == "all" else int(count)
try:
    with process.interruptible(), lease.leased(devices, count, key="train.devices", name=name) as taken:
        if how:
            subprocess.Popen(["sleep", "600"])
        Path(f"{name}.new").write_text((os.environ.get("CUDA_VISIBLE_DEVICES") or "-"))
        Path(f"{name}.new").rename(f"{name}.has")
        while not Path(f"{name}.end").exists():
            time.sleep(0.01)
except PerennialError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


def until(true: Callable[[], object], what: str) -> None:
    """Returns once something is true."""
    deadline = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.005)


class Holder:
    """A process that leases GPUs and holds them until the test ends it. It works in the folder of the test."""

    def __init__(
        self,
        name: str,
        environment: Mapping[str, str],
        devices: str = "auto",
        count: int | str = 1,
        *how: str,
    ) -> None:
        """Start it; with `how` it has a child."""
        self.name, self.file, self.end_file = name, Path(f"{name}.has"), Path(f"{name}.end")
        with Path(f"{name}.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", HOLDER, name, devices, str(count), *how],
                env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
                stdin=subprocess.DEVNULL,
                stderr=log,
            )

    @property
    def said(self) -> str:
        """What it has logged."""
        return Path(f"{self.name}.log").read_text()

    def has(self) -> str:
        """The GPUs that CUDA sees in it; waits until it has them."""
        until(lambda: self.file.exists() or self.process.poll() is not None, f"{self.name}: {self.said}")
        assert self.process.poll() is None, self.said
        return self.file.read_text()

    def waits(self) -> "Holder":
        """Returns once it waits."""
        until(lambda: "waiting for" in self.said or self.process.poll() is not None, f"{self.name} to wait")
        assert not self.file.exists()
        return self

    def end(self) -> int:
        """Let it end; its exit code."""
        self.end_file.touch()
        return self.process.wait(LIMIT_S)

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Send it a signal; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)
