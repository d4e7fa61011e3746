"""Versions of a small project made again, and planted differences, each named as the cause.

The project has stages of the real names, two versions, an own folder of images, and a DVC remote.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from support.edits import edit
from support.parameters import change_params
from support.pipelines import ROOT, Project

pytestmark = pytest.mark.slow  # each runs five stages
Rebuild = Callable[..., tuple[int, dict[str, Any]]]
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


@pytest.fixture(scope="module")
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
def rebuild(project: Project) -> Rebuild:
    """Rebuild a revision: exit code and document."""

    def run(revision: str, *options: str, **extra: str) -> tuple[int, dict[str, Any]]:
        done = project.run("perennial", "rebuild", revision, "--json", *options, **extra)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


def commit(project: Project) -> None:
    project.git("commit", "-qam", "Planted")


def replace(project: Project, file: str, old: str, new: str) -> None:
    edit(project.folder / file, old, new)
    commit(project)


def objects(project: Project, path: str) -> list[Path]:
    """The objects of an output in DVC's remote."""
    lock = (project.folder / "dvc.lock").read_text()
    digest = lock.partition(f"- path: {path}\n")[2].partition(" md5: ")[2].split()[0]
    store = project.folder.parent / "store" / "files" / "md5"
    listed = store / digest[:2] / digest[2:]
    members = json.loads(listed.read_text()) if digest.endswith(".dir") else []
    return [listed, *(store / each["md5"][:2] / each["md5"][2:] for each in members)]


def delete_all_but_git_and_remote(project: Project) -> None:
    for name in ("photos", "start", "data", "models", "metrics", ".dvc/cache"):
        shutil.rmtree(project.folder / name)


def test_the_first_version_is_rebuilt_from_git_and_the_remote_alone(project: Project, rebuild: Rebuild) -> None:
    delete_all_but_git_and_remote(project)
    code, done = rebuild("v0.0.1")
    assert (code, done["equal"], done["restored"]) == (0, True, ["download", "initialize"])
    states = {"download": "source gone", "initialize": "source gone"}
    assert done["stages"] == dict.fromkeys(done["stages"], "equal") | states
    assert len(set(done["lock_sha256"].values())) == 1
    assert [each["kind"] for each in done["causes"]] == ["source", "weights"]
    assert not list((project.home / ".perennial" / "rebuilds").iterdir())


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the machine has one core")
def test_a_version_is_rebuilt_on_a_machine_with_fewer_cores(project: Project, rebuild: Rebuild) -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        code, done = rebuild("v0.0.2")
    finally:
        os.sched_setaffinity(0, cores)
    assert (code, done["equal"]) == (0, True)


def line_of_code(project: Project) -> None:
    replace(project, "src/perennial.txt", "code", "other code")


def parameter(project: Project) -> None:
    change_params(project.folder / "params.yaml", {"train.epochs": 77})
    commit(project)


def flipped_pixel(project: Project) -> None:
    (project.folder / "photos" / "cat" / "0.png").write_text("pictura cat/0.png")


def flipped_tracked(project: Project) -> None:
    """Data in git: a part of the revision, so the archive does not help."""
    project.git("add", "--force", "photos")
    commit(project)
    replace(project, "photos/cat/0.png", "picture", "pictura")


def weights_file(project: Project) -> None:
    (project.folder / "start" / "weights").write_text("other")


def missing(project: Project) -> None:
    objects(project, "models/export")[-1].unlink()


def damaged(project: Project) -> None:
    file = objects(project, "models/weights")[-1]
    file.chmod(0o600)
    file.write_bytes(file.read_bytes()[::-1])


def edited_lock(project: Project) -> None:
    """A digest of an output; nothing that the stage reads."""
    lock = (project.folder / "dvc.lock").read_text()
    digest = lock.partition("- path: metrics/decision.json\n")[2].partition(" md5: ")[2].split()[0]
    replace(project, "dvc.lock", digest, digest[::-1])


def lost(project: Project) -> None:
    """The source is gone, and so are the originals."""
    shutil.rmtree(project.folder / "photos")
    objects(project, "data/raw")[-1].unlink()


ISA = {"ONEDNN_MAX_CPU_ISA": "SSE41"}
# Kind and what of the cause; then the exit code.
PLANTED: dict[str, tuple[Callable[[Project], object], dict[str, str], str, str, int]] = {
    "line of code": (line_of_code, {}, "code", "src", 4),
    "parameter": (parameter, {}, "parameters", "train.epochs", 4),
    "flipped pixel": (flipped_pixel, {}, "source", "photos", 0),
    "flipped pixel in git": (flipped_tracked, {}, "data", "photos", 4),
    "weights file": (weights_file, {}, "weights", "initial weights", 0),
    "missing object": (missing, {}, "remote", "models/export/model", 0),
    "damaged object": (damaged, {}, "remote", "models/weights/model", 0),
    "instruction set": (lambda _: None, ISA, "hardware", "ONEDNN_MAX_CPU_ISA", 4),
    "dvc.lock": (edited_lock, {}, "remote", "metrics/decision.json", 4),
    "source and originals": (lost, {}, "remote", "data/raw", 4),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_is_named_as_the_cause(project: Project, rebuild: Rebuild, name: str) -> None:
    plant, extra, kind, what, code = PLANTED[name]
    plant(project)
    found, done = rebuild("HEAD", **extra)
    causes = [(each["kind"], each["what"]) for each in done["causes"]]
    assert (found, done["equal"], (kind, what) in causes) == (code, code == 0, True), done["causes"]
    if plant is lost:
        assert done["stages"]["gate"] == "source gone"
    elif plant is edited_lock:
        assert [kind for kind, _ in causes][1:] == ["remote"]
    else:
        assert len(causes) == 1, causes


def test_a_revision_that_is_not_there_is_refused(project: Project) -> None:
    said = project.refused(2, "rebuild", "v0.0.9")
    assert ("commit v0.0.9" in said, said.count("\n")) == (True, 1)


def test_packages_that_are_not_those_of_the_lock_are_refused(project: Project) -> None:
    replace(project, "requirements/base.txt", "numpy==", "numpy==9.")
    said = project.refused(1, "rebuild", "HEAD", UV_NO_INDEX="1", PIP_NO_INDEX="1")
    assert "this Python differs from the lock: numpy is" in said


def test_a_version_that_is_recorded_wrongly_has_the_record_as_its_cause(project, rebuild) -> None:
    with (project.folder / "train.py").open("a") as stream:
        stream.write(
            "used = {'params': {'params.yaml': {'train.seed': 1}}, 'code': {}}\n"
            "pathlib.Path('metrics/training.json').write_text(json.dumps({'inputs': used}))\n"
        )
    replace(project, "dvc.yaml", "models/export]", "models/export, metrics/training.json]")
    project.must("dvc", "repro", "-q")
    project.must("dvc", "push", "-q")
    commit(project)
    code, done = rebuild("HEAD")
    (cause,) = (each for each in done["causes"] if each["kind"] == "record")
    assert "train.seed is 2 in dvc.lock, and the training used 1" in cause["what"]
    assert code == 4
