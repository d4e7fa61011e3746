"""Verify a published model against its record, its provenance and git."""

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perennial.base import documents, files
from perennial.base.choices import is_bucket
from perennial.base.config.paths import FIXED
from perennial.base.dvc import dvc_digests, dvc_lock
from perennial.base.errors import PerennialError, printable
from perennial.base.files import MARK
from perennial.base.project.git import Repository
from perennial.base.storage import Missing, file_below, together
from perennial.release.publishing import fetch_version, provenance
from perennial.release.publishing.fetch_version import StoredVersion
from perennial.release.publishing.version_layout import PROVENANCE, RECORD, of_export
from perennial.release.registry.versions import read_artifact

COMMITS = 1000  # distinct dvc.lock versions to search for a model that was published before its commit
NONE = "none"


@dataclass(frozen=True)
class Mismatch:
    """A file, or a value in one, that is not what it should be."""

    file: str
    expected: str
    got: str

    def __str__(self) -> str:
        return printable(f"{self.file}: expected {self.expected}, got {self.got}")


@dataclass(frozen=True, kw_only=True)
class Verified:
    """The result of a verification."""

    place: str
    number: int  # of the published version
    commit: str | None  # that the model was made from
    version: str | None  # the registered version of that commit
    files: int
    problems: tuple[Mismatch, ...]


def verify(git: Repository, artifact: str, url: str) -> Verified:
    """Compare every file of a version with its record, its provenance and the revision in git."""
    # `url` names a publish folder or prefix, for its current version, or one version.
    version = fetch_version.find(url)
    with _folder(version) as folder:
        found = files.digests(folder)
        checking = _Checking(git, artifact, folder, version, of_export(found))
        problems = list(dict.fromkeys(checking.problems()))
    registered = read_artifact(git, artifact).at(checking.commit) if checking.commit else None
    return Verified(
        place=f"{version.store.url}/{version.prefix}".rstrip("/"), number=version.record.version,
        commit=checking.commit, version=registered.name if registered else None, files=len(found),
        problems=tuple(problems),
    )  # fmt: skip


