"""Commands for a project of one's own: make it, deploy it, work for it, and try it."""

import math
import os
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from perennial.base import config, layout
from perennial.base.choices import EXTRAS, Task
from perennial.base.config import Config
from perennial.base.errors import ConfigError, PerennialError, QualityError, printable
from perennial.base.layout import FLOWS, Project
from perennial.base.processes import locks
from perennial.base.project import code_digests
from perennial.base.stage_state import environment, outputs
from perennial.cli.command import command, exclusive, key_and_value, output, wants_json, weights_are_pinned
from perennial.cli.option_types import PARAMS, ParamsOption, argument, switch, typed
from perennial.cli.stage_commands import tie_to_checkout

if TYPE_CHECKING:
    from perennial.project.start.candidates import Named
    from perennial.project.start.start import Started
    from perennial.project.start.survey import Survey
    from perennial.project.upgrade.upgrade import Upgraded

app = typer.Typer(rich_markup_mode=None)
FOLDS, SMALL = 5, 500  # folds by default; images, below which `start` recommends a cross-validation


def _table_path(named: str) -> str:
    """A path to a table, which a shell completes, as an absolute one; a name in the folder as it is."""
    return str(Path(named).absolute()) if os.sep in named and Path(named).exists() else named


# Of `start` and `new`: how a table of labels is read.
TABLE = typed("Table of labels in the folder; see dataset.table.", parser=_table_path, metavar="FILE")
FILE_COLUMN = typed("Its column of files; a number if it has no header.", metavar="C")
LABEL_COLUMN = typed("Its column of labels; once for each of 0 and 1.", metavar="C")
SPLIT_COLUMN = typed('Its column of splits; "" for none.', metavar="C")
SEPARATOR = typed("What separates several labels in a cell.", metavar="TEXT")
TASK = typed("Whether images have one label each, or several.")


@command(app, "new")
def _new(  # noqa: PLR0913 - each option is one
    folder: Path | None = argument("Folder of the new project.", default=None, metavar="[NAME]"),
    *,
    pipeline: str | None = typed("Make pipelines/NAME in this project instead.", metavar="NAME"),
    photos: Path | None = typed("Your images: a folder per class or a table, or an archive.", metavar="FOLDER"),
    data: str | None = typed("digits, mnist, cifar10 or flowers. [default: digits]", metavar="NAME"),
    table: str | None = TABLE,
    file_column: str | None = FILE_COLUMN,
    label_column: list[str] | None = LABEL_COLUMN,
    split_column: str | None = SPLIT_COLUMN,
    separator: str | None = SEPARATOR,
    task: Task | None = TASK,
) -> None:
    from perennial.project.new import new

    if (folder is None) == (pipeline is None):
        raise ConfigError("name the folder of a new project, or with --pipeline a pipeline of this one")
    named = _named(photos, table, file_column, label_column, split_column, separator, task)
    made = new.new(folder, photos=photos, data=data, named=named) if folder else None
    made = made or new.add(str(pipeline), photos=photos, data=data, named=named)
    following = list(new.next_commands(made))
    document = {
        "folder": str(made.folder), "origin": made.origin, "committed": made.committed,
        "started": made.started and made.started.as_json(), "next": following,
    }  # fmt: skip
    lines = [] if made.started is None else [*_choices(made.started)]
    own = f"\nits perennial is that of {made.origin}; .perennial/ has the wheel, so no index is asked for it"
    done = f"made the {f'project {made.folder}{own}' if made.origin else f'pipeline {made.folder}'}"
    output(document, [*lines, done, f"next: {' && '.join(following)}"])


@command(app, "start")
def _start(  # noqa: PLR0913 - each option is one
    folder: Path = argument("Folder with one folder per class, or an archive of one.", metavar="FOLDER"),
    params: ParamsOption = PARAMS,
    *,
    table: str | None = TABLE,
    file_column: str | None = FILE_COLUMN,
    label_column: list[str] | None = LABEL_COLUMN,
    split_column: str | None = SPLIT_COLUMN,
    separator: str | None = SEPARATOR,
    task: Task | None = TASK,
    assign: list[str] | None = typed("--set", "Choose this value yourself; repeatable.", metavar="KEY=VALUE"),
    yes: bool = switch("--yes", "Accept the reading of a table without a question."),
    force: bool = switch("--force", "Replace a params.yaml that git does not have; a copy is kept."),
) -> None:
    from perennial.project.start import start

    values = dict(map(key_and_value, assign or ()))
    named = _named(folder, table, file_column, label_column, split_column, separator, task)
    accept = _accepted if not yes and not wants_json() and sys.stdin.isatty() else lambda _: True
    done = start.start(folder, params, values, force=force, named=named, confirm=accept)
    output(done.as_json(), _started(done))


