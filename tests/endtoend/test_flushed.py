"""After a power cut just after a stage, its outputs are whole: they were flushed to the disk."""

import shutil
from pathlib import Path

import pytest
from support.checkout import Checkout

from perennial.rehearsal import programs

OUTS = {
    "download": ("data/raw",),
    "convert": ("data/records",),
    "train": ("models/weights", "metrics/training.json", "metrics/curves"),
    "evaluate": ("metrics/scores.json", "metrics/predictions.npz", "metrics/label_errors.json"),
    "export": ("models/export",),
    "gate": ("metrics/decision.json",),
}


@pytest.mark.parametrize(
    "stage", [stage if stage == "train" else pytest.param(stage, marks=pytest.mark.slow) for stage in OUTS]
)
def test_all_outputs_of_a_stage_are_flushed(reproduced: Checkout, tmp_path: Path, stage: str) -> None:
    if reason := programs.no_trace():
        pytest.skip(reason)
    checkout = Checkout(tmp_path / "the project", reproduced.home)
    shutil.copytree(reproduced.folder, checkout.folder, symlinks=True)
    shutil.rmtree(checkout.folder / ".work")
    outs = [checkout.folder / out for out in OUTS[stage]]
    for out in outs:
        shutil.rmtree(out) if out.is_dir() else out.unlink()
    trace = tmp_path / "trace"
    checkout.must(*programs.strace(trace), "perennial", stage)
    files = [file for out in outs for file in ([out] if out.is_file() else out.rglob("*")) if file.is_file()]
    assert programs.unsynced(trace, files, checkout.folder) == []
    assert len(files) >= len(outs)
