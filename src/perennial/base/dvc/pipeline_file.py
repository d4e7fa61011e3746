"""The dvc.yaml of a project that holds no source of perennial, made from the one of this repository.

In place of the files of `src/`, each stage has a digest of its code, in code.yaml, as a parameter.
"""

import re

from perennial.base.errors import PerennialError
from perennial.base.layout import CODE as FILE

HEADER = """\
# The stages and their dependencies. Values and paths come from params.yaml, and commands are stages of
# `perennial`. A stage runs again if what it depends on has changed: files, parameters, the versions of packages
# in environment/, and the code of perennial, of which code.yaml has a digest for each stage.
#
# DVC removes the outputs of a stale stage before it starts the stage, also files that no stage made. `perennial
# run` refuses such paths; after a change of `paths` in params.yaml, run `perennial config` before `dvc repro`.
"""
SHARED = (FILE, "environment/", "components", "src/")  # what lies in the folder of all pipelines
SECTION = re.compile(r"^(\w[\w-]*):")
STAGE = re.compile(r"^  (\w[\w-]*):")
KEY = re.compile(r"^    (\w[\w-]*):")
ITEM = re.compile(r"^(      - )(.+\n?)$")


def of_project(text: str) -> str:
    """The dvc.yaml of a project, from this repository's."""
    head, found, rest = text.partition("\nstages:\n")
    if not found or not all(line.startswith("#") or not line for line in head.splitlines()):
        raise PerennialError("dvc.yaml does not begin with comments and `stages:`; a project's is made from it")
    lines = [*HEADER.splitlines(), "", "stages:"]
    for stage, block in _blocks(rest.splitlines()):
        lines += _stage(stage, block) if stage else block
    made = "\n".join(lines) + "\n"
    if "src/" in made:
        raise PerennialError("dvc.yaml names files of src/ outside of `deps`; a project has none")
    return made


def with_prefix(text: str, prefix: str) -> str:
    """The dvc.yaml of a pipeline in a folder of its own, which calls the project's top folder `prefix`."""
    lines = text.replace(f"of which {FILE} has", f"of which {prefix}{FILE} has").splitlines(keepends=True)
    return "".join(_from_root(line, prefix) for line in lines)


def _blocks(lines: list[str]) -> list[tuple[str, list[str]]]:
    """The lines of each stage, by its name; those of the other sections come last, without a name."""
    found: list[tuple[str, list[str]]] = []
    for number, line in enumerate(lines):
        if SECTION.match(line):
            return [*found, ("", lines[number:])]
        if started := STAGE.match(line):
            found.append((started[1], []))
        if found:
            found[-1][1].append(line)
    return found


def _stage(name: str, lines: list[str]) -> list[str]:
    """The lines of a stage without the files of src/, and with its digest."""
    parts: list[list[str]] = [[]]  # each key of the stage with its lines
    for line in lines:
        if KEY.match(line):
            parts.append([])
        if not re.match(r"\s+- (\.\./)*src/", line):
            parts[-1].append(line)
    parts = [part for part in parts if part != ["    deps:"]]
    code = [f"      - {FILE}:", f"          - stages.{name}"]
    place = next((part for part in parts if part[:1] == ["    params:"]), None)
    if place:
        place[1:1] = code
    else:
        parts.insert(2, ["    params:", *code])  # after the command
    return [line for part in parts for line in part]


def _from_root(line: str, prefix: str) -> str:
    item = ITEM.match(line)
    return f"{item[1]}{prefix}{item[2]}" if item and item[2].startswith(SHARED) else line
