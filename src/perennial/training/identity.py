"""What makes two trainings the same one, so that a checkpoint of the one continues the other."""

import hashlib
import json
import platform
from importlib.metadata import version
from pathlib import Path

from perennial.config import Config

# How the work is shared out and where things are kept; equal results but for rounding.
NEUTRAL = {"devices", "all_reduce", "intra_op_threads", "inter_op_threads", "cache"}
PACKAGES = ("tensorflow", "keras")
CODE = (
    "evaluation/inference.py",
    "evaluation/scoring.py",
    "models",
    "preprocessing",
    "records/pipeline.py",
    "records/splits.py",
    "stages/train.py",
    "training",
)


def digest(config: Config, *, manifest: str, weights: str | None) -> str:
    """SHA-256 over parameters, data (the manifest's digest), code, packages and the weights it starts from."""
    train = config.train.model_dump(mode="json", exclude=NEUTRAL)
    parts = {
        "code": _code(),
        "data": manifest,
        "model": config.model.model_dump(mode="json"),
        "packages": {package: version(package) for package in PACKAGES},
        "preprocessing": config.preprocessing.model_dump(mode="json"),
        "train": train,
        "weights": weights,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that compute a training."""
    return {"python": platform.python_version(), **{name: version(name) for name in (*PACKAGES, "numpy")}}


def _code() -> dict[str, str]:
    """The SHA-256 of each source file that decides what a training does, by its name in the package."""
    package = Path(__file__).resolve().parents[1]
    found = [file for part in CODE for file in (package / part).rglob("*.py")]
    found += [package / part for part in CODE if part.endswith(".py")]
    return {
        str(file.relative_to(package)): hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(found)
    }
