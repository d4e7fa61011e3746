"""TensorFlow's import in a process of ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

WITH_TENSORFLOW = """
import gc, sys
from pathlib import Path
from perennial.base.processes.tensorflow import UNUSED_BY_KERAS, import_with_tensorflow
import_with_tensorflow("perennial.base.devices.devices", Path(sys.argv[1]))
print("keras" in sys.modules, *(name for name in UNUSED_BY_KERAS if name in sys.modules))
import scipy.special
assert gc.isenabled()
"""
NAME = "TF_FORCE_GPU_ALLOW_GROWTH"
WITHOUT = f"""
import os, sys
from pathlib import Path
from perennial.base.processes.tensorflow import import_with_tensorflow
import_with_tensorflow("perennial.base.errors", Path(sys.argv[1]), needed=False)
print("keras" in sys.modules, os.environ["{NAME}"])
"""


def said(program: str, folder: Path, **variables: str) -> str:
    """What a process that imports something prints, which is all."""
    environment = {key: value for key, value in os.environ.items() if key != NAME} | variables
    command = [sys.executable, "-c", program, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.slow
def test_it_leaves_out_packages_that_nothing_uses_and_they_can_be_imported_later(tmp_path: Path) -> None:
    assert said(WITH_TENSORFLOW, tmp_path) == "True\n"


@pytest.mark.parametrize(("chosen", "used"), [({}, "true"), ({NAME: "false"}, "false")])
def test_a_module_that_does_without_tensorflow_loads_none_and_its_children_share_gpus(
    tmp_path: Path, chosen: dict[str, str], used: str
) -> None:
    assert said(WITHOUT, tmp_path, **chosen) == f"False {used}\n"
