"""Commands that check guarantees: `rebuild`, `verify` and `rehearse`."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from perennial.base import config, layout
from perennial.base.errors import ConfigError, DataError, PerennialError, QualityError, listed
from perennial.base.processes import process
from perennial.cli.command import PARAMS, JsonOption, ParamsOption, PathOrUrl, command, output
from perennial.cli.push_option import PushOption, may_push

app = typer.Typer()


@command(app, "rebuild", "Rebuild a version, and compare every digest.")
def _rebuild(
    revision: Annotated[
        str | None, typer.Argument(metavar="VERSION|REV", help="Version, branch, tag or commit.")
    ] = None,
    params: ParamsOption = PARAMS,
    *,
    list_: Annotated[
        bool, typer.Option("--list", help="List the versions and their proofs; rebuild nothing.")
    ] = False,
    record: Annotated[
        bool, typer.Option("--record/--no-record", help="Record the proof of an equal version in git.")
    ] = True,
    push: PushOption = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the checkout of the rebuild.")] = False,
    as_json: JsonOption = False,
) -> None:
    from perennial.release.registry import access
    from perennial.reproduce.rebuild import proof, rebuild

    if (revision is None) != list_:
        raise ConfigError("name a version or revision, such as v0.0.1, or give --list instead")
    checked = config.load(params)
    with process.interruptible():
        if list_:
            _list(access.open_registry(checked), as_json=as_json)
            return
        done = rebuild.rebuild(checked, str(revision), keep=keep)
        branch, unrecorded, note = None, None, ""
        if record and done.version is not None and done.equal:
            try:
                opened = access.open_registry(checked)
                pushes = may_push(checked, "the proof", push=push)
                branch = proof.record(opened if pushes else access.here(opened), done)
                note = "" if pushes else access.kept_here(checked, f"perennial rebuild {done.version.name}")
            except PerennialError as error:
                unrecorded = error  # print the result anyway
    output({**_document(done), "proof": branch}, _lines(done, branch, note), as_json=as_json)
    if not done.equal:
        raise QualityError(f"{revision} was not rebuilt as it was recorded: {_why(done)}")
    if unrecorded:
        raise unrecorded


def _list(opened: Any, *, as_json: bool) -> None:
    from perennial.reproduce.rebuild import proof

    proven = proof.proven(opened)
    document, rows = [], []
    for each in opened.registry.versions:
        found = proven.get(each.name)
        proven_at = f"rebuilt {found['date']} on {found['machine']['host']}" if found else "not rebuilt yet"
        document.append({"version": each.name, "commit": each.commit, "proof": found})
        rows.append(f"{each.name:<10} {each.commit[:10]}  {proven_at}")
    if as_json or rows:
        output(document, rows, as_json=as_json)


def _document(done: Any) -> dict[str, Any]:
    return {
        "equal": done.equal,
        "version": done.version and done.version.name,
        "commit": done.commit,
        "stages": done.stages,
        "restored": list(done.restored),
        "causes": list(map(dataclasses.asdict, done.causes)),
        "outputs": {
            stage: {path: {"recorded": a, "rebuilt": b, "equal": a == b} for path, (a, b) in outs.items()}
            for stage, outs in done.outputs.items()
        },
        "lock_sha256": {"recorded": done.lock_sha256[0], "rebuilt": done.lock_sha256[1]},
        "seconds": round(done.seconds, 1),
    }


def _lines(done: Any, branch: str | None, note: str) -> Iterator[str]:
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
    recorded = f"; recorded on {branch}{note}" if branch else ""
    yield f"{name}: {equal}, {same}, {done.seconds:.0f} s{recorded}"


def _why(done: Any) -> str:
    """The stages that differ and the kinds of causes, in one line."""
    stages = [name for name, state in done.stages.items() if state != "equal" and name not in done.restored]
    kinds = list(dict.fromkeys(f"{each.kind} ({each.what})" for each in done.causes))[:3]
    return f"{', '.join(stages) or 'inputs differ'}; because of {', '.join(kinds) or 'nothing that is known'}"


@command(app, "verify", "Check a published model against its provenance and git.")
def _verify(
    url: Annotated[
        str,
        typer.Argument(
            parser=PathOrUrl, metavar="PATH|URL", help="Publish folder, URL in a bucket, or a version."
        ),
    ],
    params: ParamsOption = PARAMS,
    *,
    as_json: JsonOption = False,
) -> None:
    from perennial.release.publishing import verify
    from perennial.release.registry import access

    checked = config.load(params)
    with process.interruptible():
        done = verify.verify(access.with_history(checked).repository, checked.record.artifact, url)
    lines = list(map(str, done.problems))
    if not lines:
        version = f"{done.version}, " if done.version else ""
        made = f"{done.files} files as they were made, from {version}commit {str(done.commit)[:10]}"
        lines = [f"{done.place}: {made}"]
    output({**dataclasses.asdict(done), "ok": not done.problems}, lines, as_json=as_json)
    if done.problems:
        first = listed(done.problems, 1)
        raise DataError(f"{done.place} is not what git records: {first}; do not use it; publish it again")


@command(app, "rehearse", "Run the pipeline under faults, and check what it promises.")
def _rehearse(
    params: ParamsOption = PARAMS,
    *,
    minutes: Annotated[
        float,
        typer.Option(min=0, max=100_000, help="Minutes in which faults start, after a run without faults."),
    ] = 10,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Repeat the faults and moments of the run with this seed.")
    ] = None,
    promise: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this promise, at least once; repeatable. [default: all]"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    from perennial.project.rehearsal import rehearse

    checked = config.load(params)
    layout.require_own_checkout(Path.cwd())
    with process.interruptible():
        result = rehearse.rehearse(checked, minutes=minutes, seed=seed, only=promise or ())
    output(result.document(), result.lines(), as_json=as_json)
    if not result.tried:
        raise PerennialError("nothing was tried in this time; give it more --minutes")
    if result.broken:
        raise PerennialError(
            f"{len(result.broken)} of {len(result.tried)} tries broke a promise; what they left is in "
            f"{result.folder}; the same faults again: `perennial rehearse --seed {result.seed}`"
        )
