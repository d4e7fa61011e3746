"""Print the reference of all commands: `python docs/commands.py > docs/reference/commands.md`."""

import sys

from typer.testing import CliRunner

from perennial.cli import all_commands, app

HEAD = """\
# Commands

The `--help` of every command. `perennial STAGE` runs one stage. All share the [exit codes](exit-codes.md).

This page is generated: `python docs/commands.py > docs/reference/commands.md`.
"""


def markdown() -> str:
    """The page, with the help of each command at a width of 100 characters."""
    listed = [(), *_words(all_commands())]
    sections = [f"## {' '.join(['perennial', *words])}\n\n```text\n{_help(*words)}```\n" for words in listed]
    return "\n".join([HEAD, *sections])


def _words(commands, *above):
    """The words of each command and of those below it, except hidden ones."""
    for name, command in commands.items():
        if not command.hidden:
            yield (*above, name)
            yield from _words(getattr(command, "commands", {}), *above, name)


def _help(*words):
    result = CliRunner().invoke(
        app, [*words, "--help"], prog_name="perennial", terminal_width=100, max_content_width=100
    )
    assert result.exit_code == 0, result.output
    return "\n".join(line.rstrip() for line in result.output.splitlines()) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
