"""The command `label`: labels for images of traffic."""

import getpass
import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import typer

from perennial.base import config, files
from perennial.base.config import Config
from perennial.base.config.paths import Paths
from perennial.base.errors import ConfigError
from perennial.base.processes import process
from perennial.base.project.git import Repository
from perennial.cli.command import command, exclusive, may_push, output
from perennial.cli.option_types import PARAMS, PUSH, ParamsOption, argument, location, switch, typed
from perennial.data.datasets.own import label_table

app = typer.Typer(rich_markup_mode=None)
# And a folder:
LOCAL_FILES = "LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true and LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT"


@command(app, "label", epilog="Example: `perennial label captured`, then `perennial label --branch new`.")
def _label(  # noqa: PLR0913 - each option is one
    place: str | None = location(
        "As for `serve --keep`, or a folder of photos. [default: the last one]",
        "[PLACE]",
        argument,
        default=None,
    ),
    params: ParamsOption = PARAMS,
    *,
    count: int = typed("Images of a new queue.", default=300, min=1, max=100_000),
    seed: int = typed("Seed of a new queue.", default=0, min=0),
    new: bool = switch("--new", "Draw a new queue before the last is done."),
    add: list[str] | None = typed("--class", "Offer a class that the data lack; repeatable.", metavar="NAME"),
    none_as: str = typed("Class for 'none of these'. [default: leave them out]", default="", metavar="NAME"),
    who: str | None = typed("Who labels. [default: git's user]", metavar="NAME"),
    port: int = typed("Port of the page; 0: any free one.", default=8502, min=0, max=65535),
    export: Path | None = typed("Write the queue for Label Studio (.json or .csv).", metavar="FILE"),
    take: Path | None = typed("--import", "Take labels of Label Studio, or CSV: sha256,class.", metavar="FILE"),
    branch: str | None = typed("Commit the labels on a branch, to be judged by a run.", metavar="NAME"),
    push: bool | None = PUSH,
    compare: bool = switch("--compare", "Judge the candidate in the shadow by the labels."),
) -> None:
    exclusive(compare=compare, branch=branch, export=export, **{"import": take})
    other = compare or branch is not None or export is not None or take is not None
    if place is not None and not other and _module("photos").are_in(Path(place)):
        _label_photos(Path(place), add or (), count=count, seed=seed, who=who, none_as=none_as, port=port)
        return
    checked = config.load(params)
    several = checked.dataset.task == "multilabel"
    answers = _module("answers").Answers(checked.paths.work / "label")
    if compare:
        output(*_compared(answers))
        return
    if branch is not None:
        pushes = may_push(checked, "the branch", push=push)
        made = asdict(_module("branch").make(checked, answers, branch, push=pushes))
        output(made, _next_steps(made, checked.record.remote or ""))
        return
    if take is not None:
        output(*_taken(take, answers, several=several))
        return
    queue = None if new else answers.unfinished(place)
    if queue is None:
        queue = _drawn(checked, answers, place, count=count, seed=seed)
    classes = _classes(checked, answers, queue, add or (), several=several)
    if export is not None:
        output(*_exported(export, queue, answers, classes, several=several))
        return
    _serve(queue, answers, classes, who, none_as, port, several=several)


def _serve(
    queue: Any, answers: Any, classes: Sequence[str], who: str | None, none_as: str, port: int, *,
    several: bool = False, understood: Sequence[str] = (),
) -> None:  # fmt: skip
    page = _module("label_page")
    listener = page.listen(port)
    who = who or Repository(Path()).ask("config", "user.name") or getpass.getuser()
    labelling = page.Labelling(queue, answers, classes, who, none_as, several=several)
    url, left = f"http://127.0.0.1:{listener.getsockname()[1]}/", len(labelling.state()["left"])
    document = {"url": url, "images": len(queue.images), "left": left}
    line = f"{left} of {len(queue.images)} images to label: open {url}; Ctrl-C ends"
    output(document, [*understood, line])
    page.serve(labelling, listener)


