"""Find in git's history which files and lines changed since a path had a recorded digest."""

import hashlib
import posixpath
from functools import cache
from pathlib import Path, PurePosixPath

from perennial.base.dvc import dvc_digests, dvc_lock
from perennial.base.dvc.dvc_lock import LockedStage
from perennial.base.errors import ConfigError
from perennial.base.layout import Project
from perennial.base.project import code_digests
from perennial.base.project.git import GitError, Repository

COMMITS = 200  # maximum commits of a path to check
RECORDS = 20  # maximum commits of dvc.lock to check, which take longer to read
SHOWN = 5
DIGITS = 10  # of a digest
BLOB = "blob"  # git's name of a file's content


class PathHistory:
    """The contents of tracked paths at earlier commits."""

    def __init__(self, repository: Repository) -> None:
        self._repository, self._here = repository, repository.run("rev-parse", "--show-prefix")
        self._objects = cache(repository.tree)
        self._digest_of = cache(self._digest_of_object)

    def changes(self, commit: str, path: str, recorded: str) -> str | None:
        """The changes at a path since it had a digest, such as `loop.py +1 -1 since 0123abcd`, if it had."""
        try:
            listed = self._repository.run("log", f"--max-count={COMMITS}", "--format=%H", commit, "--", path)
            before = next((each for each in listed.split() if self.digest(each, path) == recorded), None)
            return before and f"{self.between(before, commit, path)} since {before[:10]}"
        except (GitError, OSError):
            return None

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

    def recorded(self, commit: str, stage: str, rebuilt: LockedStage) -> str | None:
        """The last commit up to one whose dvc.lock has a stage with the inputs and outputs of its rebuild."""
        try:
            count = f"--max-count={RECORDS}"
            listed = self._repository.run("log", count, "--format=%H", commit, "--", str(dvc_lock.FILE))
            for each in listed.split():
                found = dvc_lock.entries(self._repository.read(each, dvc_lock.FILE)).get(stage)
                if found and (found.inputs(), found.outs) == (rebuilt.inputs(), rebuilt.outs):
                    return each
        except (GitError, OSError):
            return None
        return None

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
