"""Calls of the DVC program, without analytics, prompts or passwords in messages; its configuration and remotes.

Flows use its Python API.
"""

import fcntl
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from perennial.base import documents, limits
from perennial.base.errors import ConfigError, Failure, PerennialError, redacted
from perennial.base.processes import programs
from perennial.base.processes.programs import Finished
from perennial.base.storage import s3_errors

LINES = 3  # of a message
BROKEN_LOCKS = "Unable to read RWLock-file"
NOISE = "https://dvc.org/support"  # a line below every unexpected error
CACHE = "cache-of-this-clone"  # as a remote of another checkout


class DvcError(PerennialError):
    """DVC refused or failed."""


def environment() -> dict[str, str]:
    """The variables of a DVC that perennial starts."""
    return {**s3_errors.CHECKSUM_SETTINGS, **os.environ, "DVC_NO_ANALYTICS": "1"}


def run(
    *arguments: str,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
    limit_s: float = limits.DVC_S,
) -> str:
    """Run a DVC command and return its output; not with `--quiet`, which would hide why it fails."""

    def call() -> Finished:
        command = [sys.executable, "-m", "dvc", *arguments]
        return programs.run(command, cwd=folder, env=variables or environment(), limit_s=limit_s)

    try:
        done = call()
        if done.code and BROKEN_LOCKS in done.errors:
            remove_broken_locks(folder or root())
            done = call()
    except programs.TimedOut as error:
        raise DvcError(str(programs.TimedOut(f"dvc {arguments[0]}", error.limit_s, error.said))) from None
    if done.code:
        lines = [line for line in done.errors.splitlines() if line.strip() and NOISE not in line]
        message = redacted(" ".join(lines[-LINES:])) or f"exit code {done.code}"
        hint = s3_errors.remedy("\n".join(lines))
        failed = f"`dvc {arguments[0]}` failed: {message}{f'; {hint}' if hint else ''}"
        raise DvcError(failed, kind=Failure.REFUSED if hint else None)
    return done.output


def remove_broken_locks(folder: Path) -> None:
    """Remove the list of locks that a full disk or a kill left half written, on which every later DVC fails."""
    file = folder / ".dvc" / "tmp" / "rwlock"
    with suppress(OSError):
        if not documents.json_object(file.read_bytes()):  # or another DVC is writing it, with the guard
            with file.with_name("rwlock.lock").open("ab") as guard:
                fcntl.flock(guard, fcntl.LOCK_EX)
                if not documents.json_object(file.read_bytes()):
                    file.unlink()


def root() -> Path:
    """The folder that holds `.dvc`: the working directory or one above it."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / ".dvc").is_dir():
            return folder
    raise DvcError(f"{here} is in no DVC repository; `dvc init` makes one")


def configuration() -> dict[str, str]:
    """DVC's options by names such as `core.remote`, with absolute paths; some may be secrets."""
    return dict(line.partition("=")[::2] for line in run("config", "--list").splitlines())


def get(path: str, revision: str, to: Path) -> None:
    """Copy a stage's output at a revision from DVC's cache, that revision's remotes, or this checkout's.

    The remote that stands for the cache of another clone comes first.
    """
    top = root()  # DVC takes paths from there
    inside = Path.cwd().relative_to(top) / path
    command = ("get", str(top), inside.as_posix(), "--rev", revision, "--out", str(to))
    try:
        run(*command)
    except DvcError as error:
        options, failed = configuration(), error
        known = {CACHE, options.get("core.remote", CACHE)} & remotes(options).keys()
        for name in sorted(known, key=lambda name: name != CACHE):
            with tempfile.TemporaryDirectory(prefix="perennial-") as folder:  # only its owner can read it
                file = Path(folder, "config")
                file.write_text(remotes_section({**options, "core.remote": name}), encoding="utf-8")
                try:
                    run(*command, "--force", "--config", str(file))
                except DvcError as other:
                    failed = other
                else:
                    return
        raise failed from None


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
    lines = ["[core]", f"remote = {quoted(options['core.remote'])}"] if "core.remote" in options else []
    for name, own in remotes(options).items():
        lines += [f"['remote \"{name}\"']", *(f"{key} = {quoted(value)}" for key, value in own.items())]
    return "".join(f"{line}\n" for line in lines)


def quoted(value: str) -> str:
    """A value in ConfigObj's format, DVC's own; without quotes, `,` would make a list and `#` a comment."""
    mark = next((each for each in ('"', "'", '"""', "'''") if each not in value), "")
    return f"{mark}{value}{mark}"


def cache_folder(options: Mapping[str, str]) -> Path:
    """The folder of DVC's cache."""
    return Path(options.get("cache.dir") or root() / ".dvc" / "cache")
