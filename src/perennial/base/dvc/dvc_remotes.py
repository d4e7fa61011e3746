"""DVC's configuration and its remotes: their options, an output of another revision, a first push."""

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from perennial.base import files, limits
from perennial.base.dvc.dvc_program import DvcError, root, run
from perennial.base.errors import ConfigError
from perennial.base.storage.s3_errors import CHECKSUM_SETTINGS

TRIAL = b"perennial tests with this file whether `dvc push` works.\n"


def configuration() -> dict[str, str]:
    """DVC's options by names such as `core.remote`, with absolute paths; some may be secrets."""
    return dict(line.partition("=")[::2] for line in run("config", "--list").splitlines())


def get(path: str, revision: str, to: Path) -> None:
    """Copy a stage's output at a revision from DVC's cache, that revision's remotes, or this checkout's."""
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
    """The variables that `dvc push` needs for a remote in S3; DVC pushes a few bytes there, which stay."""
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
            needed = {key: value for key, value in CHECKSUM_SETTINGS.items() if os.environ.get(key) != value}
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
