"""Proofs in git: `rebuilds/<version>.json` on a separate branch, one for each version that was rebuilt equal.

The branch `rebuilds/<artifact>` holds nothing else and is not part of the project's history, so that a proof
moves no branch of the project and makes no revision stale.
"""

import logging
import platform
import re
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from perennial.base import documents, files
from perennial.base.devices import processor
from perennial.base.dvc.dvc_lock import value_at
from perennial.base.errors import PerennialError, printable
from perennial.base.project.git import GitError, Repository
from perennial.base.retries import PROOF_TRIES
from perennial.release.registry import access
from perennial.release.registry.access import OpenRegistry
from perennial.release.registry.push import push_references
from perennial.reproduce.rebuild.rebuild import Rebuilt

log = logging.getLogger(__name__)
FOLDER = "rebuilds"
IDENTITY = re.compile(r"(.*) <(.*)> .*")


def record(opened: OpenRegistry, rebuilt: Rebuilt) -> str:
    """Commit the proof of an equal rebuild of a version, and push it; returns the branch."""
    if rebuilt.version is None or not rebuilt.equal:
        raise ValueError("only an equal rebuild of a version is a proof")
    git, branch = opened.repository, f"{FOLDER}/{opened.registry.artifact}"
    name, content = rebuilt.version.name, _content(git, rebuilt)
    for _ in range(PROOF_TRIES):
        tip = _fetched(opened, branch)
        commit = _commit(git, tip, name, files.json_bytes(content).decode())
        if opened.remote is None:
            git.update({f"refs/heads/{branch}": commit})
            return branch
        pushed = push_references(git, opened.remote, {f"refs/heads/{branch}": commit})
        if pushed.done:
            git.update({f"refs/remotes/{opened.remote}/{branch}": commit})
            return branch
        if not pushed.lost:
            break
    raise PerennialError(f"the proof of {name} was not pushed: {pushed}; {pushed.remedy or 'run this again'}")


def proven(opened: OpenRegistry) -> dict[str, dict[str, Any]]:
    """Read the proofs by version, as last fetched; ignores proofs of another commit than the version's."""
    branch = f"{FOLDER}/{opened.registry.artifact}"
    tips = [_tip(access.here(opened), branch), *([_tip(opened, branch)] if opened.remote else [])]
    found = {name: each for tip in tips if tip for name, each in _read(opened.repository, tip).items()}
    commits = {version.name: version.commit for version in opened.registry.versions}
    return {name: each for name, each in found.items() if each.get("commit") == commits.get(name)}


def _read(git: Repository, tip: str) -> dict[str, dict[str, Any]]:
    """The proofs in a commit of the branch; files that hold none are left out."""
    found = {}
    for file in git.run("ls-tree", "--full-tree", "-r", "--name-only", "-z", tip, "--", FOLDER).split("\0"):
        proof = documents.json_object(git.blob(f"{tip}:{file}") or b"") if file else {}
        if not proof:
            continue
        if isinstance(proof.get("date"), str) and isinstance(value_at(proof, "machine.host"), str):
            found[PurePosixPath(file).stem] = proof
        else:
            log.warning("%s of the branch of proofs is not valid; it is left out", printable(file))
    return found


def _content(git: Repository, rebuilt: Rebuilt) -> dict[str, Any]:
    return {
        "version": rebuilt.version.name if rebuilt.version else None,
        "commit": rebuilt.commit,
        "equal": True,
        "lock_sha256": rebuilt.lock_sha256[1],
        "stages": rebuilt.stages,
        "restored": list(rebuilt.restored),
        "outputs": {
            path: digest for outs in rebuilt.outputs.values() for path, (_, digest) in sorted(outs.items())
        },
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "by": _identity(git),
        "machine": {"host": platform.node(), "system": platform.platform(), **processor.facts()},
        "python": platform.python_version(),
        "seconds": round(rebuilt.seconds, 1),
    }


def _identity(git: Repository) -> str:
    found = IDENTITY.fullmatch(git.run("var", "GIT_COMMITTER_IDENT"))
    return f"{found[1]} <{found[2]}>" if found else ""


def _fetched(opened: OpenRegistry, branch: str) -> str | None:
    """Fetch the branch's last commit on the remote, which may be newer than the local one."""
    if opened.remote is not None:
        reference = f"+refs/heads/{branch}:refs/remotes/{opened.remote}/{branch}"
        try:
            opened.repository.fetch(opened.remote, [reference])
        except GitError as error:
            if "couldn't find remote ref" not in str(error):
                raise PerennialError(f"{error}; the proof was not recorded; run this again") from error
    return _tip(opened, branch)


def _tip(opened: OpenRegistry, branch: str) -> str | None:
    place = f"refs/heads/{branch}" if opened.remote is None else opened.tracking(branch)
    return opened.repository.commit_of(place)


def _commit(git: Repository, tip: str | None, name: str, text: str) -> str:
    """Commit a proof on top of the branch; the first commit has no parent."""
    blob = git.run("hash-object", "-w", "--stdin", stdin=text)
    file = f"{name}.json"
    listed = git.run("ls-tree", "--full-tree", "-z", f"{tip}:{FOLDER}").split("\0") if tip else []
    rows = [row for row in listed if row and row.partition("\t")[2] != file]
    rows.append(f"100644 blob {blob}\t{file}")
    inner = git.run("mktree", "-z", stdin="\0".join(rows) + "\0")
    tree = git.run("mktree", stdin=f"040000 tree {inner}\t{FOLDER}\n")
    message = f"{name} was rebuilt, equal\n\nSigned-off-by: {_identity(git)}\n"
    return git.commit(tree, tip, message)
