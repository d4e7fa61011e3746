"""Mend `.venv` after its project was moved, renamed or copied: its files name the folder that it was made in.

`make install` runs this file by its path, because the moved environment cannot import the package.
"""

import os
import re
import shlex
import sys
import venv
from pathlib import Path

# The first lines of an installed program. `#!` takes no path with spaces, so installers start a shell for it.
HEADER = re.compile(
    rb"#!(?:/[^\n]*/\.venv/bin/python[\d.]*|/bin/sh\n'''exec' [^\n]*/\.venv/bin/python[^\n]*\n' ''')\n"
)
LONGEST = 126  # bytes of a path after `#!`


def mend(environment: Path, root: Path) -> bool:
    """Let programs, import paths and links name `root`; False if it is no environment of ours."""
    paths = next(environment.glob("lib/python*/site-packages/_perennial_ml.pth"), None)
    if paths is None:
        return False
    for script in (environment / "bin").glob("[aA]ctivate*"):
        script.unlink()  # `venv` writes into it
    builder = venv.EnvBuilder()
    builder.setup_scripts(builder.ensure_directories(str(environment)))
    header = _header(environment / "bin" / "python")
    for program in (environment / "bin").iterdir():
        if program.is_file() and not program.is_symlink():
            content = program.read_bytes()
            if found := HEADER.match(content):
                _replace(program, header + content[found.end() :])
    named = paths.read_text(encoding="utf-8").splitlines()
    old = min(named, key=len)  # the others are folders in it
    _relink(root, Path(old))
    lines = [f"{root}{line.removeprefix(old)}" for line in named]
    _replace(paths, "\n".join(lines).encode())  # last: `make install` looks for the folder here
    return True


def _header(python: Path) -> bytes:
    path = os.fsencode(python)
    if len(path) <= LONGEST and not re.search(rb"\s", path):
        return b"#!" + path + b"\n"
    return b"#!/bin/sh\n'''exec' " + os.fsencode(shlex.quote(str(python))) + b" \"$0\" \"$@\"\n' '''\n"


def _relink(root: Path, old: Path) -> None:
    """Point broken links into the old folder to the new one, such as DVC's with `cache.type symlink`."""
    for place, folders, names in os.walk(root):
        for link in (Path(place, name) for name in (*folders, *names)):
            if link.is_symlink() and not link.exists() and link.readlink().is_relative_to(old):
                target = root / link.readlink().relative_to(old)
                link.unlink()
                link.symlink_to(target)


def _replace(file: Path, content: bytes) -> None:
    temporary = file.with_name(f".{file.name}.moved")
    temporary.write_bytes(content)
    temporary.chmod(file.stat().st_mode)
    temporary.replace(file)


if __name__ == "__main__":
    here = Path.cwd()
    if mend(here / ".venv", here):
        sys.stderr.write(f"The project is now in {here}; .venv was adjusted to that.\n")
