"""After a power cut just after a stage, its outputs are whole: they were flushed to the disk."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.checkout import Checkout

from perennial.base import config
from perennial.base.project import stage_table

STAGES = ("download", "convert", "validate", "train", "evaluate", "export", "gate")
CALLS = "fsync,fdatasync,sync_file_range,rename,renameat,renameat2,write,pwrite64,writev,ftruncate"
STRACE = ("strace", "-f", "-qq", "-y", "-s", "0", "--seccomp-bpf", "-e", f"trace={CALLS}", "-o")
# `write(3</a/b>, ...` and `rename("/a", "/b")`; a call that another thread interrupts is in two lines.
ON_FILE = re.compile(r"^(?:\d+ +)?(\w+)\(\d+<(/[^>]*)>")
RENAME = re.compile(r'^(?:\d+ +)?renam\w+\((?:[^"]*)"([^"]*)", (?:[^"]*)"([^"]*)"')
FLUSHES = ("fsync", "fdatasync")
WRITE, FLUSH = "write(3</p/.a.tmp>, ..., 5) = 5", "fsync(3</p/.a.tmp>) = 0"
RENAMED, FLUSH_FOLDER = 'rename("/p/.a.tmp", "/p/a") = 0', "fsync(4</p>) = 0"


def unsynced(trace: Path, outputs: Sequence[Path], folder: Path) -> list[Path]:
    """Find the `outputs` that were not flushed after their last write, or whose rename was not flushed.

    A rename is on the disk once its parent folder was flushed. Relative paths start at `folder`.
    """
    written: dict[str, None] = {}  # files whose content may be lost
    renamed: dict[str, None] = {}  # folders in which a name may be lost
    for line in trace.read_text(encoding="utf-8", errors="replace").splitlines():
        if found := ON_FILE.match(line):
            call, path = found.groups()
            if call in FLUSHES:
                written.pop(path, None)
                renamed.pop(path, None)
            else:
                written[path] = None
        elif (found := RENAME.match(line)) and " = -1 " not in line:
            source, target = (str(folder / name) for name in found.groups())
            written = {_moved(each, source, target): None for each in written}
            renamed = {_moved(each, source, target): None for each in renamed}
            renamed[str(Path(target).parent)] = None
    return [file for file in outputs if str(file) in written or str(file.parent) in renamed]


def _moved(path: str, source: str, target: str) -> str:
    """The new name of a path after it or one of its parents was renamed."""
    return target + path[len(source) :] if path == source or path.startswith(f"{source}/") else path


@pytest.mark.parametrize(
    ("lines", "lost"),
    [
        ((WRITE, FLUSH, RENAMED, FLUSH_FOLDER), 0),
        ((WRITE, RENAMED, FLUSH_FOLDER), 1),
        ((WRITE, FLUSH, RENAMED), 1),
        ((WRITE, FLUSH, 'rename(".a.tmp", "a") = 0', FLUSH_FOLDER), 0),
        (("fsync(3</p/a>) = 0", "write(3</p/a>, ..., 5) = 5"), 1),
    ],
)
def test_a_trace_shows_what_was_not_flushed_before_it_got_its_name(tmp_path, lines, lost) -> None:
    file = tmp_path / "trace"
    file.write_text("".join(f"12 {line}\n" for line in lines))
    assert unsynced(file, [Path("/p/a")], Path("/p")) == [Path("/p/a")] * lost


@pytest.mark.fast_rows("gate")
@pytest.mark.parametrize("stage", STAGES)
def test_all_outputs_of_a_stage_are_flushed(reproduced: Checkout, tmp_path: Path, stage: str) -> None:
    allowed = shutil.which("strace") and subprocess.run(["strace", "-o", "/dev/null", "true"], check=False)
    if not allowed or allowed.returncode:
        pytest.skip("needs strace, which may trace")
    checkout = Checkout(tmp_path / "the project", reproduced.home)
    shutil.copytree(reproduced.folder, checkout.folder, symlinks=True)
    shutil.rmtree(checkout.folder / ".work")
    paths = config.load(checkout.folder / "params.yaml").paths
    made = stage_table.STAGES[stage].outputs
    outs = [out for name in made if (out := checkout.folder / getattr(paths, name)).exists()]
    for out in outs:
        shutil.rmtree(out) if out.is_dir() else out.unlink()
    trace = tmp_path / "trace"
    checkout.must(*STRACE, str(trace), "perennial", stage)
    files = [file for out in outs for file in ([out] if out.is_file() else out.rglob("*")) if file.is_file()]
    assert unsynced(trace, files, checkout.folder) == []
    assert files
