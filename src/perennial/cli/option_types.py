"""Options that several commands have, and how the others are written."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

PARAMS = Path("params.yaml")


class PathOrUrl(str):
    """The value of an option that takes a local path, relative to where the command was typed, or a URL."""

    __slots__ = ()


def typed(*names_and_help: str, default: Any = None, **more: Any) -> Any:
    """An option of a command: its names, unless that of its parameter is enough, and its help."""
    *names, about = names_and_help
    return typer.Option(default, *names, help=about, **more)


def location(about: str, metavar: str = "PATH|URL", kind: Callable[..., Any] = typed, **more: Any) -> Any:
    """An option, or argument, that takes a path or a URL."""
    return kind(about, parser=PathOrUrl, metavar=metavar, **more)


def switch(name: str, about: str, **more: Any) -> Any:
    """An option that is off unless it is given."""
    return typed(name, about, default=False, **more)


def argument(about: str, *, default: Any = ..., **more: Any) -> Any:
    """An argument of a command; one without a default is required."""
    return typer.Argument(default, help=about, **more)


SplitName = Literal["train", "validation", "test"]
ParamsOption = Annotated[Path, typer.Option("--params", help="Parameters file.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
FetchOption = Annotated[bool, typer.Option("--fetch/--no-fetch", help="Ask the git remote first.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
PUSH = typed("--push/--no-push", "Push to record.remote. [default: ask in a terminal, else do not]")
