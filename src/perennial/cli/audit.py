"""The command `audit`: whether DVC's cache and remote hold what revisions need."""

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

from perennial import config
from perennial.cli.runner import PARAMS, JsonOption, ParamsOption, command, print_json
from perennial.errors import ConfigError, DataError
from perennial.runtime import process

app = typer.Typer()


@command(app, "audit", "Compare what revisions need with DVC's cache and remote.")
def _audit(
    params: ParamsOption = PARAMS,
    *,
    rev: Annotated[str, typer.Option(metavar="REV", help="Commit, branch or tag to audit.")] = "HEAD",
    all_: Annotated[bool, typer.Option("--all", help="Audit all branches and tags, as last fetched.")] = False,
    remote: Annotated[
        str | None, typer.Option(metavar="NAME", help="Remote of DVC. [default: the default one]")
    ] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read every object, not only listings.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Copy what is whole on one side over what is not on the other.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    if all_ and rev != "HEAD":
        raise ConfigError("--rev and --all exclude each other; leave one out")
    options = config.load(params).record
    repository = importlib.import_module("perennial.registry.git").repository(
        Path(), options.git_name, options.git_email
    )
    compare = importlib.import_module("perennial.audit.compare")
    with process.interruptible():
        cache, archive = importlib.import_module("perennial.audit.sides").open_sides(remote)
        revisions = compare.ends(repository) if all_ else [compare.commit_of(repository, rev)]
        done = compare.audit(repository, revisions, cache, archive, deep=deep, repair=repair)
    _print(done, len(revisions), as_json=as_json)
    if done.lost:
        raise DataError(
            f"{len(done.lost)} of {done.objects} objects are whole neither in the cache nor in the remote; "
            "nothing was removed; another clone's cache may hold them: `dvc push` there, or `dvc repro` here"
        )


def _print(done: Any, revisions: int, *, as_json: bool) -> None:
    if as_json:
        problems = [
            {
                "kind": each.kind,
                "path": each.need.path,
                "stage": each.need.stage,
                "revision": each.need.revision,
                "where": each.where,
                "digest": each.need.digest,
                "repaired": each.repaired,
            }
            for each in done.problems
        ]
        print_json({"ok": done.ok, "revisions": revisions, "objects": done.objects, "problems": problems})
        return
    for each in done.problems:
        typer.echo(str(each))
    left = sum(not each.repaired for each in done.problems)
    number = f"{left} problem{'s' if left > 1 else ''}" if left else "all whole"
    typer.echo(f"{revisions} revision{'s' if revisions > 1 else ''}, {done.objects} objects: {number}")
