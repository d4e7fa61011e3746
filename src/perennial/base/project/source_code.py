"""The source files that a program of this package runs, which of them decide what it makes, and what they do.

dvc.yaml lists them for each stage (a test compares), and the fingerprint of a training covers them. What a file
does is its program without comments, docstrings and layout, equal in Python 3.11, 3.12 and 3.13. `ast.dump` is
not: a newer one has more fields, leaves out empty ones, and cuts the text of an f-string into other pieces.
"""

import ast
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from perennial.base.errors import InputsChanged, listed
from perennial.base.layout import Project

PACKAGE = Path(__file__).resolve().parents[2]
DISTRIBUTION = "perennial-ml"  # its name on the package index, where `perennial` is another project
COMPONENTS = "components"  # folder in a project whose code its stages may load
OURS = (PACKAGE.name, "__main__", COMPONENTS)  # first parts of modules' names
SHOWN = 5  # files in a message
AT_START: dict[str, tuple[int, ...] | None] = {}  # signatures of all files, in a process of the command line
REAL = cache(os.path.realpath)  # once for the many files of a folder: it asks for each part of the path
# These check, advise, move and start things; they do not decide what a stage makes.
PLUMBING = {
    "__main__", "base/choices", "base/config", "base/documents", "base/dvc", "base/errors", "base/files",
    "base/layout", "base/limits", "base/params", "base/retries", "base/devices/gpus", "base/devices/lease",
    "base/parallel", "base/processes", "base/project/code_digests", "base/project/git",
    "base/project/own_components", "base/project/source_code", "base/project/stage_table", "base/stage_state",
    "base/storage", "cli",
}  # fmt: skip

DATA_FILE = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+")
NOTHING = hashlib.sha256(b"").hexdigest()  # the digest of comments and docstrings alone
IGNORED = {"kind", "type_comment", "ctx"}  # of a constant: `u`; a comment; follows from where a name stands


@dataclass(frozen=True)
class Facts:
    """What a Python file does, and what else it leads to."""

    digest: str  # SHA-256 of `normalised`
    imports: tuple[str, ...]  # modules; `from a import b` gives a and a.b
    starts: tuple[str, ...]  # constants that may name modules, which it runs as programs
    data: tuple[str, ...]  # names of files in its constants, such as of a template beside it


@cache
def facts(content: bytes) -> Facts:
    """What the text of a Python file says; found once for each content."""
    tree = ast.parse(content)
    imports: list[str] = []
    data = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            imports += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and DATA_FILE.fullmatch(node.value):
            data.add(node.value)
    starts = (
        node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    )
    return Facts(
        hashlib.sha256(normalised(tree).encode()).hexdigest(),
        tuple(imports),
        tuple(each for each in starts if isinstance(each, str) and each.startswith(f"{PACKAGE.name}.")),
        tuple(sorted(name for name in data if not name.endswith(".py"))),
    )


def signature(file: Path | str) -> tuple[int, ...] | None:
    """What differs once a file was written or replaced; None if there is no file."""
    try:
        found = os.stat(file)  # noqa: PTH116 - for many files
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


def signatures(path: Path | str) -> Iterator[tuple[str, tuple[int, ...] | None]]:
    """The files at or below a path and their signatures, without bytecode."""
    yield str(path), signature(path)
    for folder, below, names in os.walk(path):
        below[:] = [name for name in below if name != "__pycache__"]
        yield from ((file, signature(file)) for file in (f"{folder}/{name}" for name in names))


def note_start() -> None:
    """Note the state of the code before the rest of it is loaded."""
    for folder in (PACKAGE, Project.find().root.resolve() / COMPONENTS):
        AT_START.update(signatures(folder))


def require_unchanged(program: str | None = None) -> None:
    """Check that the code that this process has loaded is the code that was there when it started.

    `program`: a module that a child process ran; its code is checked as well. Called once code was loaded, it
    also finds an edit that was undone meanwhile.
    """
    if not AT_START:
        return
    # Only ours: to resolve the paths of all takes a tenth of a second.
    ours = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] in OURS]
    loaded = filter(None, (getattr(module, "__file__", None) for module in ours))
    files = {Path(REAL(os.path.dirname(file)), os.path.basename(file)) for file in loaded}  # noqa: PTH119, PTH120
    if program and (file := _file(program, PACKAGE)):
        files |= closure(file)
    root = Project.find().root.resolve()
    own = {file for file in files if file.is_relative_to(PACKAGE) and decides(file)}
    own |= {file for file in files if file.is_relative_to(root / COMPONENTS)}
    changed = sorted(
        file.relative_to(PACKAGE.parent if file.is_relative_to(PACKAGE) else root)
        for file in own
        if signature(file) != AT_START.get(str(file))
    )
    if changed:
        raise InputsChanged(
            f"{listed(changed, SHOWN)} changed while this process loaded its code, which may be the old or the "
            "new one; nothing was recorded; run it again"
        )


