"""The files in benchmarks/results: what was measured, on what, with which versions."""

import json
import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.timing import ROOT, RUNS, SCALE

PACKAGES = ("numpy", "pillow", "protobuf", "google-crc32c", "xxhash", "tensorflow", "keras", "prefect", "dvc")


def write(subject: str, **measured: Any) -> None:
    """Writes a subject's results; those of a smaller scale are for trying things out and go elsewhere."""
    folder = ROOT / ("benchmarks" if SCALE == 1 else ".work/benchmarks") / "results"
    result = {
        "machine": machine(),
        "revision": revision(),
        "runs": RUNS,
        "scale": SCALE,
        "versions": {package: version(package) for package in PACKAGES},
        **measured,
    }
    file = folder / f"{subject}.json"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    print(f"\n{file.relative_to(ROOT)} written")


def machine() -> dict[str, Any]:
    """What a time depends on."""
    return {
        "processor": _first(r"model name\s*: (.*)", Path("/proc/cpuinfo")) or platform.processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(int(_first(r"MemTotal:\s*(\d+) kB", Path("/proc/meminfo")) or 0) / 1e6, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def revision() -> str:
    """The commit that was measured, marked where the working tree differs from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def _first(pattern: str, file: Path) -> str | None:
    found = re.search(pattern, file.read_text(encoding="utf-8")) if file.exists() else None
    return found[1] if found else None
