"""The package as it is installed: its wheel, in an environment of its own."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command without the variables of this Python; returns its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=True).stdout


def installed(folder: Path) -> Path:
    """Build and install the wheel, beside this Python's packages; returns the folder of its programs."""
    run(BIN / "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (built,) = folder.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    install = ("install", "-q", "--no-deps", "--no-index", built)
    run(sys.executable, "-m", "pip", "--python", python, *install, cwd=folder)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    # A path in a .pth file comes last, and .pth files in it are ignored: the editable install stays unseen.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent
