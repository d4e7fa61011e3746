"""Print the reference of all commands: `python docs/commands.py > docs/reference/commands.md`."""

import sys

import typer
from click.testing import CliRunner

from perennial.cli import app

HEAD = """\
# Commands

The `--help` of every command. `perennial STAGE` runs one stage. All share the [exit codes](exit-codes.md).

This page is generated: `python docs/commands.py > docs/reference/commands.md`.
"""


def markdown() -> str:
    """The page, with the help of each command at a width of 100 characters."""
    group = typer.main.get_command(app)
    sections = [
        f"## {' '.join(['perennial', *words])}\n\n```text\n{_help(group, *words)}```\n"
        for words in _commands(group)
    ]
    return "\n".join([HEAD, *sections])


def _commands(group, *words):
    """The words of a command and of those below it, except hidden ones."""
    yield words
    for name, command in getattr(group, "commands", {}).items():
        if not command.hidden:
            yield from _commands(command, *words, name)


def _help(group, *words):
    result = CliRunner().invoke(
        group, [*words, "--help"], prog_name="perennial", terminal_width=100, max_content_width=100
    )
    assert result.exit_code == 0, result.output
    return "\n".join(line.rstrip() for line in result.output.splitlines()) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
