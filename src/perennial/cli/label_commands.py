"""The command `label`: labels for images of traffic."""

import getpass
import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from perennial.base import config, files
from perennial.base.config import Config
from perennial.base.errors import ConfigError
from perennial.base.processes import process
from perennial.base.project.git import Repository
from perennial.cli.command import (
    PARAMS,
    JsonOption,
    ParamsOption,
    PathOrUrl,
    PushOption,
    command,
    may_push,
    output,
)

app = typer.Typer()
LOCAL_FILES = (
    "LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true and LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT"  # and a folder
)
Place = Annotated[
    str | None,
    typer.Argument(
        parser=PathOrUrl, metavar="[PLACE]", help="As for `serve --keep`. [default: that of the last queue]"
    ),
]
Classes = Annotated[
    list[str] | None,
    typer.Option("--class", metavar="NAME", help="Offer a class that the data lack; repeatable."),
]
NoneAs = Annotated[
    str, typer.Option(metavar="NAME", help="Class for 'none of these'. [default: leave them out]")
]
Export = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the queue for Label Studio (.json or .csv).")
]
Import = Annotated[
    Path | None,
    typer.Option("--import", metavar="FILE", help="Take labels of Label Studio, or CSV: sha256,class."),
]
Branch = Annotated[
    str | None, typer.Option(metavar="NAME", help="Commit the labels on a branch, to be judged by a run.")
]


@command(
    app,
    "label",
    "Label kept images, and propose them on a branch.",
    epilog="Example: `perennial label captured`, `perennial label --branch new`. See docs/how-to/label.md.",
)
def _label(  # noqa: PLR0913 - each option is one
    place: Place = None,
    params: ParamsOption = PARAMS,
    *,
    count: Annotated[int, typer.Option(min=1, max=100_000, help="Images of a new queue.")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="Seed of a new queue.")] = 0,
    new: Annotated[bool, typer.Option("--new", help="Draw a new queue before the last is done.")] = False,
    add: Classes = None,
    none_as: NoneAs = "",
    who: Annotated[str | None, typer.Option(metavar="NAME", help="Who labels. [default: git's user]")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0: any free one.")] = 8502,
    export: Export = None,
    take: Import = None,
    branch: Branch = None,
    push: PushOption = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Judge the candidate in the shadow by the labels.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    checked = config.load(params)
    answers = _module("answers").Answers(checked.paths.work / "label")
    if compare:
        output(*_compared(answers), as_json=as_json)
        return
    if branch is not None:
        pushes = may_push(checked, "the branch", push=push)
        made = asdict(_module("branch").make(checked, answers, branch, push=pushes))
        output(made, _next_steps(made, checked.record.remote or ""), as_json=as_json)
        return
    if take is not None:
        output(*_taken(take, answers), as_json=as_json)
        return
    queue = None if new else answers.unfinished(place)
    if queue is None:
        queue = _drawn(checked, answers, place, count=count, seed=seed)
    classes = _classes(checked, answers, queue, add or ())
    if export is not None:
        output(*_exported(export, queue, answers, classes), as_json=as_json)
        return
    page = _module("label_page")
    listener = page.listen(port)
    labelling = page.Labelling(queue, answers, classes, who or _user(), none_as)
    url, left = f"http://127.0.0.1:{listener.getsockname()[1]}/", len(labelling.state()["left"])
    document = {"url": url, "images": len(queue.images), "left": left}
    output(document, f"{left} of {len(queue.images)} images to label: open {url}; Ctrl-C ends", as_json=as_json)
    page.serve(labelling, listener)


def _module(name: str) -> Any:
    return importlib.import_module(f"perennial.live.label.{name}")


def _drawn(checked: Config, answers: Any, place: str | None, *, count: int, seed: int) -> Any:
    if place is None:
        place = answers.drawn().place
    with process.interruptible():
        bits = checked.validation.near_duplicate_bits
        return answers.draw(place, count=count, seed=seed, bits=bits)


def _classes(checked: Config, answers: Any, queue: Any, more: Sequence[str]) -> list[str]:
    """The classes of the records, else those that models have answered; and those of labels and options."""
    file = checked.paths.records / "labels.txt"
    if file.exists():
        rows = file.read_text(encoding="utf-8").splitlines()
        names = [row.partition(":")[2] for row in rows][checked.model.labels_offset :]
    else:
        names = sorted({name for each in queue.images for name in (each.served, each.candidate) if name})
    labels = (*_module("answers").project_labels().values(), *answers.labels().values())
    given = sorted({each.class_ for each in labels if each.class_})
    return list(dict.fromkeys((*names, *given, *(name.strip() for name in more))))


def _user() -> str:
    return Repository(Path()).ask("config", "user.name") or getpass.getuser()


def _taken(file: Path, answers: Any) -> tuple[dict[str, Any], str]:
    rows = _module("studio").read(file.read_text(encoding="utf-8-sig"), file, answers.drawn().images)
    changed = answers.take(rows)
    document = {"file": str(file), "labels": len(rows), "changed": changed}
    return document, f"{file}: {len(rows)} labels, {changed} of them new or changed"


def _exported(file: Path, queue: Any, answers: Any, classes: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    studio, labels = _module("studio"), answers.labels()
    images = [(each, found.name) for each in queue.images if (found := answers.image(each.sha256)) is not None]
    if file.suffix == ".csv":
        files.write_bytes(file, studio.table(images).encode())
    elif file.suffix == ".json":
        files.write_json(file, studio.tasks(images, labels))
    else:
        raise ConfigError(f"--export takes a file that ends in .json or .csv, got {file}")
    interface, folder = studio.interface(classes), answers.images.resolve()
    document = {"file": str(file), "images": len(images), "folder": str(folder), "interface": interface}
    return document, [
        f"{file}: {len(images)} images in {folder}",
        f"start Label Studio with {LOCAL_FILES}={folder}; its labelling interface:",
        interface,
    ]


def _next_steps(made: Mapping[str, Any], remote: str) -> Iterator[str]:
    where = "pushed" if made["pushed"] else "in this repository only"
    yield f"{made['branch']}: {made['added']} labels at {made['commit'][:10]}, {where}"
    chosen = made["images"] - made["random"]
    yield f"{made['random']} images drawn at random only measure, {chosen} chosen ones only train"
    place = f"{remote}/" if made["pushed"] else ""  # where a deployed run adds its commit
    yield f"judge them:  git switch {made['branch']} && perennial run"
    yield f"or deployed: perennial run on-demand --rev {made['branch']} --watch"
    yield f"then merge:  {'git fetch && ' if place else ''}git merge {place}{made['branch']}"


def _compared(answers: Any) -> tuple[list[dict[str, Any]], list[str]]:
    module = _module("duels")
    labels = {**_module("answers").project_labels(), **answers.labels()}
    duels = module.duels(labels.values())
    if not duels:
        raise ConfigError(
            "no labelled image has an answer of a candidate that differs; `perennial serve --shadow` makes some"
        )
    document = [{**asdict(each), "promote": each.promotes, "limit": module.PROMOTE} for each in duels]
    lines = [
        f"candidate {each.candidate} against {each.version}: {each.wins} right where the other is wrong, "
        f"{each.losses} the reverse, {each.neither} both wrong; e = {each.e:.3g}: "
        + ("promote" if each.promotes else f"go on; promote at e >= {module.PROMOTE:g}, valid at any peek")
        for each in duels
    ]
    if any(each.promotes for each in duels):
        lines.append(
            "where it was trained: perennial promote; if the gate rejected it, --force NAME --because TEXT"
        )
    return document, lines
