"""After a power cut just after a stage, its outputs are whole: they were flushed to the disk."""

import shutil
from pathlib import Path

import pytest
from support.checkout import Checkout

from perennial.base import config
from perennial.base.project import stages
from perennial.project.rehearsal import marked_programs

STAGES = ("download", "convert", "validate", "train", "evaluate", "export", "gate")


@pytest.mark.fast_rows("convert", "gate")
@pytest.mark.parametrize("stage", STAGES)
def test_all_outputs_of_a_stage_are_flushed(reproduced: Checkout, tmp_path: Path, stage: str) -> None:
    if reason := marked_programs.no_trace():
        pytest.skip(reason)
    checkout = Checkout(tmp_path / "the project", reproduced.home)
    shutil.copytree(reproduced.folder, checkout.folder, symlinks=True)
    shutil.rmtree(checkout.folder / ".work")
    paths = config.load(checkout.folder / "params.yaml").paths
    outs = [
        out for name in stages.STAGES[stage].outputs if (out := checkout.folder / getattr(paths, name)).exists()
    ]
    for out in outs:
        shutil.rmtree(out) if out.is_dir() else out.unlink()
    trace = tmp_path / "trace"
    checkout.must(*marked_programs.strace(trace), "perennial", stage)
    files = [file for out in outs for file in ([out] if out.is_file() else out.rglob("*")) if file.is_file()]
    assert marked_programs.unsynced(trace, files, checkout.folder) == []
    assert files
