"""Ask whether a command may push."""

import sys
from typing import Annotated

import typer

from perennial.base.config import Config
from perennial.base.errors import ConfigError

PushOption = Annotated[
    bool | None,
    typer.Option("--push/--no-push", help="Push to record.remote. [default: ask in a terminal, else do not]"),
]


def may_push(checked: Config, what: str, *, push: bool | None) -> bool:
    """Whether a command may push: by `--push`, or if a person at a terminal says so.

    The remote is where the project was cloned from, which may be somebody else's.
    """
    from perennial.release.registry import access

    if push and (wrong := access.misnamed(checked)):
        raise ConfigError(f"--push: {wrong}; nothing was changed")
    if push is not None or (remote := access.remote(checked)) is None:
        return push is not False
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return typer.confirm(f"Push {what} to {remote}?", err=True)
