"""The tags of the registry follow the server: local ones are a cache of what it has.

Beside the tags, a repository has these references of its own, which nothing pushes:

- `refs/perennial/remotes/<remote>/tags/*`: what the server had at the last fetch,
- `refs/perennial/unpushed/*`: tags that a command made here without pushing them; they count here,
- `refs/perennial/only-here/*`: other tags that the server does not have, or no longer; they do not count.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence

from perennial.base.errors import printable
from perennial.base.project.git import Repository

log = logging.getLogger(__name__)
TAGS = "refs/tags/"
UNPUSHED = "refs/perennial/unpushed/"
ONLY_HERE = "refs/perennial/only-here/"
REMOTES = "refs/perennial/remotes/"


def copies(remote: str) -> str:
    """Where the tags of a remote are kept as last fetched."""
    return f"{REMOTES}{remote}/tags/"


def refspecs(remote: str, patterns: Iterable[str]) -> Sequence[str]:
    """What to fetch, with pruning, for tags that match patterns such as `classifier@*`."""
    return [f"+{TAGS}{pattern}:{copies(remote)}{pattern}" for pattern in patterns]


def listed_tags(git: Repository, folder: str, patterns: Iterable[str] = ("**",)) -> dict[str, str]:
    """The objects of the references in a folder, by their names in it."""
    wanted = (f"{folder}{each}" for each in patterns)
    found = git.run("for-each-ref", "--format=%(objectname) %(refname)", *wanted)
    rows = (line.split(" ", 1) for line in found.splitlines())
    return {name.removeprefix(folder): tag for tag, name in rows}


def follow(git: Repository, remote: str, patterns: Sequence[str], before: Mapping[str, str]) -> None:
    """Set the local tags to the remote's after a fetch, and note those that only this repository has."""
    # `before`: what the remote had at the fetch before that. A tag that it lost since then is lost here, too.
    there, here, unpushed, only = (
        listed_tags(git, folder, patterns) for folder in (copies(remote), TAGS, UNPUSHED, ONLY_HERE)
    )
    new = dict[str, str | None]()
    for name, tag in there.items():
        if here.get(name) not in {None, tag, before.get(name)}:
            commit = git.commit_of(here[name]) or here[name]
            text = "%s is now the one of %s; the one that only this repository had was at %s"
            log.warning(text, printable(name), remote, commit)
        new |= {TAGS + name: tag} if here.get(name) != tag else {}
        noted = ((UNPUSHED, unpushed), (ONLY_HERE, only))
        new |= {folder + name: None for folder, names in noted if name in names}
    for name in here.keys() - there.keys():
        if unpushed.get(name) == here[name]:
            continue
        new |= {ONLY_HERE + name: here[name]} if only.get(name) != here[name] else {}
        if before.get(name) == here[name]:
            log.warning("%s is no longer on %s; it is kept as %s%s", printable(name), remote, ONLY_HERE, name)
            new[TAGS + name] = None
    stale = [name for name in listed_tags(git, REMOTES) if not name.startswith(f"{remote}/")]
    git.update({**new, **{REMOTES + name: None for name in stale}})


def update(git: Repository, references: Mapping[str, str], *, pushed: bool) -> None:
    """Set references of this repository in one transaction; tags that were not pushed are noted as such."""
    tags = {name.removeprefix(TAGS): tag for name, tag in references.items() if name.startswith(TAGS)}
    noted: dict[str, str | None] = {UNPUSHED + name: tag for name, tag in tags.items()}
    if pushed:
        noted = dict.fromkeys(UNPUSHED + name for name in listed_tags(git, UNPUSHED).keys() & tags.keys())
    git.update({**references, **noted})


def made_here(git: Repository, commit: str) -> dict[str, str]:
    """The tags of a commit that were made here without a push, by their references."""
    made = listed_tags(git, UNPUSHED).items()
    return {TAGS + name: tag for name, tag in made if git.commit_of(tag) == commit}