def _label_photos(
    folder: Path, more: Sequence[str], *, count: int, seed: int, who: str | None, none_as: str, port: int
) -> None:
    """Label a folder of photos, for which there need not be a project."""
    module = _module("photos")
    with process.interruptible():
        answers = module.Photos(folder, Paths().work)
        given = sorted({each.class_ for each in answers.labels().values() if each.class_})
        classes = list(dict.fromkeys((*given, *(name.strip() for name in more))))
        module.require_names(classes)
        queue = answers.draw_photos(count, seed)
    understood = f"{folder}: {answers.photos} photos without a model; labels go to {folder / 'labels.csv'}"
    _serve(queue, answers, classes, who, none_as, port, understood=[understood, answers.next_step])


def _module(name: str) -> Any:
    return importlib.import_module(f"perennial.live.label.{name}")


def _drawn(checked: Config, answers: Any, place: str | None, *, count: int, seed: int) -> Any:
    if place is None:
        place = answers.drawn().place
    with process.interruptible():
        bits, few = checked.validation.near_duplicate_bits, _are_few(checked, answers)
        how = _module("queue").Choice(count=count, seed=seed, bits=bits, few=few)
        return answers.draw(place, how, first=checked.gate.traffic is not None)


def _are_few(checked: Config, answers: Any) -> bool:
    """Whether there are too few labels a class, on average, for margins to say what to label."""
    from perennial.data.records import manifest

    if not (checked.paths.records / manifest.FILE).exists():
        return False  # nobody knows here how many labels the model has seen
    found = manifest.load(checked.paths.records)
    new = answers.labels().keys() - _module("answers").project_labels().keys()
    labels = sum(found.splits["train"].per_class) + len(new)
    return bool(labels < _module("typical").ENOUGH * len(found.classes))


def _classes(checked: Config, answers: Any, queue: Any, more: Sequence[str], *, several: bool) -> list[str]:
    """The classes of the records, else those that models have answered; and those of labels and options."""

    def named(cells: Iterable[str]) -> list[str]:
        found = (label_table.of_cell(each, None) if several else [each] for each in cells if each)
        return sorted(set(chain.from_iterable(found)))

    file = checked.paths.records / "labels.txt"
    if file.exists():
        rows = file.read_text(encoding="utf-8").splitlines()
        names = [row.partition(":")[2] for row in rows][checked.model.labels_offset :]
    else:
        names = named(each for image in queue.images for each in (image.served, image.candidate))
    labels = (*_module("answers").project_labels().values(), *answers.labels().values())
    given = named(each.class_ for each in labels)
    return list(dict.fromkeys((*names, *given, *(name.strip() for name in more))))


def _taken(file: Path, answers: Any, *, several: bool) -> tuple[dict[str, Any], str]:
    text, images = file.read_text(encoding="utf-8-sig"), answers.drawn().images
    rows = _module("studio").read(text, file, images, several=several)
    changed = answers.take(rows)
    document = {"file": str(file), "labels": len(rows), "changed": changed}
    return document, f"{file}: {len(rows)} labels, {changed} of them new or changed"


def _exported(
    file: Path, queue: Any, answers: Any, classes: Sequence[str], *, several: bool
) -> tuple[dict[str, Any], list[str]]:
    studio, labels = _module("studio"), answers.labels()
    images = [(each, found.name) for each in queue.images if (found := answers.image(each.sha256)) is not None]
    if file.suffix == ".csv":
        files.write_bytes(file, studio.table(images).encode())
    elif file.suffix == ".json":
        files.write_json(file, studio.tasks(images, labels, several=several))
    else:
        raise ConfigError(f"--export takes a file that ends in .json or .csv, got {file}")
    interface, folder = studio.interface(classes, several=several), answers.images.resolve()
    document = {"file": str(file), "images": len(images), "folder": str(folder), "interface": interface}
    return document, [
        f"{file}: {len(images)} images in {folder}",
        f"start Label Studio with {LOCAL_FILES}={folder}; its labelling interface:",
        interface,
    ]


def _next_steps(made: Mapping[str, Any], remote: str) -> Iterator[str]:
    where, count = "pushed" if made["pushed"] else "in this repository only", made["added"]
    yield f"{made['branch']}: {count} label{'s' * (count != 1)} at {made['commit'][:10]}, {where}"
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
