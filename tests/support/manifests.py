"""What tools say about files of infra/, and what Kubernetes' schemas say about manifests."""

import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

VERSIONS = ("1.30", "1.37")  # of Kubernetes: the oldest and the newest


def passes(*command: object) -> bool:
    """Whether a tool accepts a file; the test is skipped where it is not installed."""
    program = shutil.which(str(command[0])) or shutil.which(str(command[0]), path=Path(sys.executable).parent)
    if program is None:
        pytest.skip(f"{command[0]} is not installed; `make infra` installs the Python ones")
    done = subprocess.run([program, *map(str, command[1:])], capture_output=True, text=True, check=False)
    sys.stdout.write(done.stdout + done.stderr)
    return done.returncode == 0


def is_compose(file: Path) -> bool:
    """Whether the schema of compose accepts a file."""
    return passes("check-jsonschema", "--builtin-schema", "vendor.compose-spec", file)


def are_valid(manifests: Iterable[Mapping[str, Any]], file: Path) -> bool:
    """Whether the schemas of the oldest and the newest version accept manifests, which the file holds then."""
    with file.open("w", encoding="utf-8") as written:
        YAML().dump_all(manifests, written)
    return all(passes("kubernetes-validate", "--strict", "-k", version, file) for version in VERSIONS)
