"""The commands `remote` and `audit`: where DVC keeps data and models, and whether all of it is there."""

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

from perennial import config, dvc
from perennial.cli.runner import PARAMS, DebugOption, JsonOption, ParamsOption, command, guarded, print_json
from perennial.config.fields import refused_texts, shown
from perennial.dvc import DvcError
from perennial.errors import ConfigError, DataError, PerennialError, redacted
from perennial.runtime import process

app = typer.Typer()
_remote = typer.Typer(no_args_is_help=True)
app.add_typer(_remote, name="remote", help="Where DVC keeps data and models.")


@_remote.command("add", help="Add a DVC remote that verifies what it reads; the first is the default.")
def _add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the remote.")],
    url: Annotated[
        str, typer.Argument(metavar="URL", help="s3://bucket/prefix, a folder, or as DVC takes it.")
    ],
    *,
    default: Annotated[
        bool, typer.Option("--default", help="Make it the default, even if there is one.")
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    def run() -> None:
        is_default = add(name, url, default=default)
        if as_json:
            print_json({"name": name, "url": url, "default": is_default, "verify": True})
        else:
            as_default = "; it is the default" if is_default else ""
            typer.echo(f"{name}: {url}, verified{as_default}; commit .dvc/config")

    guarded("remote add", run, debug=debug)


def add(name: str, url: str, *, default: bool) -> bool:
    """Add a remote with `verify true`: without it, DVC accepts objects that were damaged.

    Returns whether it is the default, which the first remote always is.

    Raises:
        ConfigError: the URL holds credentials, or another remote has the name.
        PerennialError: DVC refuses; no remote was added.
    """
    if any(refused_texts({"url": url})):
        raise ConfigError(
            f"URL must not hold a user, password or token, since git keeps it; got {shown(url)}; "
            "boto3 and DVC read them from the environment"
        )
    try:
        return _add_verified(name, url, default=default)
    except DvcError as error:
        raise PerennialError(f"{error}; no remote was added") from error


def _add_verified(name: str, url: str, *, default: bool) -> bool:
    options = dvc.configuration()
    default |= options.get("core.remote") in {None, name}
    known = options.get(f"remote.{name}.url")
    if known not in {None, url}:
        raise ConfigError(
            f"there is a remote {name} already, at {redacted(known or '')}; nothing was changed; "
            f"choose another name, or remove it first: `dvc remote remove {name}`"
        )
    if known is None:
        dvc.run("remote", "add", "--quiet", name, url)
    try:
        dvc.run("remote", "modify", name, "verify", "true")
        if default:
            dvc.run("remote", "default", name)
    except DvcError:
        if known is None:
            dvc.run("remote", "remove", name)
        raise
    return default


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
        bool,
        typer.Option("--repair", help="Replace damaged and missing objects by those of the other side."),
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
    _print_audit(done, len(revisions), as_json=as_json)
    if done.lost:
        raise DataError(
            f"{len(done.lost)} of {done.objects} objects are intact neither in the cache nor in the remote; "
            "nothing was removed; another clone's cache may hold them: `dvc push` there, or `dvc repro` here"
        )


def _print_audit(done: Any, revisions: int, *, as_json: bool) -> None:
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
    number = f"{left} problem{'s' if left > 1 else ''}" if left else "all intact"
    typer.echo(f"{revisions} revision{'s' if revisions > 1 else ''}, {done.objects} objects: {number}")
