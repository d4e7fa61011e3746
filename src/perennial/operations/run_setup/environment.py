"""The packages of a run: one environment per lock, created once from the hash-locked requirements."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from perennial.base.errors import ConfigError, PerennialError, redacted
from perennial.base.project.layout import Project
from perennial.base.runtime import locks

REQUIREMENTS = "PERENNIAL_REQUIREMENTS"  # such as `gpu`, or `base onnx`: names of files in requirements/
S3 = "s3"  # the lock of older revisions with the packages for S3, which base.txt has now
READY = "perennial-ready"  # written last
INSTALLED = "installed"  # in an environment that `make install` made: the digests of its lock files
LINES = 5  # of an installer's message


def python_for(
    home: Path,
    checkout: Path,
    log: Callable[[str], None],
    variables: Mapping[str, str] = os.environ,
    *,
    own: bool = True,
) -> Path:
    """Return a Python that has the packages of a checkout's lock files.

    It is this process's own if `own` allows it and `make install` installed it from the same files; else that
    of an environment in `home`, which the first run with a lock creates.

    Raises:
        ConfigError: the checkout has no such lock file.
        PerennialError: the packages cannot be installed.
    """
    files = _lock_files(checkout, variables.get(REQUIREMENTS) or S3)
    digests = {hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    installed = Path(sys.prefix, INSTALLED)
    if own and installed.is_file() and digests <= set(installed.read_text(encoding="utf-8").split()):
        return Path(sys.executable)
    key = hashlib.sha256("\n".join([*sorted(digests), platform.python_version()]).encode()).hexdigest()[:16]
    folder = home / "environments" / key
    with locks.inherited(home / "locks" / f"environment-{key}.lock") as lock:
        if not (folder / READY).exists():
            names = ", ".join(f"requirements/{file.name}" for file in files)
            log(f"installing the packages of {names} into {folder}; later runs with this lock use them, too")
            if folder.exists():
                shutil.rmtree(folder)  # of a run that was killed
            try:
                _install(folder, files, lock)
            except PerennialError as error:
                raise PerennialError(
                    f"the packages of {names} cannot be installed on {platform.node()}: {error}; "
                    "look at the package index of this machine (pip.conf), then start the run again"
                ) from error
        (folder / READY).touch()  # `perennial gc` keeps what was used recently
    return folder / "bin" / "python"


def _lock_files(checkout: Path, names: str) -> list[Path]:
    folder, wanted = Project.find(checkout).root / "requirements", set(names.replace(",", " ").split())
    if S3 in wanted and not (folder / f"{S3}.txt").is_file():
        wanted = wanted - {S3} | {"base"}
    files = [folder / f"{name}.txt" for name in sorted(wanted)]
    if missing := [file.name for file in files if not file.is_file()]:
        raise ConfigError(
            f"requirements/{missing[0]} is not in this revision, so its packages are unknown; choose another "
            f"revision, or correct {REQUIREMENTS} of the worker"
        )
    return files


def _install(folder: Path, files: Sequence[Path], lock: int) -> None:
    """Create the environment with uv, or with pip if uv is missing or cannot reach the package index.

    Mirrors are usually set in pip.conf, which uv does not read. The installers inherit the lock, so that
    the next run does not write into the folder of an installer whose parent was killed.
    """
    python = folder / "bin" / "python"
    wanted = ["--require-hashes", *(f"--requirement={file}" for file in files)]
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], lock)
    beside = Path(sys.executable).with_name("uv")
    uv = shutil.which("uv") or (str(beside) if beside.exists() else None)
    if uv:
        try:
            _run([uv, "pip", "install", "--quiet", f"--python={python}", *wanted], lock)
        except PerennialError:
            pass
        else:
            return
    _run([str(python), "-m", "ensurepip"], lock)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    newer = files[0].with_name("pip.txt")
    if newer.is_file():  # Python 3.11's pip does not treat `prefect[x]==1` as a pin of `prefect`
        _run([*pip, "--require-hashes", f"--requirement={newer}"], lock)
    _run([*pip, *wanted], lock)


def _run(command: Sequence[str], lock: int) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
        pass_fds=[lock],
    )  # fmt: skip
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise PerennialError(redacted(" ".join(lines[-LINES:])) or f"{command[0]}: exit code {done.returncode}")
