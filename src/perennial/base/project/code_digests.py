"""Which code each stage runs, for a project that holds no source of perennial.

Its code.yaml has a digest of the code of each stage, and dvc.yaml lists that digest as a parameter: after an
upgrade that changes it, DVC runs the stage again, and no other. A digest covers the files that decide what the
stage makes, but not their comments, docstrings and layout. It is equal wherever perennial is installed and in
each version of Python.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import astuple
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from perennial.base import documents, files, layout
from perennial.base.errors import ConfigError, listed
from perennial.base.project import source_code
from perennial.base.project.source_code import DISTRIBUTION, PACKAGE, Facts
from perennial.base.project.stage_table import STAGES

FILE = layout.CODE_DIGESTS
CACHE = "code.json"  # in paths.work: to parse all files takes half a second
CACHED = 2000  # files; more are of many versions
DIGEST = re.compile("[0-9a-f]{64}")
COMMENT = """\
# The code that makes each result: the version of perennial, and a digest of the code of each stage. DVC reads
# the digests as parameters: where an upgrade changes one, that stage and those that use its result run again.
# `perennial upgrade` writes this file.
"""


def digests(
    stages: Mapping[str, object] = STAGES, *, package: Path = PACKAGE, cache: Path | None = None
) -> dict[str, str]:
    """The digest of the code of each stage; `cache`: a file with the facts of each file of the package."""
    with remembered(cache) as facts:
        return {stage: _of_stage(stage, package, facts) for stage in stages}


@contextmanager
def remembered(cache: Path | None) -> Iterator[Callable[[bytes], Facts]]:
    """Yield a function for the facts of a file by its content, which reads and extends a cache."""
    before = len(known := _read(cache) if cache else {})

    def facts(content: bytes) -> Facts:
        key = hashlib.sha256(content).hexdigest()
        return known.get(key) or known.setdefault(key, source_code.facts(content))

    yield facts
    if cache and len(known) > before:
        rows = {key: list(astuple(each)) for key, each in known.items()} if len(known) <= CACHED else {}
        with suppress(OSError):  # only the next start takes longer
            files.write_json(cache, {"files": rows, "seal": _seal(rows)})


def _read(cache: Path) -> dict[str, Facts]:
    """The facts by SHA-256 of a file's content; none if the cache is damaged or of another version."""
    try:
        content = documents.json_object(cache.read_bytes())
        if content["seal"] != _seal(content["files"]):
            return {}
    except (OSError, ValueError, KeyError):
        return {}
    return {key: Facts(each[0], *map(tuple, each[1:])) for key, each in content["files"].items()}


def _seal(rows: object) -> str:
    """A digest of facts and of the code that finds them."""
    code = Path(source_code.__file__).read_bytes()
    return hashlib.sha256(code + files.json_bytes(rows)).hexdigest()


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
    if (now := digests(stages, cache=work / CACHE)) != expected:
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
        f"nothing was started: `perennial run` works with {named['perennial']}, whose wheel the project has; "
        "`perennial upgrade` moves the project to the installed version and says which stages then run again"
    )


def _of_stage(stage: str, package: Path, facts: Callable[[bytes], Facts]) -> str:
    parts = {}
    for file in source_code.of_stage(stage, package, facts):
        about = facts(file.read_bytes())
        parts[file.relative_to(package).as_posix()] = about.digest
        for other in (file.with_name(name) for name in about.data):
            if other.is_file():
                parts[other.relative_to(package).as_posix()] = files.sha256(other)
    return hashlib.sha256(files.json_bytes(parts)).hexdigest()
