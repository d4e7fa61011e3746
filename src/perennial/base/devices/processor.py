"""Facts about a machine that can change the last bits of a result: instruction sets, cores, GPUs, settings."""

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perennial.base import limits
from perennial.base.processes import programs

CPUINFO = Path("/proc/cpuinfo")
THREADS = "TF_NUM_INTRAOP_THREADS"  # TensorFlow's, for the parts of one operation
# Linux' names of the instruction sets by which oneDNN, Eigen, XLA and NumPy choose their code.
SETS = re.compile(
    r"sse4_[12]|avx|fma|f16c|avx2|avx_vnni|avx_ifma|avx_ne_convert|avx512\w+|amx_\w+|asimd\w*|sve2?|sme2?"
    r"|i8mm|bf16"
)
# Environment variables that affect which code libraries use, or the order of their sums.
SETTINGS = (
    "DNNL_MAX_CPU_ISA", "MKL_NUM_THREADS", "NPY_DISABLE_CPU_FEATURES", "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS", "ONEDNN_DEFAULT_FPMATH_MODE", "ONEDNN_MAX_CPU_ISA", "OPENBLAS_CORETYPE",
    "OPENBLAS_NUM_THREADS", "TF_CUDNN_DETERMINISTIC", "TF_ENABLE_ONEDNN_OPTS", THREADS,
    "TF_XLA_FLAGS", "XLA_FLAGS",
)  # fmt: skip


def facts(cpuinfo: Path = CPUINFO, variables: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Collect processor, instruction sets, cores, GPUs and settings, as far as the system reports them."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    return {
        "processor": named[1] if named else platform.processor() or platform.machine(),
        "instruction_sets": sorted(filter(SETS.fullmatch, flags[1].split() if flags else ())),
        "cores": cores(),
        "gpus": _gpus(),
        "settings": {name: variables[name] for name in SETTINGS if name in variables},
    }


def cores() -> int:
    """The number of cores that this process may use, and of TensorFlow's threads within one operation."""
    return len(os.sched_getaffinity(0))


def _gpus() -> list[str]:
    """The names of NVIDIA's GPUs."""
    try:
        command = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
        done = programs.run(command, limit_s=limits.LISTING_S, guarded=False)
    except (programs.Missing, programs.TimedOut):
        return []
    return [] if done.code else [line.strip() for line in done.output.splitlines() if line.strip()]
