"""The command `upgrade`: a project moves to another version of perennial."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perennial.base.errors import PerennialError, QualityError, printable
from perennial.cli.command import JsonOption, command, output

if TYPE_CHECKING:
    from perennial.project.upgrade.upgrade import Upgraded

app = typer.Typer()


@command(app, "upgrade", "Move a project to another version; keep your changes.")
def _upgrade(
    version: Annotated[
        str | None, typer.Argument(metavar="VERSION", help="Version. [default: the installed one]")
    ] = None,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with code 4 if something would change.")
    ] = False,
    conflicts: Annotated[
        bool, typer.Option("--conflicts", help="Write files that cannot be merged, with git's markers.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    from perennial.project.upgrade import other_version, upgrade

    if other_version.is_other(version):
        options = {"--check": check, "--conflicts": conflicts, "--json": as_json}
        raise SystemExit(other_version.run(str(version), [name for name, given in options.items() if given]))
    done = upgrade.upgrade(Path.cwd(), check=check, conflicts=conflicts)
    output(_document(done), map(printable, _lines(done)), as_json=as_json)
    if check and done.needed:
        raise QualityError(
            f"this project is not that of perennial {done.after}; `perennial upgrade` changes it"
        )
    if done.conflicts:
        raise PerennialError(
            f"conflicts in {', '.join(done.conflicts)}: edit them, then `git add` and commit; `git checkout .` "
            "takes the upgrade back"
        )


def _document(done: "Upgraded") -> dict[str, Any]:
    return {
        "before": done.before,
        "after": done.after,
        "changes": [{"path": each.path, "what": each.what, "why": each.why or None} for each in done.changes],
        "notes": list(done.notes),
        "run_again": {name or ".": list(stages) for name, stages in done.run_again.items()},
        "written": done.written,
    }


def _lines(done: "Upgraded") -> Iterator[str]:
    moved = done.after if done.before == done.after else f"{done.before} -> {done.after}"
    yield f"perennial {moved}: {'nothing changes' if not done.changes else 'files of this project'}"
    yield from (f"  {each}" for each in done.changes)
    yield from (f"  {note}" for note in done.notes)
    if not done.needed:
        return
    yield "stages that run again:" if done.run_again else "no stage runs again"
    for name, stages in done.run_again.items():
        yield f"  {f'{name}: ' if name else ''}{', '.join(stages)}"
    if done.written:
        yield "next: look at `git diff`, commit, then `perennial run`, which installs the new lock"
