"""Move a project to the perennial that runs: its lock, code.yaml, the keys of params.yaml, and its files.

The upgrade to another version is run by that one, which knows its files.
"""

import os
import posixpath
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perennial.base import documents, files, limits
from perennial.base.dvc.pipeline_file import with_prefix
from perennial.base.errors import ConfigError, PerennialError, listed
from perennial.base.layout import PARAMS, STAGES, Project
from perennial.base.params import edit_params as params_file
from perennial.base.processes import programs
from perennial.base.project import code_digests
from perennial.base.project.git import Repository, repository
from perennial.base.project.source_code import DISTRIBUTION
from perennial.orchestration.run_setup import run_environment
from perennial.project.new.template import BASE, NAME, OWN_WHEEL, generated, read_base, template, write_base
from perennial.project.upgrade import merge
from perennial.project.upgrade.merge import Change, What, merged

SHOWN = 5
OWN = (PARAMS, STAGES)  # files of each pipeline
WRONG = ("/", "\\", " ", "=", "<", ">", "@")  # in no version
# One of each says where packages come from. uv reads no pip.conf, and would ask the public index.
CHOSEN = (("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_NO_INDEX"), ("PIP_INDEX_URL", "PIP_NO_INDEX"))


@dataclass(frozen=True, kw_only=True)
class Upgraded:
    """What an upgrade did, or would do."""

    before: str  # version of perennial
    after: str
    changes: Sequence[Change]
    notes: Sequence[str]
    run_again: Mapping[str, Sequence[str]]  # stages by pipeline, the one of the top folder with an empty name
    written: bool

    @property
    def needed(self) -> bool:
        """Whether anything changes."""
        return any(each.what != "kept" for each in self.changes)

    @property
    def conflicts(self) -> list[str]:
        """The files with conflicts."""
        return [each.path for each in self.changes if each.what == "conflict"]


@dataclass(kw_only=True)
class _Plan:
    """The files before and after an upgrade."""

    root: Path
    version: str
    base: dict[str, bytes]
    theirs: dict[str, bytes]
    changes: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def before(self, path: str) -> bytes | None:
        """A file of the project as it is."""
        with suppress(OSError):
            return (self.root / path).read_bytes()
        return None

    def after(self, path: str) -> bytes | None:
        """A file as it is after the upgrade."""
        for change in self.changes:
            if change.path == path and change.what != "kept":
                return change.content
        return self.before(path)

    def pipelines(self) -> Iterator[tuple[str, str]]:
        """The name and the folder of each pipeline."""
        for each in Project(self.root, self.root).pipelines():
            yield each.name, each.folder.relative_to(self.root).as_posix()

    def run_again(self) -> Iterator[tuple[str, list[str]]]:
        """The name of each pipeline, and its stages that run again."""
        return ((name, merge.run_again(self.before, self.after, folder)) for name, folder in self.pipelines())


def upgrade(start: Path, *, check: bool = False, conflicts: bool = False) -> Upgraded:
    """Move the project that holds a folder to the installed perennial.

    check: change nothing. conflicts: also write files with conflicts, with git's markers.
    """
    root = Project.find(start).root
    git = repository(root)
    if not (root / code_digests.FILE).is_file():
        raise ConfigError(
            f"{root} is no project of perennial: it has no {code_digests.FILE}; run this in the folder of one, "
            "and `git pull` in a clone of perennial itself"
        )
    if not check:
        _require_clean(git)
    before, pristine = _version(root), read_base(root)
    if not pristine:
        raise ConfigError(
            f"{root / BASE} is missing, so your changes cannot be told from those of perennial {before}; "
            f"nothing was changed: `git checkout REVISION -- {BASE}` restores it"
        )
    plan = _Plan(root=root, version=code_digests.installed(), base=pristine, theirs=template())
    _plan(plan)
    done = Upgraded(
        before=before, after=plan.version, changes=plan.changes, notes=plan.notes,
        run_again={name: again for name, again in plan.run_again() if again},
        written=not check,
    )  # fmt: skip
    if done.conflicts and not conflicts and not check:
        lines = "".join(f"\n  {each}" for each in plan.changes if each.what == "conflict")
        raise PerennialError(
            f"these files cannot be merged, so nothing was changed:{lines}\n"
            "`perennial upgrade --conflicts` writes them with git's markers, for you to edit"
        )
    if not check:
        _write(plan)
    return done


