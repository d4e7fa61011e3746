"""DVC's configuration and its remotes: their options, and an output of another revision."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from perennial.base.dvc.dvc_program import DvcError, root, run
from perennial.base.errors import ConfigError

CACHE = "cache-of-this-clone"  # as a remote of another checkout


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
