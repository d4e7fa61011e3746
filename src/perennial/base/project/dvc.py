"""Calls of the DVC program, without analytics, prompts or passwords in messages. Flows use its Python API."""

import fcntl
import hashlib
import importlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from fnmatch import translate
from itertools import takewhile
from pathlib import Path
from typing import Any

from perennial.base import documents, files, limits, programs
from perennial.base.errors import ConfigError, Failure, PerennialError, redacted
from perennial.base.programs import Finished
from perennial.base.project.remedies import remedy

LINES = 3  # of a message
IGNORE = ".dvcignore"
# Newer S3 clients send checksums, which some servers reject; DVC compares objects with its own digests.
S3_CHECKSUMS = {
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
}
TRIAL = b"perennial tests with this file whether `dvc push` works.\n"
BROKEN_LOCKS = "Unable to read RWLock-file"
# A line below every unexpected error, and what gcsfs says of a bucket whose description it may not read.
NOISE = re.compile(r"https://dvc\.org/support|falling back to GCSFileSystem")


class DvcError(PerennialError):
    """DVC refused or failed."""


def environment() -> dict[str, str]:
    """The variables of a DVC that perennial starts."""
    return {**S3_CHECKSUMS, **os.environ, "DVC_NO_ANALYTICS": "1"}


def run(
    *arguments: str,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
    limit_s: float = limits.DVC_S,
) -> str:
    """Run a DVC command, by default in the working directory, and return its output; not with `--quiet`.

    That would hide why it fails.
    """

    def call() -> Finished:
        command = [sys.executable, "-m", "dvc", *arguments]
        return programs.run(command, cwd=folder, env=variables or environment(), limit_s=limit_s)

    try:
        done = call()
        if done.code and BROKEN_LOCKS in done.errors:
            _remove_broken_locks(folder or root())
            done = call()
    except programs.TimedOut as error:
        raise DvcError(str(programs.TimedOut(f"dvc {arguments[0]}", error.limit_s, error.said))) from None
    if done.code:
        lines = [line for line in done.errors.splitlines() if line.strip() and not NOISE.search(line)]
        message = redacted(" ".join(lines[-LINES:])) or f"exit code {done.code}"
        hint = remedy("\n".join(lines))
        failed = f"`dvc {arguments[0]}` failed: {message}{f'; {hint}' if hint else ''}"
        raise DvcError(failed, kind=Failure.REFUSED if hint else None)
    return done.output