def _version(root: Path) -> str:
    """The version of perennial that a project has."""
    try:
        return str(code_digests.read(root / code_digests.FILE)["perennial"])
    except ConfigError:  # damaged; it is written again
        return "of an unknown version"


def _require_clean(git: Repository) -> None:
    """Check that there are no changes that an upgrade could mix with its own."""
    changed, _ = git.changed()
    if changed:
        raise ConfigError(
            f"{listed(changed, SHOWN)} changed since the last commit; nothing was upgraded: commit or restore "
            "what you changed, so that `git diff` shows what the upgrade did"
        )


def _plan(plan: _Plan) -> None:
    """Fill a plan with the changes of all files."""
    shared = plan.base.keys() | plan.theirs.keys()
    names = {name for name in shared if name not in OWN and not generated(name)}
    plan.changes += merged(
        {name: plan.base[name] for name in names & plan.base.keys()},
        {name: content for name in names if (content := plan.before(name)) is not None},
        {name: plan.theirs[name] for name in names & plan.theirs.keys()},
        plan.version,
    )
    wheels = {file.relative_to(plan.root).as_posix() for file in plan.root.glob(OWN_WHEEL)}
    for name in sorted(filter(generated, {*plan.theirs, *wheels})):
        if (ours := plan.before(name)) != (theirs := plan.theirs.get(name)):
            what: What = "added" if ours is None else "removed" if theirs is None else "updated"
            plan.changes.append(Change(path=name, what=what, content=theirs))
    for _, folder in plan.pipelines():
        prefix = "" if folder == "." else f"{posixpath.relpath('.', folder)}/"
        plan.changes += _pipeline_file(plan, posixpath.normpath(posixpath.join(folder, STAGES)), prefix)
        plan.changes += _params(plan, posixpath.normpath(posixpath.join(folder, PARAMS)))


def _pipeline_file(plan: _Plan, path: str, prefix: str) -> list[Change]:
    base, theirs = (with_prefix(each[STAGES].decode(), prefix).encode() for each in (plan.base, plan.theirs))
    ours = plan.before(path)
    return merged({path: base}, {path: ours} if ours else {}, {path: theirs}, plan.version)


def _params(plan: _Plan, path: str) -> list[Change]:
    """Add the keys of a new version to a params.yaml, and remove those that it no longer has."""
    content, theirs = plan.before(path), plan.theirs[PARAMS].decode()
    if content is None:
        return []
    base = plan.base.get(PARAMS, plan.theirs[PARAMS]).decode()
    try:
        text = content.decode().replace("\r\n", "\n")
        old, new, own = (documents.flattened(documents.yaml_object(each)) for each in (base, theirs, text))
        gone = list(_dropped(old, new))
        more = params_file.upgrade(text)
        less = params_file.remove(more.text, gone, base)
    except (ConfigError, ValueError) as error:
        return [Change(path=path, what="conflict", content=content, why=str(error))]
    plan.notes += [f"{path}: {each}" for each in _notes(old, new, own, gone)]
    plan.notes += [f"{path}: {problem}; correct this before the next run" for problem in less.problems()]
    if less.text == text:
        return []
    said = [f"removed {key}" for key in (*more.removed, *less.removed)]
    said += [f"added {key}" for key in more.added]
    line_end = "\r\n" if b"\r\n" in content else "\n"
    written = less.text.replace("\n", line_end).encode()
    return [Change(path=path, what="updated", content=written, why=", ".join(said))]


