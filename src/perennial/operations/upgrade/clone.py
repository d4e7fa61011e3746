"""A clone of perennial's repository becomes a project: the source goes, and all that is its owner's stays."""

import io
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from perennial.base.errors import ConfigError
from perennial.base.project import code_digests, dvc, layout
from perennial.base.project.git import Repository
from perennial.base.project.layout import STAGES, Project
from perennial.base.project.pipeline_file import of_project
from perennial.base.project.source_code import DISTRIBUTION, PACKAGE
from perennial.operations.new.template import of_repository, template
from perennial.operations.upgrade.merge import Change

SOURCE, LOCK = "src/perennial", "dvc.lock"
# What a clone has and a project does not need, unless its owner changed it.
REPOSITORY = ("src/", "tests/", "docs/", "benchmarks/", "infra/", "requirements/", ".ci/", ".github/")
FILES = ("pyproject.toml", "Makefile", "CHANGELOG.md", "CONTRIBUTING.md", ".pre-commit-config.yaml")


@dataclass(frozen=True)
class Clone:
    """A checkout that holds the source of perennial."""

    root: Path
    git: Repository
    given: str | None  # the last commit of perennial's own repository in its history, if a person named it

    @classmethod
    def find(cls, root: Path, git: Repository, given: str | None) -> "Clone | None":
        """The clone in a folder; None if it holds no source.

        Raises:
            ConfigError: its source is what runs, so that nothing would change.
        """
        source = layout.source(root)
        if source is None:
            return None
        if source.resolve() == PACKAGE:
            raise ConfigError(
                f"{root} holds the source that runs; name the version to change to, as in `perennial upgrade "
                f"{code_digests.installed()}`, or run `uvx {DISTRIBUTION} upgrade` here; nothing was changed"
            )
        return cls(root, git, given)

    @property
    def version(self) -> str:
        """The version of perennial that the clone holds."""
        file = self.root / "pyproject.toml"
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        found = re.search(r'^version = "(.+)"', text, re.MULTILINE)
        return found[1] if found else "of no version"

    @cached_property
    def digests(self) -> dict[str, str]:
        """The digest of the code of each stage."""
        return code_digests.digests(package=self.root / SOURCE)

    @cached_property
    def commit(self) -> str:
        """The last commit of perennial's own repository: the last one that changed its source."""
        if self.given is None:
            return self.git.run("log", "-1", "--format=%H", "--", SOURCE)
        if commit := self.git.commit_of(self.given):
            return commit
        raise ConfigError(f"--base {self.given}: there is no such commit; nothing was changed")

    def base(self) -> dict[str, bytes]:
        """The files of a project as perennial's own repository had them."""
        names = template().keys() & self.git.tree(self.commit).keys()
        found = {name: self.git.blob(f"{self.commit}:./{name}") or b"" for name in names}
        if self.version == code_digests.installed() and self.digests == code_digests.digests():
            found |= of_repository()  # known, whatever the history is
        return {**found, STAGES: of_project(found[STAGES].decode()).encode()}

    def notes(self) -> Iterator[str]:
        """What a person should know of the change."""
        last = self.commit[:10]
        yield f"changes since commit {last}, the last one of src/, count as yours; --base names another commit"
        yield "the source of perennial and its tests and docs are removed; git keeps them in the history"

    def read(self, path: str) -> bytes | None:
        """A file as a project has it."""
        if path == code_digests.FILE:
            return code_digests.written(self.version, self.digests).encode()
        file = self.root / path
        if not file.is_file():
            return None
        content = file.read_bytes()
        return self._pipeline_file(path, content) if posixpath.basename(path) == STAGES else content

    def _pipeline_file(self, path: str, content: bytes) -> bytes:
        folder = posixpath.dirname(path)
        prefix = f"{posixpath.relpath('.', folder)}/" if folder else ""
        return of_project(content.decode(), prefix).encode()

    def changes(self, theirs: Mapping[str, bytes]) -> Iterator[Change]:
        """What becomes of the files that only a clone has, and of dvc.lock."""
        before, now = self.git.tree(self.commit), self.git.tree("HEAD")
        for path, (kind, name) in now.items():
            if kind != "blob" or path in theirs or not (path.startswith(REPOSITORY) or path in FILES):
                continue
            if path.startswith("src/") or before.get(path) == (kind, name):
                yield Change(path=path, what="removed")
            else:
                yield Change(
                    path=path, what="kept", why="it has changes of your own, and a project needs no such file"
                )
        for pipeline in Project(self.root, self.root).pipelines():
            path = (pipeline.folder.relative_to(self.root) / LOCK).as_posix()
            file = self.root / path
            if file.is_file() and (content := self._lock(pipeline, file.read_text(encoding="utf-8"))):
                why = "stages with the same code need not run again"
                yield Change(path=path, what="updated", content=content, why=why)

    def _lock(self, pipeline: Project, text: str) -> bytes | None:
        """dvc.lock with digests in place of files of src/, for stages whose code is that of the new version."""
        yaml = YAML()
        yaml.width = 10_000
        content, installed = yaml.load(text), code_digests.digests()
        done = False
        for stage, entry in (content.get("stages") or {}).items():
            code = [dep for dep in entry.get("deps") or [] if _is_source(dep["path"])]
            if self.digests.get(stage) != installed.get(stage, "") or not all(
                dvc.digest(pipeline.folder / dep["path"]) == dep.get("md5")
                for dep in code
                if (pipeline.folder / dep["path"]).exists()
            ):
                continue
            done = (
                _rewrite(
                    entry, code, str(pipeline.shared(code_digests.FILE)), f"stages.{stage}", installed[stage]
                )
                or done
            )
        stream = io.StringIO()
        yaml.dump(content, stream)
        return stream.getvalue().encode() if done else None


def _is_source(path: str) -> bool:
    return path.lstrip("./").startswith("src/")


def _rewrite(entry: dict[str, Any], code: list[Any], file: str, key: str, digest: str) -> bool:
    entry["deps"] = [dep for dep in entry["deps"] if dep not in code]
    if not entry["deps"]:
        del entry["deps"]
    params = dict(entry.get("params") or {})
    entry["params"] = dict(sorted({**params, file: {key: digest}}.items()))
    return True
