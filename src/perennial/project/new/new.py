"""Make a project from the installed package: its files, parameters, pins and first commit.

It is built beside its place, and moved there when it is complete.
"""

import logging
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perennial.base import config, files
from perennial.base.config.paths import Paths
from perennial.base.config.release import RecordConfig
from perennial.base.dvc.pipeline_file import with_model, with_prefix
from perennial.base.errors import ConfigError, DataError, listed
from perennial.base.layout import FLOWS, PARAMS, PIPELINES, STAGES, Project
from perennial.base.params import options
from perennial.base.params.edit_params import apply_preset, set_values
from perennial.base.processes import programs
from perennial.base.project.git import GitError, Repository, identified
from perennial.base.project.pins import ChampionPin, Exclusions, SourcePin, WeightsPin
from perennial.data.sources import weights
from perennial.data.validation.drift import Baseline
from perennial.project.new.template import origin, readme, template, write_all, write_base
from perennial.project.start import start
from perennial.project.start.candidates import Named
from perennial.project.start.start import Started
from perennial.project.start.survey import NOTHING

log = logging.getLogger(__name__)
# The data sets that can be had without an account, and the presets that suit them.
DATA = {"digits": None, "mnist": "mnist", "cifar10": "fast_cifar10", "flowers": "inception_v3_flowers"}
MESSAGE = "New project\n\nMade by `perennial new`."
NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
OWN = "own/README.md"
TOP = "../../"  # of the project, from the pipeline's folder
IGNORED = (
    "/data/", "/models/", "/metrics/*", "!/metrics/scores.json", "/own/*", "!/own/README.md", "/runs/",
    "/report.html", "/runs.html", "/.work/",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Made:
    """A new project."""

    folder: Path
    committed: bool  # False in a repository of the user's, who commits it
    started: Started | None  # of photographs
    origin: str | None = None  # of the perennial whose wheel a new project has


def new(folder: Path, *, photos: Path | None = None, data: str | None = None, named: Named = NOTHING) -> Made:
    """Make a project in a new or empty folder, which may be an empty git repository.

    photos: a folder or archive of images, which stays where it is; `named`: its table. data: one of `DATA`.
    """
    target = folder.absolute()
    require_choice(photos, data, named)
    _require_usable(target)
    source = None if photos is None else photos.absolute()
    if source is not None and source.resolve() in target.resolve().parents:
        raise ConfigError(
            f"{target} lies in the folder of --photos, whose files would be images; nothing was made; choose "
            "a folder outside, or move the images into a folder of their own"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with beside(target) as made:
        content, model = template(), _model(target.name)
        stages = with_model(content[STAGES].decode(), model).encode()
        write_all(made, {**content, STAGES: stages, "README.md": readme(target.name)})
        write_base(made, content)
        started = set_up_pipeline(made, target, source, data, model, named=named)
        there = next(each for each in (target, *target.parents) if each.is_dir())
        larger = not (target / ".git").exists() and Repository(there).ask("rev-parse", "--git-dir") is not None
        move_into_place(made, target)
    return Made(folder=folder, committed=not larger and _commit(target), started=started, origin=origin())


def add(name: str, *, photos: Path | None = None, data: str | None = None, named: Named = NOTHING) -> Made:
    """Make the folder of a further pipeline of the project here; the options are as for a new project."""
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
    require_choice(photos, data, named)
    source, shared = None if photos is None else photos.absolute(), template()
    target.parent.mkdir(exist_ok=True)
    with beside(target) as made:
        files.write_bytes(made / STAGES, _stages(project, shared[STAGES].decode()).encode())
        files.write_bytes(made / PARAMS, options.defaults().encode())
        files.write_bytes(made / OWN, shared[OWN])
        # The project's own .gitignore may name them already.
        if Repository(made).ask("check-ignore", "--quiet", str(made / ".work" / "file")) is None:
            files.write_bytes(made / ".gitignore", "".join(f"{each}\n" for each in IGNORED).encode())
        started = set_up_pipeline(made, target, source, data, named=named)
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


def _model(project: str) -> str:
    """The name of a project's model: the project's, as far as DVC and git take it."""
    name = re.sub(r"[^a-z0-9]+", "-", project.lower()).strip("-")
    return name if len(name) > 1 else RecordConfig().artifact


def set_up_pipeline(
    made: Path, target: Path, photos: Path | None, data: str | None, model: str | None = None, *, named: Named
) -> Started | None:
    """Write the pins and the parameters of a new pipeline in `made`, which becomes `target`."""
    with chdir(made):  # the paths of parameters are relative to it
        # Of a pipeline whose runs have read nothing yet.
        pins = {kind.FILE: kind().content() for kind in (SourcePin, ChampionPin, WeightsPin, Exclusions)}
        pins[Paths().baseline] = Baseline(dataset=None, statistics=None).model_dump()
        for file, nothing in pins.items():
            files.write_json(file, nothing)
        started = _choose(photos, data, {"record.artifact": model} if model else {}, named)
        weights.pin(config.load(Path(PARAMS)))
    if started is None or started.weights_missing is None:
        return started
    said = started.weights_missing.replace(str(made), str(target))  # the folder in which they may be put
    again = "run `perennial start` with these images in the project"
    return replace(started, weights_missing=said.replace("run this again", again))


def require_choice(photos: Path | None, data: str | None, named: Named) -> None:
    """Check the photographs or the data set that a new pipeline is for."""
    if photos is None and named != NOTHING:
        raise ConfigError("the options of a table of labels need --photos; nothing was made")
    if photos is not None and data is not None:
        raise ConfigError("--photos and --data exclude each other; leave one out")
    if data is not None and data not in DATA:
        raise ConfigError(
            f"--data must be {', '.join(DATA)}, got {data}; for others, set dataset.name in params.yaml later"
        )
    if photos is not None and not photos.exists():
        raise DataError(f"--photos: {photos} does not exist; nothing was made")


def _require_usable(target: Path) -> None:
    if shutil.which("git") is None:
        raise ConfigError(f"{programs.Missing('git')}; nothing was made")
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise ConfigError(f"{target} exists and is no folder; nothing was made; choose another name")
    around = Project.find(target.parent).root
    if (around / FLOWS).is_dir() and ((around / STAGES).is_file() or (around / PIPELINES).is_dir()):
        raise ConfigError(
            f"{target} lies in the project {around}; nothing was made; `perennial new --pipeline NAME` there "
            "adds a pipeline, and another folder holds another project"
        )
    there = sorted(each.name for each in target.iterdir() if each.name != ".git") if target.is_dir() else []
    if there:
        raise ConfigError(
            f"{target} is not empty: it holds {listed(there, 5)}; nothing was made; choose another name, or an "
            "empty folder"
        )


@contextmanager
def beside(target: Path) -> Iterator[Path]:
    """Make a folder beside the new one; it is removed at the end of the block."""
    folder = tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".new", dir=target.parent)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _choose(photos: Path | None, data: str | None, values: Mapping[str, Any], named: Named) -> Started | None:
    """Write the parameters for photographs or a data set; the defaults are those of `digits`."""
    file = Path(PARAMS)
    if photos is not None:
        return start.start(photos, file, values, force=True, named=named)
    text, preset = file.read_text(encoding="utf-8"), DATA[data or "digits"]
    text = apply_preset(text, preset).text if preset else text
    values = {**values, **({"dataset.name": data} if data else {})}
    files.write_bytes(file, set_values(text, values).text.encode())
    return None


def move_into_place(made: Path, target: Path) -> None:
    """Move a complete folder to its place."""
    if not target.exists():
        os.umask(mask := os.umask(0))
        made.chmod(0o777 & ~mask)  # `mkdtemp` makes it for its owner alone
        made.rename(target)
        return
    for each in sorted(made.iterdir()):
        each.rename(target / each.name)


def _commit(target: Path) -> bool:
    """Commit all; False if git refuses, such as for a signature that needs a person."""
    git = Repository(target)
    if not (target / ".git").exists():
        git.run("init", "--quiet", "--initial-branch", "main")
    git.run("add", "--all")
    try:
        identified(git).run("commit", "--quiet", "--message", MESSAGE)
    except GitError as error:
        log.warning("%s; commit it yourself", error)
        return False
    return True


def next_commands(made: Made) -> Sequence[str]:
    """What to do next, as commands."""
    folder = Path(os.path.relpath(made.folder)) if made.folder.is_absolute() else made.folder
    enter = [] if made.folder.absolute() == Path.cwd() else [f"cd {shlex.quote(folder.as_posix())}"]
    commit = [] if made.committed else ["git add .", "git commit"]
    return [*enter, *commit, "perennial run"]