def _dropped(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """The keys, or whole sections, that a params.yaml has no longer."""
    parts, found = {part for key in new for part in _above(key)}, set[str]()
    for key in old.keys() - new.keys():
        gone = next(each for each in _above(key) if each not in parts)
        if gone not in found:
            found.add(gone)
            yield gone


def _above(key: str) -> Iterator[str]:
    """A key and the sections that hold it, the outermost first."""
    names = key.split(".")
    return (".".join(names[: end + 1]) for end in range(len(names)))


def _notes(
    old: Mapping[str, Any], new: Mapping[str, Any], own: Mapping[str, Any], gone: Sequence[str]
) -> Iterator[str]:
    """Tell of values that a new version chooses otherwise, or has no longer; a project keeps its own."""
    for key in sorted(old.keys() & own.keys()):
        if key in new and old[key] != new[key] and own[key] == old[key]:
            yield f"the default of {key} is {new[key]} now; yours stays {own[key]}"
        elif own[key] != old[key] and {*gone} & {*_above(key)}:
            yield f"{key} is gone; yours was {own[key]}"


def _write(plan: _Plan) -> None:
    """Write all files; after an error the project is as it was."""
    changes = [each for each in plan.changes if each.what != "kept"]
    old = {each.path: plan.before(each.path) for each in changes}
    pristine = read_base(plan.root)
    try:
        for each in changes:
            _put(plan.root / each.path, each.content)
        if pristine != {name: each for name, each in plan.theirs.items() if not generated(name)}:
            write_base(plan.root, plan.theirs)
    except BaseException:
        for path, content in old.items():
            _put(plan.root / path, content)
        write_base(plan.root, pristine)
        raise


def _put(file: Path, content: bytes | None) -> None:
    if content is not None:
        mode = file.stat().st_mode if file.exists() else None
        files.write_bytes(file, content)
        if mode is not None:
            file.chmod(mode)
    elif file.exists():
        file.unlink()
        bytecode = file.with_name("__pycache__")
        for each in bytecode.glob(f"{file.stem}.*.pyc"):
            each.unlink()
        with suppress(OSError):  # there are other files
            for folder in filter(Path.exists, (bytecode, *file.parents)):
                folder.rmdir()


def other_package(named: str | None) -> str | None:
    """What an installer is asked for, if an upgrade is to another perennial than the one that runs."""
    if named is None or named == code_digests.installed():
        return None
    file = Path(named)
    if file.name.startswith(f"{NAME}-") and file.suffix == ".whl" and file.is_file():
        return str(file.absolute())
    if any(each in named for each in WRONG) or not named[:1].isdigit() or file.suffix == ".whl":
        raise ConfigError(
            f"VERSION must be one, such as {code_digests.installed()}, or a wheel of perennial, got {named}"
        )
    if not all(any(map(os.environ.get, names)) for names in CHOSEN):
        raise ConfigError(
            f"the public index is not asked for {DISTRIBUTION}: another project may have this name there; "
            f"name the wheel (`perennial upgrade {NAME}-{named}-py3-none-any.whl`), or an index of yours in "
            "UV_DEFAULT_INDEX and PIP_INDEX_URL"
        )
    return f"{DISTRIBUTION}=={named}"


def run_other(wanted: str, options: Sequence[str]) -> int:
    """Install a package beside those of this Python, and run its upgrade; returns its exit code."""
    with tempfile.TemporaryDirectory(prefix="perennial-") as folder:
        try:
            run_environment.install(sys.executable, [["--no-deps", "--target", folder, wanted]])
        except PerennialError as error:
            raise PerennialError(
                f"{wanted} cannot be installed: {error}; nothing was changed: check the version and the index"
            ) from error
        environment = {**os.environ, "PYTHONPATH": folder}
        command = [sys.executable, "-m", "perennial", "upgrade", *options]
        done = programs.run(command, limit_s=limits.INSTALL_S, env=environment, to=print)
        sys.stderr.write(done.errors)
        return done.code
