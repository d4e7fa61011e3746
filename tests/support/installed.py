"""A project that holds no source: perennial is a copy beside it, as pip installs one."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from support.edits import edit

from perennial.base.dvc.pipeline_file import of_project

ROOT = Path(__file__).parents[2]
COPIED = ("params.yaml", "components", "requirements", "pins", ".dvcignore")


@dataclass(frozen=True)
class Project:
    """The folder of a project, and of the packages that its programs import."""

    folder: Path
    packages: Path

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a module of Python in the project; its output and errors in one text."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        return subprocess.run(
            [sys.executable, "-m", *command],
            cwd=self.folder,
            env={
                **kept, "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}",
                "HOME": str(self.folder.parent), "PYTHONPATH": str(self.packages), "DO_NOT_TRACK": "1",
                **variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )  # fmt: skip

    def must(self, *command: str) -> str:
        """Run a module that must succeed; returns its output."""
        done = self.run(*command)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def edit(self, module: str, old: str, new: str) -> None:
        """Change the installed code of a module."""
        edit(self.packages / "perennial" / module, old, new, 1)

    def write_code(self) -> None:
        """Write code.yaml for the installed code."""
        program = "from perennial.base.project import code_digests; print(code_digests.content(), end='')"
        text = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": str(self.packages)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        (self.folder / "code.yaml").write_text(text, encoding="utf-8")


def make(folder: Path) -> Project:
    """Make a project with perennial beside it."""
    project = Project(folder / "shop", folder / "packages")
    project.folder.mkdir()
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "perennial", project.packages / "perennial", ignore=ignored)
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, project.folder / name)
    (project.folder / "own").mkdir()
    text = of_project((ROOT / "dvc.yaml").read_text(encoding="utf-8"))
    (project.folder / "dvc.yaml").write_text(text, encoding="utf-8")
    project.write_code()
    project.must("dvc", "init", "--no-scm", "-q")
    return project
