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
    """Writes a subject's results; those that nobody could check, of a changed tree, go into .work."""
    commit = revision()
    why = "" if SCALE == 1 else " (of a smaller scale)"
    why = why or ("" if commit else " (not of a commit: the working tree has other changes)")
    folder = ROOT / (".work/benchmarks" if why else "benchmarks") / "results"
    result = {
        "machine": machine(),
        "revision": commit or "unknown",
        "runs": RUNS,
        "scale": SCALE,
        "versions": {package: version(package) for package in PACKAGES},
        **measured,
    }
    file = folder / f"{subject}.json"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    print(f"\n{file.relative_to(ROOT)} written{why}")


def machine() -> dict[str, Any]:
    """What a time depends on."""
    return {
        "processor": _first(r"model name\s*: (.*)", Path("/proc/cpuinfo")) or platform.processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(int(_first(r"MemTotal:\s*(\d+) kB", Path("/proc/meminfo")) or 0) / 1e6, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def revision() -> str | None:
    """The commit that is measured; None if the working tree differs from it in more than these results."""
    status = _git("status", "--porcelain", "--", ".", ":!benchmarks/results", ":!dvc.lock", ":!metrics")
    return _git("rev-parse", "--short=12", "HEAD") if status == "" else None


def _git(*arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return None if done.returncode else done.stdout.strip()


def _first(pattern: str, file: Path) -> str | None:
    found = re.search(pattern, file.read_text(encoding="utf-8")) if file.exists() else None
    return found[1] if found else None
