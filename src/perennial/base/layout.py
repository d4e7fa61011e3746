"""Where the files of a project stand: what its pipelines share, and what each has of its own.

A project has a pipeline in its top folder, others in `pipelines/<name>`, or only these:

    flows/ tasks/ components/ requirements/ .dvc/                  shared by all pipelines
    params.yaml dvc.yaml dvc.lock pins/ own/                        the pipeline of the top folder
    pipelines/birds/  params.yaml dvc.yaml dvc.lock pins/ own/      the pipeline `birds`

Every command works in the folder of its pipeline, to which all paths in params.yaml are relative.
"""

import os
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from perennial.base.errors import ConfigError

PACKAGE = Path(__file__).resolve().parents[1]  # the code that runs
PARAMS, STAGES = "params.yaml", "dvc.yaml"  # both make a folder a pipeline's
PIPELINES = "pipelines"  # folder in the project
FLOWS = "flows"
ENVIRONMENT_READY = "perennial-ready"  # in the environment of a run's packages, written last
CODE_DIGESTS = "code.yaml"  # digests of the code of each stage, in a project without source
# Names in a pipeline's folder, all in git.
OWN = (PARAMS, STAGES, "dvc.lock", "digests.json", "pins", "own", "labels")


@dataclass(frozen=True)
class Project:
    """A pipeline of a project; the two folders are the same for the pipeline in the top folder."""

    root: Path  # has flows/, tasks/, requirements/, components/ and .dvc
    folder: Path  # has params.yaml, dvc.yaml, dvc.lock, pins/ and own/

    @classmethod
    def find(cls, start: Path | None = None) -> "Project":
        """The pipeline that holds a folder; outside of all, the project above it, else the folder itself."""
        here = (Path.cwd() if start is None else start).absolute()
        for folder in (here, *here.parents):
            if (folder / PARAMS).is_file() and ((folder / STAGES).is_file() or folder == here):
                return cls(_root(folder), folder)
            if (folder / FLOWS).is_dir() and (folder / PIPELINES).is_dir():
                return cls(folder, folder)
        return cls(here, here)

    @property
    def name(self) -> str:
        """The pipeline's name: that of its folder; empty in the top folder."""
        return "" if self.folder == self.root else self.folder.name

    def shared(self, name: str | Path) -> Path:
        """The path of what all pipelines share, relative to the pipeline's folder, as in its dvc.yaml."""
        return Path(os.path.relpath(self.root / name, self.folder))

    def from_root(self, path: str | Path) -> str:
        """A path of the pipeline, such as `../../src` in its dvc.yaml, relative to the project's top folder."""
        return Path(os.path.relpath(self.folder / path, self.root)).as_posix()

    def deployment(self, name: str) -> str:
        """The name of a deployment of this pipeline, such as `birds-nightly`."""
        start = f"{self.name}-" if self.name else ""
        return name if name.startswith(start) else start + name

    def titled(self, name: str) -> str:
        """The name of a run of this pipeline, such as `birds monitor 2026-11-22 02:00`."""
        return f"{self.name} {name}" if self.name else name

    def holds(self, path: str | Path) -> bool:
        """Whether a file belongs to this pipeline, and not to another one in its folder."""
        file = self.folder / path
        below = file.is_relative_to(self.root / PIPELINES) and self.folder == self.root
        return file.is_relative_to(self.folder) and not below

    def of_others(self, names: Iterable[str]) -> list[str]:
        """Those of the files, relative to the project's top folder, that belong to another pipeline."""
        own = self.folder.relative_to(self.root).as_posix()
        return [
            name
            for name in names
            if (name.startswith(f"{PIPELINES}/") and name.count("/") > 1 and not name.startswith(f"{own}/"))
            or (self.name and name.split("/")[0] in OWN)
        ]

    def pipelines(self) -> "list[Project]":
        """All pipelines of the project, that of the top folder first."""
        below = sorted((self.root / PIPELINES).glob(f"*/{PARAMS}"))
        folders = (self.root, *(file.parent for file in below))
        ours = [each for each in folders if (each / PARAMS).is_file() and (each / STAGES).is_file()]
        return [Project(self.root, folder) for folder in ours]


def data_set(kind: str, model: str) -> str:
    """What people call a data set: a person's own images as the pipeline here, else as its model."""
    return f"{Project.find().name or model} ({kind})" if kind in {"image_folder", "tfrecord"} else kind


def source(root: Path) -> Path | None:
    """The source of perennial in a project; None in one that has only its package installed."""
    found = root / "src" / "perennial"
    return found if (found / "__init__.py").is_file() else None  # a folder may be left with bytecode


def require_own_checkout(folder: Path) -> None:
    """Check that the parameters are not those of another checkout than the running code."""
    for checkout in (folder.resolve(), *folder.resolve().parents):
        if theirs := source(checkout):
            if theirs != PACKAGE:
                raise ConfigError(
                    f"{checkout} has its own code in {theirs}, but the code that runs is {PACKAGE}; "
                    f"put {checkout}/.venv/bin first on the PATH, or set PYTHONPATH={checkout}/src"
                )
            return
        if (checkout / CODE_DIGESTS).is_file():  # a project without source, perhaps below a checkout
            return


def python_path() -> str:
    """PYTHONPATH for a child process that runs the same code."""
    return os.pathsep.join(filter(None, [running_source(), os.environ.get("PYTHONPATH")]))


def running_source() -> str | None:
    """The folder of this package if a PYTHONPATH needs it; None among the packages of this Python."""
    folder = Path(__file__).resolve().parents[2]
    return None if folder == Path(sysconfig.get_path("purelib")).resolve() else str(folder)


def _root(folder: Path) -> Path:
    above = folder.parent.parent
    return above if folder.parent.name == PIPELINES and (above / FLOWS).is_dir() else folder
