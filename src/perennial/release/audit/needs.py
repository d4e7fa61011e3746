"""The DVC objects that revisions need: those named by dvc.lock and .dvc files, and members of folders.

DVC itself treats the list of a folder (`.dir`) as the whole folder: its status and push do not notice a member
that is missing (iterative/dvc#11011), so here members are separate objects.
"""

import functools
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from perennial.base import documents
from perennial.base.dvc.dvc_lock import value_at
from perennial.base.errors import DataError
from perennial.base.layout import Project
from perennial.base.project.git import Repository
from perennial.base.project.pins import Exclusions

log = logging.getLogger(__name__)
FOLDER = ".dir"  # ends the digest of a folder's list
DIGEST = re.compile(rf"[0-9a-f]{{32}}({re.escape(FOLDER)})?")
PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")
DEFINITIONS = ("dvc.lock", "dvc.yaml", "params.yaml")
NAMING = re.compile(r"(.*/)?(dvc\.lock|[^/]+\.dvc)", re.DOTALL)  # files that name objects


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """An object that a revision needs, and what for."""

    digest: str  # MD5 of the content in hexadecimal; of a folder's list it ends with `.dir`
    path: str  # of the file or folder in the repository
    stage: str | None  # None: added by a person (`dvc add`)
    folder: str = ""  # of the dvc.lock or .dvc file that names it
    revision: str  # commit
    size: int | None = None  # bytes, as recorded; of a folder's list, those of its files together

    @property
    def is_folder(self) -> bool:
        """Whether the object is the list of a folder."""
        return self.digest.endswith(FOLDER)


def members(content: bytes, what: str) -> dict[str, str]:
    """Parse DVC's list of a folder: digests by the relative paths of its files; `what` names the folder."""
    try:
        found = {str(each["relpath"]): _checked(each["md5"]) for each in documents.parse_json(content)}
    except (ValueError, LookupError, TypeError) as error:
        raise DataError(f"{what}: DVC's list of this folder is not valid: {error}") from error
    for name in map(PurePosixPath, found):
        if name.is_absolute() or ".." in name.parts:
            raise DataError(f"{what}: DVC's list of this folder names a file outside of it: {name}")
    return found


def needs(
    repository: Repository,
    revisions: Iterable[str],
    read: Callable[[str], bytes | None],
    named_in: Callable[[str], bool] = lambda file: True,  # noqa: ARG005 - in any file
) -> tuple[dict[str, Need], dict[str, list[str]]]:
    """Collect the objects that commits need, by digest, and the members' digests of each folder."""
    # An object that several commits or paths need is listed once, for the first of them. `read` gives the
    # verified content of a folder's list, or None where no side has it: its members are then unknown.
    # `named_in` leaves dvc.lock and .dvc files out, by their path from the repository's top.
    found: dict[str, Need] = {}
    folders: dict[str, list[str]] = {}
    outputs = _Outputs(repository, named_in)
    for revision in revisions:
        for need in outputs.of(revision):
            known = found.setdefault(need.digest, need)
            if known is not need or not need.is_folder:
                continue
            if (content := read(need.digest)) is not None:
                inside = members(content, need.path)
                folders[need.digest] = list(inside.values())
                for name, digest in inside.items():
                    each = replace(need, digest=digest, path=f"{need.path}/{name}", size=None)
                    found.setdefault(digest, each)
    return found, folders


def in_project(repository: Repository, *, own: bool) -> Callable[[str], bool]:
    """Whether a file, by its path from the top, is in this folder's project; own: and of no other pipeline."""
    project = Project.find(repository.folder)
    top = replace(repository, folder=project.root).run("rev-parse", "--show-prefix")
    gone = Exclusions.read().digests  # of forgotten images, after which pointers to labelled ones are named
    return lambda file: (
        file.startswith(top)
        and not (own and project.of_others([file.removeprefix(top)]))
        and PurePosixPath(file).name.partition(".")[0] not in gone
    )


