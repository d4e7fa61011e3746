"""A pull request for data: labels as a commit on a branch, which the gate judges before it is merged."""

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perennial.base.config import Config
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.project.git import IGNORED_FILE, Repository
from perennial.base.project.pins import Exclusions
from perennial.data.datasets.readers import labelled
from perennial.data.datasets.readers.labelled import POINTER
from perennial.live.label.answers import ENDINGS, Answers, project_labels
from perennial.release.audit import sides
from perennial.release.registry.access import OpenRegistry, open_registry
from perennial.release.registry.push import push_references


@dataclass(frozen=True, kw_only=True)
class DataRequest:
    """A branch with new labels."""

    branch: str
    commit: str
    added: int  # labels that are new or changed
    images: int  # of them, with a class
    random: int  # of these, drawn at random
    pushed: bool


def make(config: Config, answers: Answers, branch: str, *, push: bool) -> DataRequest:
    """Commit the answers and their images on a new or continued branch; checkout and index stay as they are."""
    opened = open_registry(config, fetch=push)
    git, reference = opened.repository, f"refs/heads/{branch}"
    if git.ask("check-ref-format", "--branch", branch) is None:
        raise ConfigError(f"{branch!r} is no valid name of a branch; nothing was committed")
    if git.branch() == branch:
        raise ConfigError(f"{branch} is checked out, so it is not changed here; name another branch")
    there = opened.tracking(branch) if opened.remote else reference  # a colleague may have begun it
    parent = git.commit_of(reference) or git.commit_of(there) or git.run("rev-parse", "HEAD")
    forgotten = Exclusions.read().digests
    recorded = labelled.parse(text) if (text := git.read(parent, labelled.TABLE)) else {}
    before = {name: each for name, each in recorded.items() if name not in forgotten}
    known, first = {**project_labels(), **before}, config.gate.traffic is not None
    answered = labelled.with_splits(answers.labels(), known, first=first)
    new = {name: each for name, each in answered.items() if before.get(name) != each and name not in forgotten}
    if not new:
        raise ConfigError(f"no label is new on {branch}; `perennial label PLACE` shows images to label")
    used = [each for each in new.values() if each.class_]
    lost = [each.sha256 for each in used if each.sha256 not in before and answers.image(each.sha256) is None]
    if lost:
        raise ConfigError(f"{answers.images} lacks {len(lost)} images, as {lost[0]}; nothing was committed")
    table = labelled.text_of({**before, **new}.values())
    images = [file for each in used if (file := answers.image(each.sha256))]
    endings = [f"{image}{pointer}" for image in ENDINGS for pointer in ("", POINTER)]
    gone = [labelled.IMAGES / f"{name}{ending}" for name in forgotten for ending in endings]
    with tempfile.TemporaryDirectory(prefix="perennial-") as folder:
        if config.label.images == "dvc":
            images = _pointers(images, Path(folder), push=push)
        tree = _tree(git, parent, table, {labelled.IMAGES / file.name: file for file in images}, gone)
    random = sum(each.reason == "random" for each in used)
    message = f"Label {len(new)} images of traffic\n\n{random} drawn at random, {len(used) - random} chosen; "
    commit = git.commit(tree, parent, f"{message}{len(new) - len(used)} of none of the classes.\n")
    git.update({reference: commit})
    pushed = push and _push(opened, reference, commit)
    return DataRequest(
        branch=branch, commit=commit, added=len(new), images=len(used), random=random, pushed=pushed
    )


def _pointers(images: Sequence[Path], folder: Path, *, push: bool) -> list[Path]:
    """Put images into DVC's cache, and with `push` into its remote; returns what git has of them."""
    cache, remote = sides.open_sides()
    if remote is None:
        raise ConfigError(
            "label.images: dvc needs a remote of DVC, from which others get the images; nothing was committed; "
            "`perennial remote add NAME URL` adds one, or set label.images to git"
        )
    (folder / IGNORED_FILE).write_text("".join(f"*{ending}\n" for ending in ENDINGS))
    for image in images:  # a pointer each, so that branches of several people merge
        content = image.read_bytes()
        digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
        for side in (cache, remote) if push else (cache,):
            side.put(digest, image)
        out = {"md5": digest, "size": len(content), "hash": "md5", "path": image.name}
        (folder / f"{image.name}{POINTER}").write_text(json.dumps({"outs": [out]}))
    return list(folder.iterdir())


def _tree(git: Repository, base: str, table: str, images: Mapping[Path, Path], gone: Sequence[Path]) -> str:
    """Write the tree of a commit with another table, with further images and without some, by their places."""
    prefix = git.run("rev-parse", "--show-prefix")
    named = "".join(f"{file.resolve()}\n" for file in images.values())
    blobs = git.run("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=named).splitlines()
    blobs.append(git.run("hash-object", "-w", "--stdin", stdin=table))
    rows = "".join(
        f"100644 {blob}\t{prefix}{place.as_posix()}\n"
        for blob, place in zip(blobs, (*images, labelled.TABLE), strict=True)
    )
    with tempfile.TemporaryDirectory(prefix="perennial-") as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        git.run("read-tree", base, **index)
        removed = "".join(f"0 {'0' * len(base)}\t{prefix}{place.as_posix()}\n" for place in gone)
        git.run("update-index", "--add", "--index-info", stdin=removed + rows, **index)
        return git.run("write-tree", **index)


def _push(opened: OpenRegistry, reference: str, commit: str) -> bool:
    if opened.remote is None:
        return False
    done = push_references(opened.repository, opened.remote, {reference: commit})
    if not done.done:
        again = f"`git push {opened.remote} {reference.removeprefix('refs/heads/')}` pushes it"
        raise PerennialError(f"{reference} was not pushed to {opened.remote}: {done}; it is kept here; {again}")
    return True
