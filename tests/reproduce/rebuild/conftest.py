"""A small project with stages of the real names, two versions, an own folder of images, and a DVC remote."""

import hashlib
import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from support.parameters import change_params
from support.pipelines import ROOT, Project

PIPELINE = Path(__file__).with_name("pipeline.yaml").read_text(encoding="utf-8")
FETCH = """\
import pathlib, sys, tarfile
photos, raw = pathlib.Path(sys.argv[1] if sys.argv[1:] else "photos"), pathlib.Path("data/raw")
raw.mkdir(parents=True, exist_ok=True)
with tarfile.open(raw / "images.tar", "w") as tar:
    for file in sorted(path for path in photos.rglob("*") if path.is_file()):
        info = tarfile.TarInfo(file.relative_to(photos).as_posix())
        info.size = file.stat().st_size
        with file.open("rb") as content:
            tar.addfile(info, content)
"""
WEIGHTS = """\
import hashlib, json, pathlib, shutil, sys
pinned = json.loads(pathlib.Path("pins/weights.json").read_text())["warm_start"]["sha256"]
if hashlib.sha256(pathlib.Path("start/weights").read_bytes()).hexdigest() != pinned:
    sys.exit("start/weights was replaced")
shutil.copytree("start", "data/initial_weights")
"""
# As that of a training, its result depends on the instruction set and the number of threads.
TRAIN = """\
import hashlib, json, os, pathlib
threads = os.environ.get("TF_NUM_INTRAOP_THREADS") or str(len(os.sched_getaffinity(0)))
parts = [pathlib.Path(name).read_bytes() for name in ("data/raw/images.tar", "data/initial_weights/weights",
         "src/perennial.txt", "requirements/train.yaml")]
parts += [threads.encode(), os.environ.get("ONEDNN_MAX_CPU_ISA", "").encode()]
parts += [pathlib.Path("params.yaml").read_bytes()]
for name in ("weights", "export"):
    folder = pathlib.Path("models", name)
    folder.mkdir(parents=True)
    (folder / "model").write_text(name + hashlib.sha256(b"".join(parts)).hexdigest())
"""
CHAMPION = """\
import json, pathlib, subprocess, sys
pinned = json.loads(pathlib.Path("pins/champion.json").read_text())["commit"]
if pinned is None:
    pathlib.Path("metrics/champion").mkdir(parents=True)
else:
    command = ["dvc", "get", "-q", ".", "models/export", "--rev", pinned, "--out", "metrics/champion"]
    sys.exit(subprocess.run(command).returncode)
"""
GATE = """\
import json, pathlib
model = pathlib.Path("models/weights/model").read_text()
found = {"accuracy": 0.9, "data": "d" * 64, "model": model}
decision = {"promote": True, "reasons": [], "candidate": found, "champion": None}
pathlib.Path("metrics/decision.json").write_text(json.dumps(decision))
"""
NUMPY = version("numpy")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with the versions v0.0.1 and v0.0.2, pushed."""
    base = tmp_path_factory.mktemp("rebuild")
    project = Project(base / "project", base / "home")
    sha256 = hashlib.sha256(b"start").hexdigest()
    weights = {"imagenet": None, "warm_start": {"path": "start", "bytes": 5, "sha256": sha256}}
    project.start({
        **{f"photos/{name}": f"picture {name}" for name in ("cat/0.png", "cat/1.png", "dog/2.png")},
        "params.yaml": (ROOT / "params.yaml").read_text(), "dvc.yaml": PIPELINE, "fetch.py": FETCH,
        "weights.py": WEIGHTS, "train.py": TRAIN, "gate.py": GATE, "champion.py": CHAMPION,
        "src/perennial.txt": "code\n", "start/weights": "start",
        "pins/weights.json": json.dumps(weights),
        "pins/champion.json": json.dumps({"commit": None, "version": None}),
        "requirements/train.yaml": f'packages:\n  numpy: "{NUMPY}"\n',
        "requirements/base.txt": f"numpy=={NUMPY}\n",
        ".gitignore": "/data/\n/models/\n/metrics/\n/photos/\n/start/\n/.work/\n/runs/\n",
    })  # fmt: skip
    values = {"dataset.name": "image_folder", "dataset.path": "photos", "train.warm_start.path": "start"}
    change_params(project.folder / "params.yaml", values)
    project.must("dvc", "remote", "add", "-q", "-d", "store", str(base / "store"))
    project.git("add", ".")
    project.git("commit", "-qm", "Start")
    project.git("clone", "-q", "--bare", ".", str(base / "origin"))
    project.git("remote", "add", "origin", str(base / "origin"))
    for seed in (1, 2):
        change_params(project.folder / "params.yaml", {"train.seed": seed})
        project.must("dvc", "repro", "-q", "train")
        project.perennial("pin", "champion")
        project.must("dvc", "repro", "-q")
        project.perennial("promote", "--push")
    return project


@pytest.fixture
def project(made: Project, tmp_path: Path) -> Project:
    """A copy of it, with its own git and DVC remotes."""
    copied = made.copied(tmp_path / "copy")
    copied.must("dvc", "remote", "modify", "-q", "--local", "store", "url", str(tmp_path / "copy" / "store"))
    return copied


@pytest.fixture
def rebuild(project: Project) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Rebuild a revision: exit code and document."""

    def run(revision: str, *options: str, **extra: str) -> tuple[int, dict[str, Any]]:
        done = project.run("perennial", "rebuild", revision, "--json", *options, **extra)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run
