"""The source files that a program of this package runs: by its imports, and which of them decide what it makes.

dvc.yaml lists them for each stage (a test compares), and the fingerprint of a training covers them.
"""

import ast
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from perennial.base.errors import InputsChanged, listed
from perennial.base.layout import Project

PACKAGE = Path(__file__).resolve().parents[2]
DISTRIBUTION = "perennial-ml"  # its name on the package index, where `perennial` is another project
COMPONENTS = "components"  # folder in a project whose code its stages may load
OURS = (PACKAGE.name, "__main__", COMPONENTS)  # first parts of modules' names
SHOWN = 5  # files in a message
AT_START: dict[Path, tuple[int, ...] | None] = {}  # signatures of all files, in a process of the command line
# These check, advise, move and start things; they do not decide what a stage makes.
PLUMBING = {
    "__main__", "base/choices", "base/config", "base/documents", "base/dvc", "base/errors", "base/files",
    "base/layout", "base/limits", "base/params", "base/retries", "base/devices/gpus", "base/devices/lease",
    "base/distributed/ray_agent", "base/distributed/ray_workers", "base/distributed/workers", "base/parallel",
    "base/processes", "base/project/code_digests", "base/project/git", "base/project/own_components",
    "base/project/source_code", "base/project/stages", "base/project/syntax", "base/stage_state",
    "base/storage", "cli",
}  # fmt: skip


def signature(file: Path | str) -> tuple[int, ...] | None:
    """What differs once a file was written or replaced; None if there is no file."""
    try:
        found = os.stat(file)  # noqa: PTH116 - for many files
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


def note_start() -> None:
    """Note the state of the code before the rest of it is loaded."""
    for folder, _, names in (*os.walk(PACKAGE), *os.walk(Project.find().root.resolve() / COMPONENTS)):
        AT_START.update({Path(folder, name): signature(Path(folder, name)) for name in names})


def require_unchanged(program: str | None = None) -> None:
    """Check that the code that this process has loaded is the code that was there when it started.

    `program`: a module that a child process ran; its code is checked as well. Called once code was loaded, it
    also finds an edit that was undone meanwhile.
    """
    if not AT_START:
        return
    # Only ours: to resolve the paths of all takes a tenth of a second.
    ours = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] in OURS]
    loaded = (getattr(module, "__file__", None) for module in ours)
    files = {Path(file).resolve() for file in loaded if file}
    if program and (file := _file(program, PACKAGE)):
        files |= closure(file)
    root = Project.find().root.resolve()
    own = {file for file in files if file.is_relative_to(PACKAGE) and decides(file)}
    own |= {file for file in files if file.is_relative_to(root / COMPONENTS)}
    changed = sorted(
        file.relative_to(PACKAGE.parent if file.is_relative_to(PACKAGE) else root)
        for file in own
        if signature(file) != AT_START.get(file)
    )
    if changed:
        raise InputsChanged(
            f"{listed(changed, SHOWN)} changed while this process loaded its code, which may be the old or the "
            "new one; nothing was recorded; run it again"
        )


def of_stage(stage: str, package: Path = PACKAGE) -> set[Path]:
    """The files that decide what a stage makes: it imports them, or starts programs that do."""
    found = closure(package / "stages" / f"{stage}.py", package=package, modules=modules)
    return {
        file for file in found if decides(file, package) and tree(_text(file)).body[1:]
    }  # not only a docstring


def decides(file: Path, package: Path = PACKAGE) -> bool:
    """Whether a file of the package can change what a stage makes."""
    module = file.relative_to(package).with_suffix("")
    return not any(path.as_posix() in PLUMBING for path in (module, *module.parents))


def closure(
    file: Path, *, package: Path = PACKAGE, modules: Callable[[Path], Iterable[str]] | None = None
) -> set[Path]:
    """Every file of the package that importing a file runs.

    `modules`: gives the names of the modules that a file leads to; those that it imports by default.
    """
    found, queue, known = {file}, [file], set[str]()
    while queue:
        file = queue.pop()
        for module in modules(file) if modules else imported(_text(file)):
            for end in range(2, module.count(".") + 2):
                name = ".".join(module.split(".")[:end])
                if name in known:
                    continue
                known.add(name)
                if (other := _file(name, package)) and other not in found:
                    found.add(other)
                    queue.append(other)
    return found


def modules(file: Path) -> tuple[str, ...]:
    """The modules that a file imports, and those that it starts as programs."""
    text = _text(file)
    return (*imported(text), *_started(text))


@cache
def imported(text: str) -> tuple[str, ...]:
    """The modules that a program's text imports; `from a import b` gives a and a.b."""
    return tuple(_imported(text))


def _imported(text: str) -> Iterator[str]:
    for node in ast.walk(tree(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _started(text: str) -> Iterator[str]:
    """The names of modules in constants: a file runs these as programs."""
    for node in tree(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


def _file(module: str, package: Path) -> Path | None:
    """The file of a module of this package."""
    root, _, name = module.partition(".")
    if root != PACKAGE.name or not name.replace(".", "_").isidentifier():
        return None
    path = package / name.replace(".", "/")
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@cache
def tree(text: str) -> ast.Module:
    """The syntax tree of a program."""
    return ast.parse(text)


if (
    __name__ == "__main__"
):  # what dvc.yaml lists under `deps`: python -m perennial.base.project.source_code STAGE
    listed_files = sorted(file.relative_to(PACKAGE.parents[1]) for file in of_stage(sys.argv[1]))
    sys.stdout.writelines(f"{file}\n" for file in listed_files)
