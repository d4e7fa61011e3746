"""What git has at a path at earlier commits: digests, and the files and lines that changed."""

import hashlib
import posixpath
from functools import cache
from pathlib import Path, PurePosixPath

from perennial.base.dvc import dvc_digests
from perennial.base.errors import ConfigError
from perennial.base.layout import Project
from perennial.base.project import code_digests
from perennial.base.project.git import GitError, Repository

SHOWN = 5
DIGITS = 10  # of a digest
BLOB = "blob"  # git's name of a file's content


class PathHistory:
    """The contents of tracked paths at earlier commits."""

    def __init__(self, repository: Repository) -> None:
        self._repository, self._here = repository, repository.run("rev-parse", "--show-prefix")
        self._objects = cache(repository.tree)
        self._digest_of = cache(self._digest_of_object)

    def between(self, before: str, after: str, path: str) -> str:
        """The files and line counts that differ at a path between two commits; empty if nothing differs."""
        rows = self._repository.run("diff", "--numstat", "--no-renames", "-z", before, after, "--", path)
        changed = [row.split("\t") for row in rows.split("\0") if row]
        shown = [_words(*row) for row in changed[:SHOWN]]
        more = f" and {len(changed) - SHOWN} more files" if len(changed) > SHOWN else ""
        return f"{', '.join(shown)}{more}"

    def code(self, commit: str, digest: str) -> str:
        """A digest in code.yaml and its version of perennial, if a code.yaml up to a commit has it."""
        file = Project.find(self._repository.folder).shared(code_digests.FILE)
        try:
            listed = self._repository.run("log", "--format=%H", f"-S{digest}", commit, "--", file.as_posix())
            for each in (commit, *listed.split()):
                text = self._repository.read(each, file) or ""
                if digest in text:
                    return f"perennial {code_digests.parse(text.encode())['perennial']} ({digest[:DIGITS]})"
        except (GitError, OSError, ConfigError):
            pass
        return digest

    def digest(self, commit: str, path: str) -> str | None:
        """The digest that DVC would give a tracked file or folder; None if the commit has none."""
        found = self._objects(commit).get(self._from_top(path))
        return self._digest_of(*found) if found else None

    def has_data(self, commit: str, path: str) -> bool:
        """Whether a commit has data at a path, not only the README.md of an empty folder."""
        place = self._from_top(path)
        return any(
            kind == BLOB
            and PurePosixPath(name).is_relative_to(place)
            and PurePosixPath(name).name != "README.md"
            for name, (kind, _) in self._objects(commit).items()
            if name.startswith(place)
        )

    def _from_top(self, path: str) -> str:
        """A path as from the repository's top."""
        return posixpath.normpath(posixpath.join(self._here, path))

    def _digest_of_object(self, kind: str, name: str) -> str:
        if kind == BLOB:
            content = self._repository.blob(name) or b""
            return hashlib.md5(content, usedforsecurity=False).hexdigest()
        members = self._objects(name).items()
        return dvc_digests.digest_of(
            {path: self._digest_of(*each) for path, each in members if each[0] == BLOB}
        )


def _words(added: str, removed: str, name: str) -> str:
    """Format a row of `git diff --numstat`; binary files have no line counts."""
    return name if added == "-" else f"{Path(name).as_posix()} +{added} -{removed}"
