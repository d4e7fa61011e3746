"""TensorFlow's import in a process of ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import gc, sys
from pathlib import Path
from perennial.base.processes.tensorflow import UNUSED_BY_KERAS, import_with_tensorflow
import_with_tensorflow("perennial.base.devices.devices", Path(sys.argv[1]))
print("keras" in sys.modules, *(name for name in UNUSED_BY_KERAS if name in sys.modules))
import scipy.special, sklearn
assert gc.isenabled()
"""


def test_it_leaves_out_packages_that_nothing_uses_and_they_can_be_imported_later(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_a_module_that_does_without_tensorflow_does_not_load_it(tmp_path: Path) -> None:
    program = PROGRAM.replace("base.devices.devices", "stages.gate").replace("))\n", "), needed=False)\n", 1)
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()[0], done.stderr) == (0, "False", "")


@pytest.mark.parametrize(("chosen", "used"), [(None, "true"), ("false", "false")])
def test_a_process_takes_only_the_memory_of_a_gpu_that_it_needs(
    tmp_path: Path, chosen: str | None, used: str
) -> None:
    name = "TF_FORCE_GPU_ALLOW_GROWTH"
    program = f"""
import os, sys
from pathlib import Path
from perennial.base.processes.tensorflow import import_with_tensorflow
import_with_tensorflow("perennial.stages.gate", Path(sys.argv[1]), needed=False)
print(os.environ["{name}"])
"""
    environment = {key: value for key, value in os.environ.items() if key != name}
    environment |= {name: chosen} if chosen else {}
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == f"{used}\n"
