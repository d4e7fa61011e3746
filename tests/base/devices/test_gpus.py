"""Which GPUs there are, and which of them CUDA_VISIBLE_DEVICES leaves."""

import pytest

from perennial.base.devices import gpus
from perennial.base.errors import ConfigError

WHOLE = """\
GPU 0: NVIDIA H200 (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
GPU 1: NVIDIA H200 (UUID: GPU-c6d4f1ef-42e4-7de3-91c7-45d71c87eb3f)
"""
SPLIT = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 3g.20gb     Device  1: (UUID: MIG-0c757cd7-e942-5726-a0b8-0e8fb7067135)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-1b2c3d4e-d33d-2b2c-524d-9e3d8d2b8a77)
"""
ONE, TWO = "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77", "GPU-c6d4f1ef-42e4-7de3-91c7-45d71c87eb3f"
LEFT, RIGHT = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", "MIG-0c757cd7-e942-5726-a0b8-0e8fb7067135"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine whose `nvidia-smi -L` prints a text, and without a driver's own files."""
    for name in (gpus.VISIBLE, gpus.LISTED):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gpus, "DEVICES", tmp_path / "devices")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    def install(text, code=0):
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\nexit {code}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return install


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (WHOLE, [ONE, TWO]),
        (SPLIT, [LEFT, RIGHT, "GPU-1b2c3d4e-d33d-2b2c-524d-9e3d8d2b8a77"]),
        ("No devices\n", []),
    ],
)
def test_the_driver_s_program_lists_gpus_and_their_parts(machine, text, expected):
    machine(text)
    assert gpus.visible() == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0", [ONE]), ("1,0", [TWO, ONE]), (" 1 ", [TWO]), (TWO, [TWO]), ("GPU-c6d4", [TWO]), ("GPU-", []),
        ("", []), ("-1", []), ("0,-1,1", [ONE]), ("0,7,1", [ONE]), ("0,0", [ONE]), ("NoDevFiles", []),
    ],
)  # fmt: skip
def test_cuda_s_own_variable_leaves_those_that_it_names(machine, monkeypatch, value, expected):
    machine(WHOLE)
    monkeypatch.setenv(gpus.VISIBLE, value)
    assert gpus.visible() == expected


def test_without_the_program_the_devices_are_counted(machine, tmp_path):
    assert gpus.found() == []
    for name in ("nvidia1", "nvidia0", "nvidia10", "nvidiactl", "nvidia-uvm", "null"):
        tmp_path.joinpath("devices").mkdir(exist_ok=True)
        tmp_path.joinpath("devices", name).touch()
    machine("Failed to initialize NVML\n", code=9)
    assert gpus.visible() == ["0", "1", "10"]


@pytest.mark.parametrize("text", ["0,0", "../x,1", "a b"])
def test_invalid_names_are_refused(machine, monkeypatch, text):
    monkeypatch.setenv(gpus.LISTED, text)
    with pytest.raises(ConfigError, match="PERENNIAL_GPUS must be different names"):
        gpus.visible()