@dataclass
class _Checking:
    """The checks of one version; `found`: the SHA-256 of its files, except those that publishing adds."""

    git: Repository
    artifact: str
    folder: Path
    version: StoredVersion
    found: Mapping[str, str]
    commit: str | None = None  # that the model was made from

    def problems(self) -> Iterator[Mismatch]:
        """Yield everything that differs."""
        record = self.version.record
        yield from (changed := list(_differing(record.files, self.found)))
        yield from _links(self.folder)
        name = self.version.prefix.rstrip("/") or self.folder.name
        if name.isdecimal() and int(name) != record.version:
            yield Mismatch(f"{RECORD}: version", name, str(record.version))
        file = self.folder / PROVENANCE
        digest = files.sha256(file) if file.is_file() else "no file"
        if digest != record.provenance:
            yield Mismatch(str(PROVENANCE), record.provenance, digest)
        if statement := documents.json_object(file.read_bytes() if file.is_file() else b""):
            yield from self._of_statement(statement)
        elif digest == record.provenance:
            yield Mismatch(str(PROVENANCE), "a statement", "something that is not JSON")
        if self.commit is not None:
            yield from self._of_git(self.commit, named=bool(changed))

    def _of_statement(self, statement: dict[str, Any]) -> Iterator[Mismatch]:
        """Compare the statement with the files, and with the statement computed from its revision."""
        subject = _by_name(statement.get("subject"), "sha256")
        yield from _differing(subject, self.found)
        materials = dvc_lock.value_at(statement, "predicate.buildDefinition.resolvedDependencies")
        named = _by_name(materials, "gitCommit").get("git")
        lock = _by_name(materials, "sha256").get(dvc_lock.FILE.as_posix())
        self.commit = self.git.commit_of(named) if named else self._with_lock(lock)
        if self.commit is None or (named and named != self.commit):
            wanted = "a commit of this clone (`git fetch --tags` gets those of the remote)"
            self.commit = None
            yield Mismatch(f"{PROVENANCE}: git", wanted, named or f"none, and no revision has dvc.lock {lock}")
            return
        again = provenance.statement(provenance.reader(self.git, self.commit), named, subject)
        for key in sorted(again.keys() | statement.keys()):
            if again.get(key) != statement.get(key):
                yield Mismatch(f"{PROVENANCE}: {key}", f"that of commit {self.commit[:10]}", "another")

    def _of_git(self, commit: str, *, named: bool) -> Iterator[Mismatch]:
        """Compare files, unless some were `named` before, and the decision with the revision's dvc.lock."""
        stages = dvc_lock.entries(self.git.read(commit, dvc_lock.FILE))
        recorded = dvc_lock.digest(stages, FIXED["export"])
        members = {name: dvc_digests.digest(file_below(self.folder, name)) for name in self.found}
        mark = hashlib.md5(files.mark("export"), usedforsecurity=False).hexdigest()
        possible = [dvc_digests.digest_of({**members, MARK: mark}), dvc_digests.digest_of(members)]
        if recorded not in possible and not named:
            where = f"{FIXED['export']} in dvc.lock of {commit[:10]}"
            yield Mismatch(where, recorded or NONE, possible[0])
        decision = self.version.record.model_dump().get("decision")
        digest = hashlib.md5(files.json_bytes(decision), usedforsecurity=False).hexdigest()
        if digest != (wanted := dvc_lock.digest(stages, FIXED["decision"])):
            where = f"{RECORD}: decision, by {FIXED['decision']} in dvc.lock of {commit[:10]}"
            yield Mismatch(where, wanted or NONE, digest)

    def _with_lock(self, sha256: str | None) -> str | None:
        """Find a revision whose dvc.lock has this digest, for models published before their commit."""
        if sha256 is None:
            return None
        known = read_artifact(self.git, self.artifact).versions
        registered = [each.commit for each in reversed(known)]
        others = self.git.run("rev-list", "--all", f"--max-count={COMMITS}", "--", str(dvc_lock.FILE)).split()
        locks = self.git.blobs(dvc_lock.FILE, [*registered, *others])
        for blob in dict.fromkeys(locks.values()):
            if hashlib.sha256(self.git.blob(blob) or b"").hexdigest() == sha256:
                return next(commit for commit, each in locks.items() if each == blob)
        return None


def _links(folder: Path) -> Iterator[Mismatch]:
    """What is neither a file nor a folder: what a link leads to may change after it was verified."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            yield Mismatch(name, "a file or folder", f"a link to {path.readlink()}")
        elif not (path.is_file() or path.is_dir()):
            yield Mismatch(name, "a file or folder", "something else")


@contextmanager
def _folder(version: StoredVersion) -> Iterator[Path]:
    """Provide a folder with all files of a version, including files that its record does not list."""
    if not is_bucket(version.store.url):
        yield Path(version.store.url)
        return
    with tempfile.TemporaryDirectory(prefix="perennial-") as temporary:
        keys = [entry.key for entry in version.store.list(version.prefix)]

        def get(key: str) -> None:
            version.store.get(key, file_below(Path(temporary), key.removeprefix(version.prefix)))

        try:
            for _ in together(version.store, get, keys):
                pass
        except Missing as error:
            raise PerennialError(f"{error}; another program removes files there; run this again") from error
        yield Path(temporary)


def _differing(expected: Mapping[str, str], got: Mapping[str, str]) -> Iterator[Mismatch]:
    for name in sorted(expected.keys() | got.keys()):
        if expected.get(name) != got.get(name):
            yield Mismatch(name, expected.get(name, "no such file"), got.get(name, "no such file"))


def _by_name(listed: Any, kind: str) -> dict[str, str]:
    """The digests of one kind in a list of an in-toto statement, by name, without invalid entries."""
    found = {}
    for each in listed if isinstance(listed, list) else ():
        name, digest = (dvc_lock.value_at(each, key) for key in ("name", f"digest.{kind}"))
        if isinstance(name, str) and isinstance(digest, str):
            found[name] = digest
    return found
