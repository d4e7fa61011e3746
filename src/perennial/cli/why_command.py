"""The command `why`: what differs between two revisions, its effect on the score, and its cause."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from perennial.base import config
from perennial.base.config import Config
from perennial.base.errors import ConfigError, printable
from perennial.base.processes import process
from perennial.cli.command import PARAMS, JsonOption, ParamsOption, command, output

app = typer.Typer()
SHOWN = 10  # maximum number of classes, examples and trainings to print
WIDTH = 40  # maximum printed length of a value


@command(app, "why", "Explain why two scores differ.")
def _why(
    a: Annotated[str, typer.Argument(metavar="A", help="Version, branch, tag or commit.")],
    b: Annotated[
        str | None, typer.Argument(metavar="B", help="The other one. [default: the champion and A]")
    ] = None,
    params: ParamsOption = PARAMS,
    *,
    bisect: Annotated[
        bool,
        typer.Option("--bisect", help="Train as few intermediate configurations as needed to find one cause."),
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="With --bisect: keep the checkout in which they are trained.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    from perennial.reproduce.why import document, why

    checked = config.load(params)
    one, other = (a, b) if b is not None else (_champion(checked), a)
    with process.interruptible():
        done = why.why(checked, one, other, search=bisect, keep=keep)
    facts = document.document(done)
    output(facts, map(printable, _lines(facts)), as_json=as_json)
    if done.lost:
        raise done.lost[0]  # after the rest was printed


def _champion(checked: Config) -> str:
    """The commit of the champion."""
    from perennial.release.registry import access

    opened = access.open_registry(checked)
    if opened.registry.champion is None:
        raise ConfigError("there is no champion to compare with; name two versions, branches, tags or commits")
    return str(opened.registry.champion.commit)


def _lines(done: dict[str, Any]) -> Iterator[str]:
    """Format the result as lines of text."""
    for side in ("a", "b"):
        revision = done[side]
        scored = "no score" if revision["accuracy"] is None else f"accuracy {revision['accuracy']:.4f}"
        yield f"{side.upper()}  {revision['name']}, commit {revision['commit'][:10]}: {scored}"
    yield from _differences(done["differences"])
    yield from _effect(done["effect"])
    if done["bisect"]:
        yield from _search(done["bisect"])
    yield from done["notes"]
    yield from done["lost"]
    yield _cause(done)


def _differences(differences: list[dict[str, Any]]) -> Iterator[str]:
    for decides, head in ((True, "differences:"), (False, "differences that cannot change the score:")):
        rows = [difference for difference in differences if difference["decides"] == decides]
        if rows:
            yield head
        for difference in rows:
            lines = f" ({difference['changes']})" if difference["changes"] else ""
            values = f"{_shown(difference['a'])} -> {_shown(difference['b'])}"
            yield f"  {difference['kind']:<10} {difference['what']}: {values}{lines}"
    if not differences:
        yield "nothing differs"


def _effect(effect: dict[str, Any]) -> Iterator[str]:
    if images := effect["images"]:
        counts = ", ".join(f"{images[kind]} {kind}" for kind in ("added", "removed", "relabelled", "moved"))
        sizes = ", ".join(f"{split} {a} -> {b}" for split, (a, b) in images["examples"].items())
        yield f"images: {counts} ({sizes})"
    if examples := effect["examples"]:
        yield (
            f"test examples: {examples['only_a']} right in A alone, {examples['only_b']} in B alone, of "
            f"{examples['compared']} that both have (p = {examples['p_value']:.2g})"
        )
    for row in effect["classes"][:SHOWN]:
        a, b = ("no examples" if row[side] is None else f"{row[side]:.4f}" for side in ("a", "b"))
        yield f"  recall of {row['class']}: {a} -> {b}"
    if (more := len(effect["classes"]) - SHOWN) > 0:
        yield f"  and {more} more classes"


def _search(search: dict[str, Any]) -> Iterator[str]:
    noise = search["noise"]
    if noise:
        yield (
            f"seed noise: {noise['deviation']:.4f} (with train.seed {noise['seed']}, A changes by "
            f"{noise['change']:+.4f}); changes up to {noise['limit']:.4f} are within it"
        )
    yield f"{search['changes']} changes, {search['trainings']} training runs, {search['seconds']:.0f} s:"
    for state in search["states"]:
        if state["accuracy"] is not None:
            yield f"  {state['accuracy']:.4f}  {state['name']}"
        elif state["problem"]:
            yield f"  {state['problem']}"


def _cause(done: dict[str, Any]) -> str:
    cause, search = done["cause"], done["bisect"]
    if cause is None:
        if search and search["within_noise"]:
            return "no cause: the change is within seed noise"
        if search and search["left"]:
            return f"cause: one of {len(search['left'])} changes between which nothing could be trained"
        return (
            "cause: not known; --bisect looks for it" if done["differences"] and not search else "cause: none"
        )
    where = f", of commit {cause['commit'][:10]}" if cause["commit"] else ""
    share = ""
    if cause["change"] is not None:
        share = f"; it changes the accuracy by {cause['change']:+.4f}, {cause['share']:.0%} of the whole change"
    return f"cause: {cause['kind']}: {cause['what']}{where}{share}"


def _shown(value: object) -> str:
    text = "none" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= WIDTH else f"{text[:WIDTH]}..."