def _named(
    folder: Path | None, table: str | None, file: str | None, label: list[str] | None, *others: Any
) -> "Named":
    """The table and columns that a person named; a table that is named from here is one of the folder."""
    from perennial.project.start.candidates import Named

    if folder and table:
        found = [each.resolve() for each in (folder / table, Path(table)) if each.exists()]
        below = (each for each in found if each.is_relative_to(folder.resolve()))
        table = next((each.relative_to(folder.resolve()).as_posix() for each in below), table)
    split, separator, task = others
    return Named(table=table, file=file, label=label or (), split=split, separator=separator, task=task)


def _accepted(found: "Survey") -> bool:
    """Ask whether the reading of a table is right."""
    typer.echo("\n".join(found.understood), err=True)
    return typer.confirm("Is this right?", default=False, err=True)


def _started(done: "Started") -> Iterator[str]:
    yield from _choices(done)
    yield f"wrote {done.file}" + (f"; the old file is {done.kept}" if done.kept else "")
    time = "a minute" if done.minutes <= 1 else f"{math.ceil(done.minutes)} minutes"
    if (Project.find().root / FLOWS).is_dir():
        yield f"next: perennial run (the training takes about {time} here)"
        if done.images.images < SMALL:
            minutes = math.ceil(FOLDS * done.minutes)
            yield f"then: perennial cross-validate (about {minutes} min): scores and checks all images"
    else:
        photos = shlex.quote(str(done.images.path))
        yield f"next: perennial new NAME --photos {photos}, which makes a project; this folder is none"


def _choices(done: "Started") -> Iterator[str]:
    from perennial.base.params import options

    yield f"{done.images.path}: {done.images.described()}"
    yield from done.images.understood
    yield f"this machine: {done.machine.described()}\n"
    # Wrap here: a terminal would break long lines within words.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    wrap = textwrap.TextWrapper(
        width, subsequent_indent="    # ", break_long_words=False, break_on_hyphens=False
    )
    for each in done.choices:
        # Print text unescaped; only params.yaml escapes non-ASCII characters.
        value = each.value if isinstance(each.value, str) else options.scalar(each.value)
        yield wrap.fill(f"{each.key}: {value}  # {each.reason}")
    yield from (f"{key}: {options.scalar(value)}  # yours" for key, value in done.values.items())
    yield ""
    if missing := done.weights_missing:
        yield f"ImageNet weights would make a better model, but could not be fetched: {missing}\n"


@command(app, "deploy", json=False)
def _deploy() -> None:
    from perennial.orchestration.run_setup import run_environment

    run_environment.become("tasks.deploy", at_top=True)


@command(app, "worker", json=False)
def _worker(pool: list[str] | None = typed("Work pool; once for each. [default: cpu]", metavar="NAME")) -> None:
    from perennial.orchestration.run_setup import run_environment

    pools = [part for each in pool or ["cpu"] for part in ("--pool", each)]
    run_environment.become("tasks.worker", pools, at_top=True)


@command(app, "test")
def _test(params: ParamsOption = PARAMS) -> None:
    from perennial.project.rehearsal import rehearse

    checked = config.load(params)
    layout.require_own_checkout(Path.cwd())
    took = rehearse.run_once(checked)
    lines = [*(f"{stage:<12} {seconds:6.1f} s" for stage, seconds in took.items()), "all stages passed"]
    output({"seconds": took}, lines)


@command(
    app,
    "tune",
    epilog="A search that was interrupted goes on. Example: `perennial tune --trials 20 --search "
    "train.learning_rate=1e-4..1e-1:log --search train.optimizer=adam,momentum`.",
)
def _tune(
    params: ParamsOption = PARAMS,
    *,
    search: list[str] | None = typed(
        "LOW..HIGH, LOW..HIGH:log or A,B,C; repeatable. [default: by the training]", metavar="KEY=RANGE"
    ),
    trials: int | None = typed(
        "Trials in all, with those of an earlier search. [default: 30]", min=1, metavar="N"
    ),
    minutes: float | None = typed("Stop after this time instead.", min=0, metavar="N"),
) -> None:
    exclusive(trials=trials, minutes=minutes)
    if find_spec("optuna") is None:
        raise ConfigError("perennial tune needs Optuna; nothing was started; `perennial add tune` installs it")
    started, checked = time.monotonic(), config.load(params)
    _require_ready(params, checked)
    from perennial.project.tune import search_result, training_process, tune

    tune.check(params, search)
    trials = tune.TRIALS if trials is None and minutes is None else trials
    budget = tune.Budget(trials=trials, minutes=minutes, started=started)
    work = checked.paths.work
    with locks.held(work / "tune.lock", "tune", busy="another search works here"):
        training_process.prepare_data(checked)
        with locks.stage(work, "tune"):  # no other stage may change the data meanwhile
            found = tune.Search(params, search)
            found.announce(budget)
            tune.search(found, budget, pinned=weights_are_pinned(params))
            before = found.present_trial
            written = tune.choose(found)
        document = search_result.write(found, before, written=written)
    output(document, search_result.lines(document))


