"""The programs that perennial is measured against, each a whole process, and the environments they run in.

Every file beside this one is a program that imports its own libraries and nothing of perennial.
"""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.timing import ENVIRONMENT, ROOT

HERE = ROOT / "benchmarks" / "peers"
LOCKS = {"peers": ROOT / "requirements" / "peers.txt", "tfdv": HERE / "tfdv.txt", "drift": HERE / "drift.txt"}
# Without dependencies: the locks are complete, and pip with hashes stumbles over extras that they leave out.
INSTALL = ("-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--require-hashes", "-r")
VERSIONS = """import json, sys, importlib.metadata
print(json.dumps({package: importlib.metadata.version(package) for package in sys.argv[1:]}))"""


class NotInstallable(Exception):
    """The packages of a lock cannot be had here; says why."""


def command(program: str, *arguments: object, lock: str = "peers") -> tuple[str, ...]:
    """The command line of a peer, its environment installed."""
    return (str(python(lock)), str(Path(__file__).with_name(f"{program}.py")), *map(str, arguments))


def versions(*packages: str, lock: str = "peers") -> dict[str, str]:
    """The versions that a peer's environment has."""
    listed = subprocess.run(
        [python(lock), "-c", VERSIONS, *packages], env=ENVIRONMENT, capture_output=True, check=True, text=True
    )
    found: dict[str, str] = json.loads(listed.stdout)
    return found


def python(lock: str) -> Path:
    """The interpreter of an environment that holds what a lock names; made on first use.

    Raises:
        NotInstallable: the packages cannot be had, such as for this Python.
    """
    file = LOCKS[lock]
    digest = hashlib.sha256(file.read_bytes() + sys.version.encode()).hexdigest()[:8]
    folder = ROOT / ".work" / "benchmarks" / f"{lock}-{digest}"
    if not (folder / "ready").exists():
        print(f"installing {file.relative_to(ROOT)} into {folder.relative_to(ROOT)} (once)", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        _must([sys.executable, "-m", "venv", str(folder)])
        _must([str(folder / "bin" / "python"), *INSTALL, str(file)])
        (folder / "ready").touch()
    return folder / "bin" / "python"


def _must(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr + done.stdout).splitlines() or ["no reason given"]
        errors = [line for line in said if line.startswith("ERROR")] or said[-1:]
        raise NotInstallable(f"{command[-1]} on Python {sys.version.split()[0]}: {errors[0]}")