def _remove_broken_locks(folder: Path) -> None:
    """Remove the list of locks that a full disk or a kill left half written, on which every later DVC fails."""
    file, guard = folder / ".dvc" / "tmp" / "rwlock", folder / ".dvc" / "tmp" / "rwlock.lock"
    with suppress(OSError), guard.open("ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)  # as DVC does while it writes the list
        try:
            documents.parse_json(file.read_bytes())
        except ValueError:
            file.unlink()


def configuration() -> dict[str, str]:
    """DVC's options by names such as `core.remote`, with absolute paths; some may be secrets."""
    return dict(line.partition("=")[::2] for line in run("config", "--list").splitlines())


def get(path: str, revision: str, to: Path) -> None:
    """Copy a stage's output at a revision from DVC's cache or remote to a path that does not exist yet.

    DVC reads the remotes from the configuration of the revision. Those of the checkout are tried as well: a
    revision may be older than the remote that holds its objects.
    """
    top = root()  # DVC takes paths from there
    inside = Path.cwd().relative_to(top) / path
    command = ("get", str(top), inside.as_posix(), "--rev", revision, "--out", str(to))
    try:
        run(*command)
    except DvcError:
        options = configuration()
        if "core.remote" not in options:
            raise
        with tempfile.TemporaryDirectory(prefix="perennial-") as folder:  # only its owner can read it
            file = Path(folder, "config")
            file.write_text(remotes_section(options), encoding="utf-8")
            run(*command, "--force", "--config", str(file))


def variables_to_push(name: str) -> dict[str, str]:
    """The variables that `dvc push` needs in a shell for a remote in S3; none for most servers.

    A file of a few bytes is pushed by DVC itself, from a scratch repository, and stays in the remote.
    """
    options = {key: value for key, value in configuration().items() if key.startswith(f"remote.{name}.")}
    digest = hashlib.md5(TRIAL, usedforsecurity=False).hexdigest()
    with tempfile.TemporaryDirectory(prefix="perennial-") as scratch:  # only its owner can read it
        folder = Path(scratch)
        settings = f"no_scm = true\nsite_cache_dir = {folder / 'site'}\n"
        section = remotes_section({**options, "core.remote": name}).replace("[core]\n", f"[core]\n{settings}")
        files.write_bytes(folder / ".dvc" / "config", section.encode())
        files.write_bytes(folder / ".dvc" / "cache" / "files" / "md5" / digest[:2] / digest[2:], TRIAL)
        files.write_bytes(
            folder / "trial.dvc",
            files.json_bytes({"outs": [{"md5": digest, "size": len(TRIAL), "hash": "md5", "path": "trial"}]}),
        )
        once = {**os.environ, "DVC_NO_ANALYTICS": "1", "AWS_MAX_ATTEMPTS": "1"}
        try:
            run("push", folder=folder, variables=once, limit_s=limits.DVC_TRIAL_S)
        except DvcError:
            needed = {key: value for key, value in S3_CHECKSUMS.items() if os.environ.get(key) != value}
            if not needed:
                raise
            run("push", folder=folder, variables={**once, **needed}, limit_s=limits.DVC_TRIAL_S)
            return needed
    return {}


def remote_options(name: str | None, options: Mapping[str, str] | None = None) -> dict[str, str]:
    """The options of a remote, `url` among them; none without a name. `options`: DVC's, if already known."""
    if name is None:
        return {}
    known = remotes(configuration() if options is None else options)
    if "url" not in known.get(name, {}):
        listed = ", ".join(sorted(known)) or "none"
        raise ConfigError(f"DVC has no remote {name}; known: {listed}; `perennial remote add`")
    return known[name]


def remotes(options: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The options of each remote by its name, which may contain dots."""
    found: dict[str, dict[str, str]] = {}
    for key, value in options.items():
        if key.startswith("remote."):
            name, _, option = key.removeprefix("remote.").rpartition(".")
            found.setdefault(name, {})[option] = value
    return found


def remotes_section(options: Mapping[str, str]) -> str:
    """The remotes of these options as text of a DVC configuration file."""
    lines = ["[core]", f"remote = {_quoted(options['core.remote'])}"] if "core.remote" in options else []
    for name, own in remotes(options).items():
        lines += [f"['remote \"{name}\"']", *(f"{key} = {_quoted(value)}" for key, value in own.items())]
    return "".join(f"{line}\n" for line in lines)


def _quoted(value: str) -> str:
    """A value in ConfigObj's format, DVC's own; without quotes, a comma would make a list."""
    mark = "'" if '"' in value else '"'
    return f"{mark}{value}{mark}"


def cache_folder(options: Mapping[str, str]) -> Path:
    """The folder of DVC's cache."""
    return Path(options.get("cache.dir") or root() / ".dvc" / "cache")


def root() -> Path:
    """The folder that holds `.dvc`: the working directory or one above it."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / ".dvc").is_dir():
            return folder
    raise DvcError(f"{here} is in no DVC repository; `dvc init` makes one")


def digest(path: Path) -> str:
    """Compute the MD5 as DVC 3 does: of a file's content, or of the JSON list of a folder's files."""
    digests = {name: files.md5(file) for name, file in files_of(path).items()}
    return digest_of(digests) if path.is_dir() else digests[""]


def digest_of(members: Mapping[str, str]) -> str:
    """The digest of a folder from the digests of its files by their relative paths."""
    listed = [{"md5": md5, "relpath": name} for name, md5 in sorted(members.items())]
    return f"{hashlib.md5(json.dumps(listed).encode(), usedforsecurity=False).hexdigest()}.dir"


def files_of(path: Path) -> dict[str, Path]:
    """The files of a folder by their relative paths, as DVC sees them; a file itself has an empty one."""
    if not path.is_dir():
        return {"": path}
    ignored = _ignored(path.absolute())
    found = [file for file in path.rglob("*") if file.is_file() and not ignored(file.absolute())]
    return {file.relative_to(path).as_posix(): file for file in found}


def _ignored(path: Path) -> Callable[[Path], bool]:
    """Whether DVC ignores a file below a folder with an absolute path: by each .dvcignore up to the project's.

    DVC refuses such a file inside of a folder that it tracks.
    """
    inside = list(takewhile(lambda folder: not (folder / ".dvc").is_dir(), path.parents))
    folders = path.parents[: len(inside) + 1]
    specs = [(folder, _patterns(folder, path)) for folder in folders if (folder / IGNORE).is_file()]
    return lambda file: any(spec.match_file(file.relative_to(folder).as_posix()) for folder, spec in specs)


def _patterns(folder: Path, path: Path) -> Any:
    """The patterns of the .dvcignore in a folder; of a path that it ignores as a whole, those of names."""
    read = importlib.import_module("pathspec").GitIgnoreSpec.from_lines  # only where it is needed
    lines = (folder / IGNORE).read_text(encoding="utf-8").splitlines()
    whole = read(lines)
    if whole.match_file(f"{path.relative_to(folder).as_posix()}/"):
        return read([line for line in lines if "/" not in line.strip().rstrip("/")])
    return whole


def ignored_names(path: Path) -> re.Pattern[str]:
    """The names of files and folders that the .dvcignore of the project that holds a path lists.

    Matching a name is faster than matching a path, for folders of many images.
    """
    above = (folder / IGNORE for folder in path.absolute().parents)
    file = next(filter(Path.is_file, above), None)
    lines = file.read_text(encoding="utf-8").splitlines() if file else []
    names = [line for line in map(str.strip, lines) if line and "/" not in line and line[0] not in "#!"]
    return re.compile("|".join(map(translate, names)) or "(?!)")
