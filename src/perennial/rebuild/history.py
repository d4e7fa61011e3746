"""Which files and lines changed since a path had a recorded digest: found in the history of git."""

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from perennial import dvc
from perennial.registry.git import GitError, Repository

COMMITS = 200  # of a path that are looked at
SHOWN = 5


class History:
    """The contents of tracked paths at earlier commits."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._digest = cache(self._digest_of_blob)

    def changes(self, commit: str, path: str, recorded: str) -> str | None:
        """What changed at a path since it had a digest, such as `loop.py +1 -1 since 0123abcd`.

        None where no earlier commit has that digest.
        """
        try:
            listed = self._repository.run("log", f"--max-count={COMMITS}", "--format=%H", commit, "--", path)
            before = next((each for each in listed.split() if self.digest(each, path) == recorded), None)
            if before is None:
                return None
            rows = self._repository.run("diff", "--numstat", "--no-renames", "-z", before, commit, "--", path)
        except (GitError, OSError):
            return None
        changed = [row.split("\t") for row in rows.split("\0") if row]
        shown = [_words(*row) for row in changed[:SHOWN]]
        more = f" and {len(changed) - SHOWN} more files" if len(changed) > SHOWN else ""
        return f"{', '.join(shown)}{more} since {before[:10]}"

    def digest(self, commit: str, path: str) -> str | None:
        """The digest that DVC would give a tracked file or folder; None if the commit has none."""
        members = dict(self._members(commit, path))
        if not members:
            return None
        return members[""] if "" in members else dvc.digest_of(members)

    def _members(self, commit: str, path: str) -> Iterator[tuple[str, str]]:
        listed = self._repository.run("ls-tree", "-r", "-z", commit, "--", path)
        for row in filter(None, listed.split("\0")):
            about, _, name = row.partition("\t")
            yield name.removeprefix(path).lstrip("/"), self._digest(about.split()[2])

    def _digest_of_blob(self, blob: str) -> str:
        return hashlib.md5(self._repository.blob(blob) or b"", usedforsecurity=False).hexdigest()


def _words(added: str, removed: str, name: str) -> str:
    """A row of `git diff --numstat`; binary files have no lines."""
    return name if added == "-" else f"{Path(name).as_posix()} +{added} -{removed}"