@command(app, "cross-validate", epilog="One that was interrupted goes on, and trains no fold again.")
def _cross_validate(
    params: ParamsOption = PARAMS,
    *,
    folds: int = typed(
        "Trainings, each without another part of the images.", default=FOLDS, min=2, metavar="K"
    ),
) -> None:
    checked = config.load(params)
    _require_ready(params, checked)
    from perennial.project.cross_validation import cross_validation
    from perennial.project.tune import training_process

    training_process.require_trainable(checked)
    work = checked.paths.work
    with locks.held(work / "cross-validate.lock", "cross-validate", busy="another one works here"):
        training_process.prepare_data(checked)
        with locks.stage(work, "cross-validate"):  # no other stage may change the data meanwhile
            found = cross_validation.CrossValidation(params, folds, pinned=weights_are_pinned(params))
            found.train()
            document = cross_validation.write(found)
    output(document, cross_validation.lines(document))


def _require_ready(params: Path, checked: Config) -> None:
    """Check code, packages and outputs as before a training."""
    tie_to_checkout(params)
    outputs.require_outputs(checked.paths)
    environment.require("train")
    code_digests.require("train", Project.find().shared("."), checked.paths.work)


@command(app, "add")
def _add(extra: str = argument(f"{', '.join(EXTRAS)}.", metavar="EXTRA")) -> None:
    from perennial.orchestration.run_setup import run_environment
    from perennial.project.new import template

    if extra not in EXTRAS:
        raise ConfigError(f"there is no extra {extra!r}; {', '.join(EXTRAS)} exist; nothing was done")
    locks = [["--require-hashes", f"--requirement={template.lock_file(name)}"] for name in ("pip", extra)]
    run_environment.install(sys.executable, locks[1:], before_pip=locks[:1])
    worker = f'a worker has it with {run_environment.REQUIREMENTS}="base {extra}"'
    output({"extra": extra, "environment": sys.prefix}, f"{sys.prefix} has {extra}; {worker}")


@command(app, "upgrade")
def _upgrade(
    version: str | None = argument("Version or wheel. [default: this one]", default=None, metavar="VERSION"),
    *,
    check: bool = switch("--check", "Change nothing; exit with code 4 if something would change."),
    conflicts: bool = switch("--conflicts", "Write files that cannot be merged, with git's markers."),
) -> None:
    from perennial.project.upgrade import upgrade

    if wanted := upgrade.other_package(version):
        options = {"--check": check, "--conflicts": conflicts, "--json": wants_json()}
        raise SystemExit(upgrade.run_other(wanted, [name for name, given in options.items() if given]))
    done = upgrade.upgrade(Path.cwd(), check=check, conflicts=conflicts)
    output(_document(done), map(printable, _lines(done)))
    if check and done.needed:
        raise QualityError(f"this project is not of perennial {done.after}; `perennial upgrade` changes it")
    if done.conflicts:
        raise PerennialError(
            f"conflicts in {', '.join(done.conflicts)}: edit them, then `git add` and commit; `git checkout .` "
            "takes the upgrade back"
        )


def _document(done: "Upgraded") -> dict[str, Any]:
    return {
        "before": done.before, "after": done.after,
        "changes": [{"path": each.path, "what": each.what, "why": each.why or None} for each in done.changes],
        "notes": list(done.notes),
        "run_again": {name or ".": list(stages) for name, stages in done.run_again.items()},
        "written": done.written,
    }  # fmt: skip


def _lines(done: "Upgraded") -> Iterator[str]:
    moved = done.after if done.before == done.after else f"{done.before} -> {done.after}"
    yield f"perennial {moved}: {'nothing changes' if not done.changes else 'files of this project'}"
    yield from (f"  {each}" for each in done.changes)
    yield from (f"  {note}" for note in done.notes)
    if not done.needed:
        return
    yield "stages that run again:" if done.run_again else "no stage runs again"
    for name, stages in done.run_again.items():
        yield f"  {f'{name}: ' if name else ''}{', '.join(stages)}"
    if done.written:
        yield "next: look at `git diff`, commit, then `perennial run`, which installs the new lock"
