"""Where the files of a project stand: what its pipelines share, and what each has of its own.

A project has a pipeline in its top folder, others in `pipelines/<name>`, or only these:

    flows/ tasks/ components/ environment/ requirements/ .dvc/      shared by all pipelines
    params.yaml dvc.yaml dvc.lock pins/ own/                        the pipeline of the top folder
    pipelines/birds/  params.yaml dvc.yaml dvc.lock pins/ own/      the pipeline `birds`

Every command works in the folder of its pipeline, to which all paths in params.yaml are relative.
"""

import os
from dataclasses import dataclass
from pathlib import Path

PARAMS, STAGES = "params.yaml", "dvc.yaml"  # both make a folder a pipeline's
PIPELINES = "pipelines"  # folder in the project
FLOWS = "flows"
CODE = "code.yaml"  # digests of the code of each stage, in a project without source


@dataclass(frozen=True)
class Project:
    """A pipeline of a project; the two folders are the same for the pipeline in the top folder."""

    root: Path  # has flows/, tasks/, environment/, requirements/, components/ and .dvc
    folder: Path  # has params.yaml, dvc.yaml, dvc.lock, pins/ and own/

    @classmethod
    def find(cls, start: Path | None = None) -> "Project":
        """The pipeline that holds a folder, by default the working directory.

        Of a folder in no pipeline, the project that has `flows` at or above it, else the folder itself.
        """
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

    def pipelines(self) -> "list[Project]":
        """All pipelines of the project, that of the top folder first."""
        below = sorted((self.root / PIPELINES).glob(f"*/{PARAMS}"))
        folders = (self.root, *(file.parent for file in below))
        return [Project(self.root, folder) for folder in folders if _is_pipeline(folder)]


def _is_pipeline(folder: Path) -> bool:
    return (folder / PARAMS).is_file() and (folder / STAGES).is_file()


def _root(folder: Path) -> Path:
    above = folder.parent.parent
    return above if folder.parent.name == PIPELINES and (above / FLOWS).is_dir() else folder
