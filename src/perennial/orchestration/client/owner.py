"""Whose a deployment is: the repository that its runs check out, the folder in it, and the pipeline.

Several projects may share a server; none of them may change, start or stop what belongs to another.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from perennial.base.errors import ConfigError, redacted
from perennial.base.layout import Project
from perennial.base.project import git

ODD_PASSWORD = re.compile(r"[\w+.-]+://[^/:@\[]*:(?!\d*(?:[/?#]|$)).*@", re.DOTALL)  # with a slash; no port
REPOSITORY, FOLDER, PIPELINE = "PERENNIAL_REPOSITORY", "PERENNIAL_FOLDER", "PERENNIAL_PIPELINE"
PORTS = {"http": 80, "https": 443, "ssh": 22, "git": 9418}
SSH = re.compile(r"(?:[^@/:]+@)?(\[[^\]]+\]|[^/:]+):(?!//)(.+)")  # user@host:path


@dataclass(frozen=True)
class Owner:
    """The project that a deployment or a run belongs to, as far as the server knows it."""

    repository: str | None
    folder: str = ""
    pipeline: str | None = None

    def __str__(self) -> str:
        named = redacted(self.repository) if self.repository else "an unknown repository"
        if self.folder:
            named += f" (folder {self.folder})"
        return f"{named}, pipeline {self.pipeline}" if self.pipeline else named


@dataclass(frozen=True)
class LocalOwner(Owner):
    """What this checkout deploys is its own; `places`: the normal forms of all addresses of its repository."""

    repository: str = ""
    places: frozenset[str] = frozenset()

    def owns(self, other: Owner) -> bool:
        """Whether what belongs to the other belongs to this checkout; what is unknown does not count."""
        same_pipeline = None in {other.pipeline, self.pipeline} or other.pipeline == self.pipeline
        return same_pipeline and self.has(other)

    def tags(self, name: str) -> list[str]:
        """The tags of its deployments: the repository, and the name of the pipeline."""
        return [f"repository {normal(self.repository)}", f"pipeline {name or self.pipeline}"]

    def has(self, other: Owner) -> bool:
        """Whether the other is in this repository, and in the same folder there, with whatever pipeline."""
        if not other.repository:
            return True
        return normal(other.repository) in self.places and other.folder == self.folder


def owner(variables: Mapping[str, Any] | None, parameters: Mapping[str, Any] | None) -> Owner:
    """The owner of a deployment, from its job variables and its parameters."""
    environment = (variables or {}).get("env") or {}
    named = (parameters or {}).get("pipeline") or environment.get(PIPELINE)
    return Owner(
        environment.get(REPOSITORY) or None, str(environment.get(FOLDER) or ""), str(named) if named else None
    )


def owner_of_checkout(
    folder: Path, pipeline: str | None, environment: Mapping[str, str] = os.environ, more: Iterable[str] = ()
) -> LocalOwner:
    """The owner of what a checkout deploys; PERENNIAL_REPOSITORY names the repository."""
    # Without it, both the checkout and the remotes that it was cloned from or pushes to count.
    top = top_folder(folder)
    named = environment.get(REPOSITORY)
    require_no_password(named or "")
    known = [str(top), *([named] if named else _remotes(top)), *more]
    inside = folder.resolve().relative_to(top).as_posix().removeprefix(".")
    if named and FOLDER in environment:  # it may be that of the project
        project, inside = Project.find(folder), environment[FOLDER]
        below = project.folder.relative_to(project.root).as_posix()
        if below != "." and not f"/{inside}".endswith(f"/{below}"):
            inside = f"{inside}/{below}".lstrip("/")
    return LocalOwner(
        repository=named or str(top), folder=inside, pipeline=pipeline, places=frozenset(map(normal, known))
    )


def clash(name: str, other: Owner, local: LocalOwner) -> str:
    """Why this project leaves a deployment alone, naming both."""
    if other.repository and local.has(other):
        return (
            f"{name} belongs to the pipeline {other.pipeline} of {redacted(other.repository)}, and "
            f"record.artifact here is {local.pipeline}"
        )
    return f"{name} belongs to another project: {other}; this one is {local}"


def top_folder(folder: Path) -> Path:
    """The top of the git repository that holds a folder; the folder itself if none does."""
    here = folder.resolve()
    return next((each for each in (here, *here.parents) if (each / ".git").exists()), here)


def require_no_password(repository: str) -> None:
    """Refuse an address that contains a password or token; the user name of an SSH address is not one."""
    if "://" not in repository:
        return
    try:
        parts = urlsplit(repository)
        user = parts.username and parts.scheme not in {"ssh", "git+ssh"}
        secret = bool(user or parts.password is not None or parts.query or ODD_PASSWORD.match(repository))
    except ValueError:
        secret = "@" in repository
    if secret:
        raise ConfigError(
            f"{REPOSITORY} holds credentials, which the server would store and show; remove them from the "
            "address: on the worker's machine, git takes them from a credential helper, ~/.netrc, an SSH key "
            "or the environment"
        )


def require_commit(folder: Path) -> None:
    """Check that the repository that holds a folder, if any, has a commit: a run is recorded with its own."""
    found = git.Repository(folder)
    if found.ask("rev-parse", "--git-dir") is not None:
        git.require_commit(found)


def normal(repository: str) -> str:
    """The normal form of a repository's address: the same for all protocols, users and usual spellings."""
    text = repository.strip()
    if text.startswith("file://"):
        text = unquote(urlsplit(text).path)
    found = SSH.fullmatch(text)
    if "://" in text:
        return _of_url(text)
    if found and not Path(text).exists():
        return f"{found[1].lower()}/{_path(found[2])}"
    folder = text.rstrip("/").removesuffix("/.git") or "/"
    return os.path.realpath(
        folder if Path(folder).exists() or not Path(f"{folder}.git").exists() else f"{folder}.git"
    )


def _of_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return text
    host = (parts.hostname or "").lower()
    shown = "" if port in {None, PORTS.get(parts.scheme.removeprefix("git+"))} else f":{port}"
    query = f"?{parts.query}" if parts.query else ""
    return f"{host}{shown}/{_path(unquote(parts.path))}{query}"


def _path(text: str) -> str:
    """A path on a server without what git does not need."""
    return text.rstrip("/").removesuffix("/.git").removesuffix(".git").strip("/")


def _remotes(top: Path) -> list[str]:
    """The addresses of a checkout's remotes, as written and as git rewrites them."""
    found = []
    for arguments in (("config", "--get-regexp", r"^remote\..*\.url$"), ("remote", "--verbose")):
        try:
            output = git.Repository(top).ask(*arguments) or ""
        except ConfigError:  # git is not installed
            return []
        rows = (re.split(r"\s+", line, maxsplit=1) for line in output.splitlines())
        found += [row[1].removesuffix(" (fetch)").removesuffix(" (push)") for row in rows if len(row) == 2]
    # Git takes a relative path from the top of the checkout.
    return [each if "://" in each or SSH.fullmatch(each) else str(top / each) for each in dict.fromkeys(found)]
