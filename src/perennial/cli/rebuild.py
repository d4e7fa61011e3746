"""The commands `rebuild` and `verify`: versions made again, and published models checked."""

import dataclasses
import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

from perennial import config
from perennial.cli.runner import PARAMS, JsonOption, ParamsOption, command, print_json
from perennial.errors import ConfigError, DataError, PerennialError, QualityError
from perennial.runtime import process

app = typer.Typer()


@command(app, "rebuild", "Make a version again, and compare every digest.")
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
        bool, typer.Option("--record/--no-record", help="Keep the proof of an equal version in git.")
    ] = True,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the checkout of the rebuild.")] = False,
    as_json: JsonOption = False,
) -> None:
    if (revision is None) != list_:
        raise ConfigError("name a version or revision, such as v0.0.1, or give --list instead")
    checked = config.load(params)
    registry = importlib.import_module("perennial.registry.versions")
    proof = importlib.import_module("perennial.rebuild.proof")
    with process.interruptible():
        if list_:
            _list(proof, checked, registry.open_registry(checked), as_json=as_json)
            return
        done = importlib.import_module("perennial.rebuild.rebuild").rebuild(checked, revision, keep=keep)
        branch, unrecorded = None, None
        if record and done.version is not None and done.equal:
            try:
                branch = proof.record(checked, registry.open_registry(checked), done)
            except PerennialError as error:
                unrecorded = error  # the result is printed all the same
    print_json({**_document(done), "proof": branch}) if as_json else _print(done, branch)
    if not done.equal:
        raise QualityError(f"{revision} was not rebuilt as it was recorded: {_why(done)}")
    if unrecorded:
        raise unrecorded


def _list(proof: Any, checked: config.Config, opened: Any, *, as_json: bool) -> None:
    proven = proof.proven(checked, opened)
    listed = [
        {"version": each.name, "commit": each.commit, "proof": proven.get(each.name)}
        for each in opened.registry.versions
    ]
    if as_json:
        print_json(listed)
        return
    for row in listed:
        found = row["proof"]
        proven_at = f"rebuilt {found['date']} on {found['machine']['host']}" if found else "not rebuilt yet"
        typer.echo(f"{row['version']:<10} {row['commit'][:10]}  {proven_at}")


def _document(done: Any) -> dict[str, Any]:
    return {
        "equal": done.equal,
        "version": done.version and done.version.name,
        "commit": done.commit,
        "stages": done.stages,
        "restored": list(done.restored),
        "causes": [
            {
                "kind": each.kind,
                "stage": each.stage,
                "what": each.what,
                "recorded": each.recorded,
                "rebuilt": each.rebuilt,
            }
            for each in done.causes
        ],
        "outputs": {
            stage: {path: {"recorded": a, "rebuilt": b, "equal": a == b} for path, (a, b) in outs.items()}
            for stage, outs in done.outputs.items()
        },
        "lock_sha256": {"recorded": done.lock_sha256[0], "rebuilt": done.lock_sha256[1]},
        "seconds": round(done.seconds, 1),
    }


def _print(done: Any, branch: str | None) -> None:
    for stage, state in done.stages.items():
        restored = ", its originals came from DVC's remote" if stage in done.restored else ""
        typer.echo(f"{stage:<12} {state}{restored}")
        for path, (recorded, rebuilt) in done.outputs.get(stage, {}).items():
            if recorded != rebuilt:
                typer.echo(f"{'':<12} {path}: recorded {recorded}, rebuilt {rebuilt}")
    for each in done.causes:
        typer.echo(str(each))
    name = done.version.name if done.version else done.commit[:10]
    equal = "equal" if done.equal else "different"
    same = "dvc.lock has the same bytes" if len(set(done.lock_sha256)) == 1 else "dvc.lock has other bytes"
    recorded = f"; recorded on {branch}" if branch else ""
    typer.echo(f"{name}: {equal}, {same}, {done.seconds:.0f} s{recorded}")


def _why(done: Any) -> str:
    """The first causes, in one line."""
    stages = [name for name, state in done.stages.items() if state != "equal" and name not in done.restored]
    kinds = list(dict.fromkeys(f"{each.kind} ({each.what})" for each in done.causes))[:3]
    return f"{', '.join(stages) or 'inputs differ'}; because of {', '.join(kinds) or 'nothing that is known'}"


@command(app, "verify", "Check a published model against its provenance and git.")
def _verify(
    url: Annotated[
        str, typer.Argument(metavar="PATH|URL", help="Publish folder, s3://bucket/prefix, or a version.")
    ],
    params: ParamsOption = PARAMS,
    *,
    as_json: JsonOption = False,
) -> None:
    options = config.load(params).record
    module = importlib.import_module("perennial.publishing.verify")
    with process.interruptible():
        git = importlib.import_module("perennial.registry.git").repository(Path())
        done = module.verify(git, options.artifact, url)
    if as_json:
        problems = [dataclasses.asdict(each) for each in done.problems]
        print_json({**dataclasses.asdict(done), "ok": not problems, "problems": problems})
    else:
        for each in done.problems:
            typer.echo(str(each))
        if not done.problems:
            version = f"{done.version}, " if done.version else ""
            made = f"{done.files} files as they were made, from {version}commit {done.commit[:10]}"
            typer.echo(f"{done.place}: {made}")
    if done.problems:
        more = f" and {len(done.problems) - 1} more" if done.problems[1:] else ""
        raise DataError(
            f"{done.place} is not what was promoted: {done.problems[0]}{more}; do not use it; publish it again"
        )
