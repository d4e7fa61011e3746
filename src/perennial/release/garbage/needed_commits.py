"""The commits of a repository that still matter: ends of references, recent ones, and what is checked out.

Dates of commits need not be ordered: a rebase may keep old ones, and clocks differ. So every commit is read.
"""

from collections.abc import Iterator
from pathlib import Path

from perennial.base.project.git import GitError, Repository

WRITTEN = ("dvc.lock", "dvc.yaml", "params.yaml")
IN_PROGRESS = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD")
FETCHED = ("heads", "tags", "exps")  # the last are of `dvc exp push`
WHOLE = {"GIT_NO_REPLACE_OBJECTS": "1"}  # the history as it was made


def fetch(repository: Repository) -> None:
    """Fetch branches, tags and experiments to references of our own: those of the user do not move."""
    for remote in repository.run("remote").split():
        own = f"refs/perennial/{remote}"
        try:
            repository.fetch(remote, [f"+refs/{kind}/*:{own}/{kind}/*" for kind in FETCHED])
        except GitError as error:
            raise GitError(f"the git remote {remote} cannot be reached ({error})") from error
    if repository.is_shallow():
        raise GitError(f"{repository.folder.resolve()} is a shallow clone; run `git fetch --unshallow` first")


def needed(repository: Repository, cutoff: float) -> list[str]:
    """List each revision whose data are kept; commits since `cutoff` (seconds since 1970) are recent."""
    found = [
        *repository.ends(),
        *_recent(repository, cutoff),
        *_mentioned(repository, cutoff),
        *_worktrees(repository),
    ]
    return list(dict.fromkeys(found))


def _recent(repository: Repository, cutoff: float) -> Iterator[str]:
    """The commits of all references and reflogs with a recent date, or one that git cannot read."""
    form = ("--all", "--reflog", "--format=%H|%at|%ct")
    for row in repository.run("rev-list", *form, **WHOLE).splitlines():
        if not row.startswith("commit "):
            name, *dates = row.split("|")
            if any(not date or int(date) >= cutoff for date in dates):
                yield name


def _mentioned(repository: Repository, cutoff: float) -> Iterator[str]:
    """What reflogs say was made or checked out since, all stashes, and a merge or rebase in progress."""
    shown = repository.ask("reflog", "show", "--all", "--date=unix", "--format=%H|%gD") or ""
    for row in shown.splitlines():
        name, _, place = row.partition("|")  # such as refs/heads/main@{1767225600}
        reference, _, moment = place.rstrip("}").rpartition("@{")
        if reference.endswith("stash") or not moment.isdecimal() or int(moment) >= cutoff:
            yield name
    yield from filter(None, map(repository.commit_of, IN_PROGRESS))


def _worktrees(repository: Repository) -> list[str]:
    """The revisions checked out in worktrees, and the current DVC files in them."""
    rows = repository.run("worktree", "list", "--porcelain").splitlines()
    heads = [row.split()[1] for row in rows if row.startswith("HEAD ") and set(row[5:]) != {"0"}]
    folders = [Path(row.removeprefix("worktree ")) for row in rows if row.startswith("worktree ")]
    trees = (on_disk(Repository(folder)) for folder in {*folders, repository.folder} if folder.is_dir())
    return [*heads, *filter(None, trees)]


def on_disk(repository: Repository) -> str | None:
    """A git tree of a checkout with its current DVC files; None for a bare repository."""
    if repository.ask("rev-parse", "--is-inside-work-tree") != "true" or repository.commit_of("HEAD") is None:
        return None
    patterns = ["*.dvc", *(f":(glob)**/{name}" for name in WRITTEN)]
    listed = repository.run("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns)
    names = filter(None, listed.split("\0"))
    return repository.tree_with("HEAD", [Path(name) for name in names])