class _Outputs:
    """Outputs of stages and added files of revisions; equal files of git are read once."""

    def __init__(self, repository: Repository, named_in: Callable[[str], bool]) -> None:
        self._repository, self._named_in = repository, named_in
        self._text = functools.cache(lambda blob: repository.run("cat-file", "blob", blob))
        self._outputs = functools.cache(self._of_blobs)

    def of(self, revision: str) -> Iterator[Need]:
        """The objects that a commit needs, without the members of folders."""
        tree = self._repository.tree(revision)
        blobs = {path: name for path, (kind, name) in tree.items() if kind == "blob"}
        for name, blob in blobs.items():
            if not NAMING.fullmatch(name) or not self._named_in(name):
                continue
            folder = PurePosixPath(name).parent
            read: list[str | None] = [blob]
            if not name.endswith(".dvc"):
                read = [blobs.get((folder / each).as_posix()) for each in DEFINITIONS]
            for need in self._outputs(name, *read):
                yield replace(need, revision=revision, folder=folder.as_posix())

    def _of_blobs(self, name: str, *blobs: str | None) -> list[Need]:
        try:
            content = [documents.yaml_object(self._text(blob)) if blob else {} for blob in blobs]
            return self._needs(name, content)
        except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
            which = ", ".join(filter(None, blobs))
            raise DataError(
                f"{name} of git's objects {which} is not as DVC writes it; nothing was changed"
            ) from error

    def _needs(self, name: str, content: list[dict[str, Any]]) -> list[Need]:
        folder = PurePosixPath(name).parent
        if len(content) == 1:
            (added,) = content
            # DVC fetches imports from the repository that they come from.
            if any("repo" in dep for dep in added.get("deps") or []):
                return []
            folder /= str(added.get("wdir") or ".")
            return [need for out in added.get("outs") or [] if (need := _need(out, folder, None, set()))]
        lock, pipeline, values = content
        return [
            need
            for stage, entry in (lock.get("stages") or {}).items()
            for out in entry.get("outs") or []
            if (need := _need(out, folder, stage, _kept_elsewhere(pipeline, stage, values)))
        ]


def _need(out: dict[str, Any], folder: PurePosixPath, stage: str | None, elsewhere: set[str]) -> Need | None:
    """The object of an output; None if DVC keeps it neither in its cache nor in the default remote."""
    path, digest, size = str(out.get("path")), out.get("md5"), out.get("size")
    if path in elsewhere or digest is None or _is_elsewhere(out):
        return None
    if out.get("hash") != "md5":
        log.warning("%s is in the format of DVC 2, which is not audited; `dvc cache migrate` converts it", path)
        return None
    whole = (folder / path).as_posix()
    size = size if isinstance(size, int) else None
    return Need(digest=_checked(digest), path=whole, stage=stage, revision="", size=size)


def _checked(digest: object) -> str:
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise DataError(f"{digest!r:.80} is not an MD5 as DVC writes it; nothing was changed")
    return digest


def _kept_elsewhere(pipeline: dict[str, Any], stage: str, values: dict[str, Any]) -> set[str]:
    """The outputs of a stage in dvc.yaml that are not cached, not pushed, or have their own remote."""
    stages = pipeline.get("stages") or {}
    declared = stages.get(stage) or stages.get(stage.partition("@")[0]) or {}
    declared = declared.get("do") or declared  # of foreach
    return {
        PLACEHOLDER.sub(lambda name: str(value_at(values, name[1].strip())), str(path))
        for section in ("outs", "metrics", "plots")
        for out in declared.get(section) or []
        if isinstance(out, dict)
        for path, options in out.items()
        if isinstance(options, dict) and _is_elsewhere(options)
    }


def _is_elsewhere(options: dict[str, Any]) -> bool:
    return options.get("cache") is False or options.get("push") is False or "remote" in options
