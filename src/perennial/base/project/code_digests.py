"""Which code each stage runs, for a project that holds no source of perennial.

Its code.yaml has a digest of the code of each stage, and dvc.yaml lists that digest as a parameter: after an
upgrade that changes it, DVC runs the stage again, and no other. A digest covers the files that decide what the
stage makes, but not their comments, docstrings and layout. It is equal wherever perennial is installed and in
each version of Python.
"""

import ast
import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from perennial.base import documents, files, layout
from perennial.base.errors import ConfigError, listed
from perennial.base.project import source_code, syntax
from perennial.base.project.source_code import DISTRIBUTION, PACKAGE
from perennial.base.project.stages import STAGES

FILE = layout.CODE
CACHE = "code.json"  # in paths.work: to parse all files takes half a second
CACHED = 2000  # files; more are of many versions
DIGEST = re.compile("[0-9a-f]{64}")
DATA_FILE = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+")
COMMENT = """\
# The code that makes each result: the version of perennial, and a digest of the code of each stage. DVC reads
# the digests as parameters: where an upgrade changes one, that stage and those that use its result run again.
# `perennial upgrade` writes this file.
"""


@dataclass(frozen=True)
class Facts:
    """What a Python file adds to a stage."""

    digest: str  # empty if it holds only comments and docstrings
    modules: tuple[str, ...]  # that it imports, or starts as programs
    data: tuple[str, ...]  # names of files in its constants, such as of a template beside it


class _Known:
    """Facts by the SHA-256 of a file's bytes, kept in a file."""

    def __init__(self, file: Path | None) -> None:
        self.file, self.new = file, False
        # Another version of these two modules may find other facts.
        own = b"".join(Path(module.__file__ or "").read_bytes() for module in (syntax, source_code))
        self.by = hashlib.sha256(own + Path(__file__).read_bytes()).hexdigest()
        self.facts = dict(self._read()) if file else {}

    def _read(self) -> list[tuple[str, Facts]]:
        try:
            content = documents.json_object(self.file.read_bytes()) if self.file else {}
            known = content["files"] if content["by"] == self.by else {}
            return [(key, _facts(each)) for key, each in known.items()]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return []  # none yet, or damaged: all is found out again

    def of(self, file: Path) -> Facts:
        content = file.read_bytes()
        key = hashlib.sha256(content).hexdigest()
        if key not in self.facts:
            self.facts[key], self.new = _found(file, content.decode()), True
        return self.facts[key]

    def save(self) -> None:
        if self.file and self.new:
            kept = {} if len(self.facts) > CACHED else self.facts
            lists = {key: [each.digest, list(each.modules), list(each.data)] for key, each in kept.items()}
            with suppress(OSError):  # only the next start takes longer
                files.write_json(self.file, {"by": self.by, "files": lists})


def digests(
    stages: Mapping[str, object] = STAGES, *, package: Path = PACKAGE, cache: Path | None = None
) -> dict[str, str]:
    """The digest of the code of each stage; `cache`: a file with what is known of each file of the package."""
    known = _Known(cache)
    found = {stage: _of_stage(stage, package, known) for stage in stages}
    known.save()
    return found


def content() -> str:
    """The text of code.yaml for the code that is installed."""
    # Quoted: 1e5 followed by digits would be a number.
    lines = [f'  {stage}: "{digest}"' for stage, digest in digests().items()]
    return f'{COMMENT}perennial: "{installed()}"\nstages:\n' + "\n".join(lines) + "\n"


def installed() -> str:
    """The version of perennial that is installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "of no version"


def require(stage: str, root: Path, work: Path) -> None:
    """Check that a stage runs the code that code.yaml names.

    root: the folder of code.yaml. work: the folder for files of no further use.
    """
    if stage in STAGES:
        _require({stage: STAGES[stage]}, root, work)


def require_all(root: Path, work: Path) -> None:
    """Check, for a run of all stages, that the installed perennial is the one that code.yaml names."""
    named = _require(STAGES, root, work)
    if named and named["perennial"] != installed():
        raise ConfigError(
            f"{root / FILE} names perennial {named['perennial']}, but {installed()} is installed in "
            f"{PACKAGE.parent}; {_remedy(named)}"
        )


def _require(stages: Mapping[str, object], root: Path, work: Path) -> dict[str, Any] | None:
    file = root / FILE
    if layout.source(root) or not file.is_file():  # dvc.yaml lists the files of a source
        return None
    named = read(file)
    if missing := [stage for stage in stages if stage not in named["stages"]]:
        raise ConfigError(
            f"{file} of perennial {named['perennial']} has no digest of the code of "
            f"{listed(missing, len(STAGES))}, which perennial {installed()} in {PACKAGE.parent} runs; "
            f"{_remedy(named)}"
        )
    expected = {stage: named["stages"][stage] for stage in stages}
    # A cache may be damaged so that it can still be read.
    if digests(stages, cache=work / CACHE) != expected and (now := digests(stages)) != expected:
        other = [stage for stage in stages if now[stage] != expected[stage]]
        raise ConfigError(
            f"{file} names the code of perennial {named['perennial']} for {listed(other, len(STAGES))}, but "
            f"perennial {installed()} in {PACKAGE.parent} has other code for "
            f"{'it' if len(other) == 1 else 'them'}; {_remedy(named)}"
        )
    return named


def read(file: Path) -> dict[str, Any]:
    """The version and the digests by stage in a code.yaml."""
    return parse(file.read_bytes(), str(file))


def parse(text: bytes, name: str = FILE) -> dict[str, Any]:
    """The version and the digests by stage in the text of a code.yaml; `name` is for the message."""
    try:
        found = documents.yaml_object(text)
        good = isinstance(found["perennial"], str) and all(
            isinstance(digest, str) and DIGEST.fullmatch(digest) for digest in found["stages"].values()
        )
    except (ValueError, KeyError, AttributeError):
        good = False
    if not good:
        raise ConfigError(
            f"{name} does not hold a version of perennial and, under `stages`, a quoted digest of 64 digits "
            f"for each stage; `git checkout {name}` restores it, and `perennial upgrade` writes it"
        )
    return found


def _remedy(named: Mapping[str, Any]) -> str:
    return (
        f"nothing was started: install {DISTRIBUTION}=={named['perennial']}, as `perennial run` does, or run "
        "`perennial upgrade`, which moves the project to the installed version and says which stages then "
        "run again"
    )


def _of_stage(stage: str, package: Path, known: _Known) -> str:
    start = package / "stages" / f"{stage}.py"
    found = source_code.closure(start, package=package, modules=lambda file: known.of(file).modules)
    parts = {}
    for file in found:
        facts = known.of(file)
        if not facts.digest or not source_code.decides(file, package):
            continue
        parts[file.relative_to(package).as_posix()] = facts.digest
        for other in (file.with_name(name) for name in facts.data):
            if other.is_file():
                parts[other.relative_to(package).as_posix()] = files.sha256(other)
    return hashlib.sha256(files.json_bytes(parts)).hexdigest()


def _found(file: Path, text: str) -> Facts:
    names = {
        node.value
        for node in ast.walk(source_code.tree(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and DATA_FILE.fullmatch(node.value)
    }
    code = syntax.normalised(source_code.tree(text))
    return Facts(
        hashlib.sha256(code.encode()).hexdigest() if code else "",
        source_code.modules(file),
        tuple(sorted(name for name in names if not name.endswith(".py"))),
    )


def _facts(each: Any) -> Facts:
    digest, modules, data = each
    if not all(isinstance(text, str) for text in (digest, *modules, *data)):
        raise TypeError
    return Facts(digest, tuple(modules), tuple(data))
