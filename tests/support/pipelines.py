"""A small project under git and DVC: its stages take a moment, its registry is the real one."""

import atexit
import functools
import json
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvc.repo import Repo
from support import forks, raw
from support.git import IDENTITY

from perennial.base import config
from perennial.release.registry import current_champion

ROOT = Path(__file__).parents[2]
PIPELINE = """\
stages:
  train:
    cmd: {python} train.py
    deps: [data.txt, train.py]
    params: [train.seed]
    outs: [models/weights, models/export, metrics/metrics.json]
  gate:
    cmd: {python} gate.py
    deps: [metrics/metrics.json, gate.py]
    params:
      - pins/champion.json: [version]
    outs: [metrics/decision.json]
artifacts:
  classifier:
    path: models/export
    type: model
"""
TRAIN = """\
import hashlib, json, pathlib, re
train = pathlib.Path("params.yaml").read_text().partition("\\ntrain:")[2]
seed = int(re.search(r"\\n  seed: (\\d+)", train)[1])
text = pathlib.Path("data.txt").read_text() + (f"seed {seed}\\n" if seed else "")
accuracy = float(text.split()[0])
for name in ("weights", "export"):
    pathlib.Path("models", name).mkdir(parents=True)
    pathlib.Path("models", name, "model").write_text(text)
export, extra = pathlib.Path("models/export"), pathlib.Path("models/export/assets.extra")
extra.mkdir()
(extra / "model.json").write_text(json.dumps({"weights_sha256": text.strip(), "data": "d" * 64}))
names = ("assets.extra/model.json", "model")
digests = {name: hashlib.sha256((export / name).read_bytes()).hexdigest() for name in names}
(extra / "files.json").write_text(json.dumps(digests))
pathlib.Path("metrics").mkdir(exist_ok=True)
found = {"accuracy": accuracy, "data": "d" * 64, "model": text.strip()}
pathlib.Path("metrics/metrics.json").write_text(json.dumps(found))
"""
GATE = """\
import json, pathlib
found = json.loads(pathlib.Path("metrics/metrics.json").read_text())
opponent = json.loads(pathlib.Path("pins/champion.json").read_text())["version"]
promote = found["accuracy"] >= 0.5
decision = {"promote": promote, "reasons": [f"compared with {opponent}"], "candidate": found, "champion": None}
pathlib.Path("metrics/decision.json").write_text(json.dumps(decision))
"""


