"""The GPUs of this machine, and those visible by CUDA_VISIBLE_DEVICES; found without TensorFlow."""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from perennial.base import limits
from perennial.base.errors import ConfigError
from perennial.base.processes import programs

VISIBLE = "CUDA_VISIBLE_DEVICES"
LISTED = "PERENNIAL_GPUS"  # names of the GPUs of this machine, such as 0,1, instead of those that are found
DEVICES = Path("/dev")
Gpu = Sequence[str]  # its UUID or number; if it is split (MIG), those of its parts


def visible() -> list[str]:
    """List the GPUs that this process may use, by UUID, or by number if the driver provides none.

    As in CUDA, CUDA_VISIBLE_DEVICES holds numbers or the beginnings of UUIDs, and nothing counts after one
    that does not exist. Numbers are those of `nvidia-smi`; a number of a GPU that is split means all parts.
    """
    gpus = found()
    if VISIBLE not in os.environ:
        return [part for gpu in gpus for part in gpu]
    chosen: list[str] = []
    for name in os.environ[VISIBLE].split(","):
        parts = _named(name.strip(), gpus)
        if not parts:
            break
        chosen += [part for part in parts if part not in chosen]
    return chosen


def described() -> str:
    """Describe the number of GPUs, for a message."""
    count = len(found())
    text = f"this machine has {count} GPU{'' if count == 1 else 's'}"
    if VISIBLE in os.environ:
        text += f", of which {VISIBLE}={os.environ[VISIBLE]} leaves {len(visible())}"
    return text


def found() -> list[Gpu]:
    """The GPUs of this machine in the order of `nvidia-smi`, whoever may use them."""
    if LISTED in os.environ:
        return _listed(os.environ[LISTED])
    with suppress(programs.Missing, programs.TimedOut):
        done = programs.run(("nvidia-smi", "-L"), limit_s=limits.LISTING_S, guarded=False)
        if not done.code:
            return _by_program(done.output)
    numbers = [path.name.removeprefix("nvidia") for path in DEVICES.glob("nvidia[0-9]*")]
    return [[number] for number in sorted(filter(str.isdecimal, numbers), key=int)]


def _named(name: str, gpus: Sequence[Gpu]) -> list[str]:
    """The parts that an entry of CUDA_VISIBLE_DEVICES names; none if there is no such GPU."""
    if name.isdecimal():
        return list(gpus[int(name)]) if int(name) < len(gpus) else []
    matching = [part for gpu in gpus for part in gpu if name and part.startswith(name)]
    return matching if len(matching) == 1 else []


def _listed(text: str) -> list[Gpu]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if len(set(names)) < len(names) or not all(re.fullmatch(r"[A-Za-z0-9][\w./-]*", name) for name in names):
        raise ConfigError(f"{LISTED} must be different names such as 0,1, or empty for no GPU, got {text}")
    return [[name] for name in names]


def _by_program(text: str) -> list[Gpu]:
    """The GPUs that `nvidia-smi -L` lists, a part of one in an indented line below it."""
    gpus: list[list[str]] = []
    whole: list[str] = []
    for line in text.splitlines():
        uuid = re.search(r"\(UUID: ([\w/-]+)\)", line)
        if uuid and line.startswith("GPU "):
            gpus.append([])
            whole.append(uuid[1])
        elif uuid and gpus:
            gpus[-1].append(uuid[1])
    return [parts or [uuid] for parts, uuid in zip(gpus, whole, strict=True)]
