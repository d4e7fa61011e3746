"""Add a pipeline to a project: its folder in `pipelines/`, which is complete or not there."""

import re
from pathlib import Path

from perennial.base import files
from perennial.base.dvc.pipeline_file import with_prefix
from perennial.base.errors import ConfigError
from perennial.base.layout import FLOWS, PARAMS, PIPELINES, STAGES, Project
from perennial.base.params import options
from perennial.base.project.git import Repository
from perennial.project.new.new import Made, beside, move_into_place, require_choice, set_up_pipeline
from perennial.project.new.template import template

NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
OWN = "own/README.md"
TOP = "../../"  # of the project, from the pipeline's folder
IGNORED = (
    "/data/", "/models/", "/metrics/*", "!/metrics/scores.json", "/own/*", "!/own/README.md", "/runs/",
    "/report.html", "/runs.html", "/.work/",
)  # fmt: skip


def add(name: str, *, photos: Path | None = None, data: str | None = None) -> Made:
    """Make the folder of a further pipeline of the project here; photos, data: as for a new project."""
    project = Project.find()
    target = project.root / PIPELINES / name
    if not (project.root / FLOWS).is_dir():
        raise ConfigError(f"{project.root} is no project; `perennial new NAME` makes one; nothing was made")
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"the name of a pipeline holds a-z, 0-9 and, between them, -; got {name!r}; nothing was made"
        )
    if target.exists():
        raise ConfigError(f"{target} exists; nothing was made; choose another name")
    require_choice(photos, data)
    source, shared = None if photos is None else photos.absolute(), template()
    target.parent.mkdir(exist_ok=True)
    with beside(target) as made:
        files.write_bytes(made / STAGES, _stages(project, shared[STAGES].decode()).encode())
        files.write_bytes(made / PARAMS, options.defaults().encode())
        files.write_bytes(made / OWN, shared[OWN])
        # The project's own .gitignore may name them already.
        if Repository(made).ask("check-ignore", "--quiet", str(made / ".work" / "file")) is None:
            files.write_bytes(made / ".gitignore", "".join(f"{each}\n" for each in IGNORED).encode())
        started = set_up_pipeline(made, target, source, data)
        move_into_place(made, target)
    return Made(folder=target, committed=False, started=started)


def _stages(project: Project, template_text: str) -> str:
    """The dvc.yaml of a further pipeline: that of the top folder, or of another pipeline, with its changes."""
    top = project.root / STAGES
    if top.is_file():
        return with_prefix(top.read_text(encoding="utf-8"), TOP)
    others = project.pipelines()
    return (
        (others[0].folder / STAGES).read_text(encoding="utf-8") if others else with_prefix(template_text, TOP)
    )