@dataclass(frozen=True)
class Project:
    """A clone of the small project."""

    folder: Path
    home: Path

    @property
    def cache(self) -> Path:
        """DVC's cache of the project."""
        return self.folder / ".dvc" / "cache"

    def environment(self, **extra: str) -> dict[str, str]:
        """Environment with an empty HOME and without a git identity."""
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        ours = {
            "PATH": forks.path(),
            "HOME": str(self.home),
            "PYTHONPATH": str(ROOT / "src"),
            "DO_NOT_TRACK": "1",
        }
        return {**kept, **ours, **extra}

    def start(self, texts: Mapping[str, str]) -> None:
        """Write files, and make the folder a repository with DVC."""
        self.home.mkdir(parents=True, exist_ok=True)
        raw.write_files(self.folder, texts)
        self.git("init", "-q", "-b", "main")
        self.must("dvc", "init", "-q")

    def run(self, *command: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run a program of this environment; `perennial` and `dvc` are forks."""
        program = [forks.python(), "-m", *command] if command[0] in {"perennial", "dvc"} else list(command)
        return subprocess.run(
            program, cwd=self.folder, env=self.environment(**extra), capture_output=True, text=True, check=False
        )

    def refused(self, code: int, *command: str, **extra: str) -> str:
        """Run a command of perennial that must end with this exit code; returns what it says."""
        done = self.run("perennial", *command, **extra)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
        return done.stderr

    def must(self, *command: str, **extra: str) -> str:
        """Run a program that must succeed; returns its output."""
        done = self.run(*command, **extra)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def git(self, *arguments: str) -> str:
        """The output of git, by a person with an identity."""
        return self.must("git", *IDENTITY, *arguments)

    def perennial(self, *arguments: str) -> Any:
        """The JSON that a command prints."""
        return json.loads(self.must("perennial", *arguments, "--json"))

    def data(self, text: str) -> None:
        """New data; the first word is the accuracy that its model reaches."""
        (self.folder / "data.txt").write_text(f"{text}\n")
        self.git("commit", "-qam", f"Data: {text}")

    def reproduce(self) -> None:
        """What a flow does before it records: pin the champion, then run the stages."""
        self._stages("train")
        with chdir(self.folder):  # in this process, because starting `perennial` takes a while
            current_champion.pin(config.load(Path("params.yaml")), fetch=True)
        self._stages("gate")

    def _stages(self, last: str) -> None:
        # Starting `dvc` takes a second.
        with chdir(self.folder), warnings.catch_warnings(), Repo() as repo:
            warnings.simplefilter("ignore")  # DVC's own
            repo.reproduce(last)

    def clone(self, name: str) -> "Project":
        """A clone of the remote, with this project's cache of DVC."""
        folder = self.folder.parent / name
        self.must("git", "clone", "-q", self.git("remote", "get-url", "origin"), str(folder))
        config = f"[cache]\n    dir = {self.folder / '.dvc' / 'cache'}\n"
        (folder / ".dvc" / "config.local").write_text(config)
        return Project(folder, self.home)

    def copied(self, base: Path) -> "Project":
        """A copy of this project and of the folders beside it, whose remote is the copy of its own."""
        shutil.copytree(self.folder.parent, base, symlinks=True)
        copy = Project(base / self.folder.name, base / self.home.name)
        remote = Path(self.git("remote", "get-url", "origin"))
        copy.git("remote", "set-url", "origin", str(base / remote.name))
        return copy

    def tags(self) -> list[str]:
        """Tags of this repository."""
        return self.git("tag", "--list").split()


def make(base: Path) -> Project:
    """A project whose first run is reproduced but not recorded, with a remote, in a path with a space."""
    return _made().copied(base)


@functools.cache
def _made() -> Project:
    """The first one of this process, which is copied."""
    folder = Path(tempfile.mkdtemp(prefix="pipelines-"))
    atexit.register(shutil.rmtree, folder)
    base = folder / "base"
    project = Project(base / "the project", base / "home")
    project.start({
        **{name: (ROOT / name).read_text() for name in ("params.yaml", ".gitattributes")},
        "dvc.yaml": PIPELINE.replace("{python}", "python -S"), "train.py": TRAIN, "gate.py": GATE,
        "data.txt": "0.8 first\n", ".gitignore": "/models/\n/metrics/\n/runs/\n/.work/\n",
        "pins/champion.json": '{\n  "commit": null,\n  "version": null\n}\n',
    })  # fmt: skip
    project.must("dvc", "config", "core.analytics", "false")
    project.git("add", ".")
    project.git("commit", "-qm", "Start")
    remote = base / "remote"
    project.git("clone", "-q", "--bare", ".", str(remote))
    project.git("remote", "add", "origin", str(remote))
    project.reproduce()
    return project


def recorded(base: Path) -> Project:
    """A project with a DVC remote and one version, `v0.0.1`."""
    project = make(base / "base")
    project.must("dvc", "remote", "add", "-d", "store", str(base / "store"))
    project.git("commit", "-qam", "Remote")
    project.git("push", "-q", "origin", "main")
    project.reproduce()
    project.perennial("record", "night-0")
    return project


def link_runs(project: Project) -> None:
    """Have the records of runs outside the project, as for a larger disk."""
    project.folder.with_name("runs").mkdir()
    (project.folder / "runs").symlink_to("../runs")


def fleet(base: Path, *names: str) -> dict[str, Project]:
    """A project with these further pipelines, by name; the one in the top folder has an empty name.

    The first run of each is reproduced but not recorded.
    """
    top = make(base)
    (top.folder / "flows").mkdir()
    (top.folder / "flows" / "retrain.py").write_text("# shared by all pipelines\n")
    ignored = "".join(f"/pipelines/*/{name}/\n" for name in ("models", "metrics", "runs", ".work"))
    with (top.folder / ".gitignore").open("a") as file:
        file.write(ignored)
    found = {"": top}
    for name in names:
        folder = top.folder / "pipelines" / name
        (folder / "pins").mkdir(parents=True)
        for file in ("params.yaml", "dvc.yaml", "train.py", "gate.py", "pins/champion.json"):
            shutil.copy(top.folder / file, folder / file)
        (folder / "data.txt").write_text(f"0.8 first {name}\n")
        found[name] = Project(folder, top.home)
    (top.folder / "dvc.lock").unlink()
    top.git("add", ".")
    top.git("commit", "-qm", "Pipelines")
    top.git("push", "-q", "origin", "main")
    for project in found.values():
        project.reproduce()
    return found
