"""Commands that check guarantees: `rebuild`, `verify` and `rehearse`."""

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from perennial.base import config, layout
from perennial.base.config import Config
from perennial.base.errors import ConfigError, DataError, PerennialError, QualityError, listed, printable
from perennial.cli.command import command, output
from perennial.cli.option_types import PARAMS, ParamsOption, argument, location, switch, typed
from perennial.model.evaluation.results import named_score

app = typer.Typer(rich_markup_mode=None)
SHOWN = 10  # maximum number of classes, examples and trainings to print


@command(app, "rebuild")
def _rebuild(
    revision: str = argument("Version, branch, tag or commit.", metavar="VERSION|REV"),
    params: ParamsOption = PARAMS,
    *,
    keep: bool = switch("--keep", "Keep the checkout of the rebuild."),
) -> None:
    from perennial.reproduce.rebuild import rebuild

    done = rebuild.rebuild(config.load(params), revision, keep=keep)
    output(_document(done), _lines(done))
    if not done.equal:
        raise QualityError(f"{revision} was not rebuilt as it was recorded: {_reason(done)}")


def _document(done: Any) -> dict[str, Any]:
    return {
        "equal": done.equal, "version": done.version and done.version.name, "commit": done.commit,
        "stages": done.stages, "restored": list(done.restored),
        "causes": list(map(dataclasses.asdict, done.causes)),
        "outputs": {
            stage: {path: {"recorded": a, "rebuilt": b, "equal": a == b} for path, (a, b) in outs.items()}
            for stage, outs in done.outputs.items()
        },
        "lock_sha256": {"recorded": done.lock_sha256[0], "rebuilt": done.lock_sha256[1]},
        "seconds": round(done.seconds, 1),
    }  # fmt: skip


def _lines(done: Any) -> Iterator[str]:
    for stage, state in done.stages.items():
        restored = ", its originals came from DVC's remote" if stage in done.restored else ""
        yield f"{stage:<12} {state}{restored}"
        for path, (recorded, rebuilt) in done.outputs.get(stage, {}).items():
            if recorded != rebuilt:
                yield f"{'':<12} {path}: recorded {recorded}, rebuilt {rebuilt}"
    yield from map(str, done.causes)
    name = done.version.name if done.version else done.commit[:10]
    equal = "equal" if done.equal else "different"
    same = "dvc.lock has the same bytes" if len(set(done.lock_sha256)) == 1 else "dvc.lock has other bytes"
    yield f"{name}: {equal}, {same}, {done.seconds:.0f} s"


def _reason(done: Any) -> str:
    """The stages that differ and the kinds of causes, in one line."""
    stages = [name for name, state in done.stages.items() if state != "equal" and name not in done.restored]
    kinds = list(dict.fromkeys(f"{each.kind} ({each.what})" for each in done.causes))[:3]
    return f"{', '.join(stages) or 'inputs differ'}; because of {', '.join(kinds) or 'nothing that is known'}"


@command(app, "verify")
def _verify(
    url: str = location("Publish folder, URL in a bucket, or a version.", kind=argument),
    params: ParamsOption = PARAMS,
) -> None:
    from perennial.release.publishing import verify
    from perennial.release.registry import access

    checked = config.load(params)
    done = verify.verify(access.with_history(checked).repository, checked.record.artifact, url)
    lines = list(map(str, done.problems))
    if not lines:
        version = f"{done.version}, " if done.version else ""
        made = f"{done.files} files as they were made, from {version}commit {str(done.commit)[:10]}"
        lines = [f"{done.place}: {made}"]
    output({**dataclasses.asdict(done), "ok": not done.problems}, lines)
    if done.problems:
        first = listed(done.problems, 1)
        raise DataError(f"{done.place} is not what git records: {first}; do not use it; publish it again")


@command(app, "rehearse")
def _rehearse(
    params: ParamsOption = PARAMS,
    *,
    minutes: float = typed(
        "Minutes in which faults start, after a run without faults.", default=10, min=0, max=100_000
    ),
    seed: int | None = typed("Repeat the faults and moments of the run with this seed.", min=0),
    promise: list[str] | None = typed(
        "Only this promise, at least once; repeatable. [default: all]", metavar="NAME"
    ),
) -> None:
    from perennial.project.rehearsal import rehearse

    checked = config.load(params)
    layout.require_own_checkout(Path.cwd())
    result = rehearse.rehearse(checked, minutes=minutes, seed=seed, only=promise or ())
    output(result.document(), result.lines())
    if not result.tried:
        raise PerennialError("nothing was tried in this time; give it more --minutes")
    if result.broken:
        raise PerennialError(
            f"{len(result.broken)} of {len(result.tried)} tries broke a promise; what they left is in "
            f"{result.folder}; the same faults again: `perennial rehearse --seed {result.seed}`"
        )


@command(app, "why")
def _why(
    a: str = argument("Version, branch, tag or commit.", metavar="A"),
    b: str | None = argument("The other one. [default: the champion and A]", default=None, metavar="B"),
    params: ParamsOption = PARAMS,
    *,
    bisect: bool = switch("--bisect", "Train as few intermediate configurations as needed to find one cause."),
    keep: bool = switch("--keep", "With --bisect: keep the checkout in which they are trained."),
) -> None:
    from perennial.reproduce.why import why

    if keep and not bisect:
        raise ConfigError("--keep goes with --bisect: nothing is trained without it")
    checked = config.load(params)
    one, other = (a, b) if b is not None else (_champion(checked), a)
    done = why.why(checked, one, other, search=bisect, keep=keep)
    facts = why.document(done)
    output(facts, map(printable, _why_lines(facts)))
    if done.lost:
        raise done.lost[0]  # after the rest was printed


def _champion(checked: Config) -> str:
    """The commit of the champion."""
    from perennial.release.registry import access

    opened = access.open_registry(checked)
    if opened.registry.champion is None:
        raise ConfigError("there is no champion to compare with; name two versions, branches, tags or commits")
    return str(opened.registry.champion.commit)


def _why_lines(done: dict[str, Any]) -> Iterator[str]:
    """Format the result as lines of text."""
    from perennial.reports.runs import run_comparison

    for side in ("a", "b"):
        revision = done[side]
        name, value = named_score(revision)
        scored = "no score" if value is None else f"{name} {value:.4f}"
        yield f"{side.upper()}  {revision['name']}, commit {revision['commit'][:10]}: {scored}"
    yield from run_comparison.changed_lines(done["differences"], shutil.get_terminal_size().columns)
    yield from _effect(done["effect"])
    if done["bisect"]:
        yield from _search(done["bisect"])
    yield from done["notes"]
    yield from done["lost"]
    yield _cause(done)


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
        if (value := named_score(state)[1]) is not None:
            yield f"  {value:.4f}  {state['name']}"
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
        name, change = named_score(done["a"])[0], cause["change"]
        share = f"; it changes the {name} by {change:+.4f}, {cause['share']:.0%} of the whole change"
    return f"cause: {cause['kind']}: {cause['what']}{where}{share}"
