"""Cores, memory and GPUs of this machine, detected without TensorFlow, and estimates of training time."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from perennial.base.devices import gpus

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
GB = 1e9
# Multiply-adds per second: of a 2 GHz core with mobilenet_v2, and of a laptop GPU.
CORE_RATE, GPU_RATE = 4e9, 1e12
DECODED_PIXELS_PER_S = 50e6  # per core
TRAIN_COST = 3  # forward passes: forward, backward and update
# Published multiply-adds per image, and the image side in pixels that they are for.
COSTS = {
    "mobilenet_v2": (3.0e8, 224), "efficientnet_v2_b0": (7.2e8, 224), "cifarnet": (3.1e7, 32),
    "mnist_cnn": (1.4e7, 28),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The properties of this machine that the choice of parameters depends on."""

    cores: int
    memory_gb: float
    gpus: int

    def described(self) -> str:
        """Describe the machine in a line."""
        return f"{_count(self.cores, 'core')}, {self.memory_gb:.0f} GB, {_count(self.gpus, 'GPU')}"

    def seconds(self, network: str, size: int, images: int, *, trained: bool, pixels: int = 0) -> float:
        """Estimate the time of one pass of images through a network; `pixels` of each image are decoded."""
        macs, published = COSTS.get(network, COSTS["efficientnet_v2_b0"])
        cost = macs * (size / published) ** 2 * (TRAIN_COST if trained else 1)
        rate = GPU_RATE if self.gpus else CORE_RATE * self.cores
        return images * (cost / rate + pixels / (DECODED_PIXELS_PER_S * self.cores))


def this() -> Machine:
    """Detect the properties of this machine."""
    return Machine(cores=len(os.sched_getaffinity(0)), memory_gb=_memory_bytes() / GB, gpus=len(gpus.visible()))


def _memory_bytes() -> int:
    """Return the memory that this process may use."""
    limits = [int(psutil.virtual_memory().total)]
    with suppress(OSError, ValueError):
        limits.append(int(CGROUP_LIMIT.read_text(encoding="ascii")))  # `max` where there is no limit
    return min(limits)


def _count(number: int, name: str) -> str:
    return f"{number or 'no'} {name}{'' if number == 1 else 's'}"
