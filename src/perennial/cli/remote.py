"""The commands for DVC remotes."""

from typing import Annotated

import typer

from perennial import dvc
from perennial.cli.runner import DebugOption, JsonOption, guarded, print_json
from perennial.config.fields import refused_texts, shown
from perennial.dvc import DvcError
from perennial.errors import ConfigError, PerennialError, redacted

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
    config = dvc.configuration()
    default |= config.get("core.remote") in {None, name}
    known = config.get(f"remote.{name}.url")
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