def of_stage(stage: str, package: Path = PACKAGE, known: Callable[[bytes], Facts] = facts) -> set[Path]:
    """The files that decide what a stage makes: it imports them, or starts programs that do."""
    found = closure(package / "stages" / f"{stage}.py", package=package, known=known, programs=True)
    return {file for file in found if decides(file, package) and known(file.read_bytes()).digest != NOTHING}


def decides(file: Path, package: Path = PACKAGE) -> bool:
    """Whether a file of the package can change what a stage makes."""
    module = file.relative_to(package).with_suffix("")
    return not any(path.as_posix() in PLUMBING for path in (module, *module.parents))


def closure(
    file: Path, *, package: Path = PACKAGE, known: Callable[[bytes], Facts] = facts, programs: bool = False
) -> set[Path]:
    """Every file of the package that importing a file runs; with `programs` also those that it starts."""
    found, queue, seen = {file}, [file], set[str]()
    while queue:
        about = known(queue.pop().read_bytes())
        for module in (*about.imports, *(about.starts if programs else ())):
            for end in range(2, module.count(".") + 2):
                name = ".".join(module.split(".")[:end])
                if name in seen:
                    continue
                seen.add(name)
                if (other := _file(name, package)) and other not in found:
                    found.add(other)
                    queue.append(other)
    return found


def _file(module: str, package: Path) -> Path | None:
    """The file of a module of this package."""
    root, _, name = module.partition(".")
    if root != PACKAGE.name or not name.replace(".", "_").isidentifier():
        return None
    path = package / name.replace(".", "/")
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


def normalised(program: ast.Module) -> str:
    """What a Python program does, as text; empty if it has only comments and docstrings."""
    parts: list[str] = []
    for statement in _statements(program.body):
        _write(statement, parts.append)
    return "".join(parts)


def _write(value: object, to: Callable[[str], None]) -> None:
    if isinstance(value, ast.Constant):
        to(f"{type(value.value).__name__} {_constant(value.value)}")
    elif isinstance(value, ast.AST):
        to(f"{type(value).__name__}(")
        for name, field in _fields(value):
            to(f"{name}=")
            _write(field, to)
            to(",")
        to(")")
    elif isinstance(value, list):
        to("[")
        for each in value:
            _write(each, to)
            to(",")
        to("]")
    else:  # a name, a number of dots, a singleton of a pattern
        to(_constant(value))


def _fields(node: ast.AST) -> Iterator[tuple[str, object]]:
    """The fields of a node that say something, in an order that does not depend on Python's version."""
    for name in sorted(node._fields):
        value = getattr(node, name, None)
        if name in {"body", "orelse", "finalbody"} and isinstance(value, list):
            value = list(_statements(value))
        elif name == "values" and isinstance(node, ast.JoinedStr):
            value = list(_merged(value or []))
        elif name == "format_spec" and isinstance(value, ast.JoinedStr) and not list(_merged(value.values)):
            value = None
        if value is not None and value != [] and name not in IGNORED:
            yield name, value


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The statements but texts that stand alone: docstrings."""
    for each in body:
        text = isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
        if not (text and isinstance(each.value.value, str)):  # type: ignore[attr-defined]
            yield each


def _merged(values: Iterable[ast.expr]) -> Iterator[ast.expr]:
    """The pieces of an f-string, neighbouring texts as one and empty ones left out."""
    text = ""
    for each in values:
        if isinstance(each, ast.Constant):
            text += str(each.value)
            continue
        if text:
            yield ast.Constant(text)
        text = ""
        yield each
    if text:
        yield ast.Constant(text)


def _constant(value: object) -> str:
    # `repr` of a text depends on Python's version of Unicode, and it refuses integers of thousands of digits.
    return hex(value) if type(value) is int else ascii(value)


if __name__ == "__main__":  # what dvc.yaml lists under `deps` of the stage that the argument names
    listed_files = sorted(file.relative_to(PACKAGE.parents[1]) for file in of_stage(sys.argv[1]))
    sys.stdout.writelines(f"{file}\n" for file in listed_files)
