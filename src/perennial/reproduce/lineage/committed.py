"""Find wanted images in git: in the history of all branches and tags, and which of these have them now."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from perennial.base.project.git import Repository
from perennial.data.datasets.readers import labelled
from perennial.live.capture.same_image import Found, Wanted

KINDS = ("refs/heads/", "refs/remotes/", "refs/tags/")


@dataclass(frozen=True, kw_only=True)
class Committed:
    """An image in git's history."""

    found: Found
    path: str  # from the repository's top folder
    references: Sequence[str]  # branches and tags that have it now


def find(repository: Repository, wanted: Wanted, images: Sequence[Path]) -> list[Committed]:
    """List labelled images that were made of wanted ones, and these files themselves wherever they are."""
    asked = ["--", labelled.IMAGES.as_posix()]
    rows = set(_added(repository, *asked))
    for name in (repository.run("hash-object", "--no-filters", "--", str(each.resolve())) for each in images):
        if repository.ask("cat-file", "-e", name) is not None:
            rows |= {row for row in _added(repository, f"--find-object={name}") if row[0] == name}
    found = {}
    for blob, path in sorted(rows):
        content, sha256 = repository.blob(blob) or b"", Path(path).stem
        if wanted.lacks_pixels(sha256):
            wanted.add(wanted.digests[sha256], content)
        if each := wanted.find(content):
            found[blob, path] = each
    there = _references(repository, found)
    return [
        Committed(found=each, path=path, references=there[blob, path]) for (blob, path), each in found.items()
    ]


def _added(repository: Repository, *which: str) -> Iterator[tuple[str, str]]:
    """The object name and path of each file that a commit added or changed."""
    form = ("--raw", "--no-abbrev", "--no-renames", "--diff-filter=AM", "--format=", "-z")
    fields = repository.run("log", "--all", "HEAD", *form, *which).split("\0")
    # Pairs such as `:000000 100644 0000 <blob> A` and `labels/images/0f3c.jpg`
    for about, path in pairwise(fields):
        if about.strip().startswith(":"):
            yield about.split()[3], path


def _references(repository: Repository, files: Collection[tuple[str, str]]) -> dict[tuple[str, str], list[str]]:
    """The branches and tags whose commit has a file, for each."""
    names = repository.run("for-each-ref", "--format=%(refname)", *KINDS).splitlines()
    asked = [(name, file) for name in names for file in files]
    rows = repository.run(
        "cat-file",
        "--batch-check=%(objectname)",
        stdin="".join(f"{name}:{path}\n" for name, (_, path) in asked),
    )
    found: dict[tuple[str, str], list[str]] = {file: [] for file in files}
    for (name, file), row in zip(asked, rows.splitlines(), strict=True):
        if row == file[0]:
            found[file].append(_short(name))
    return found


def _short(reference: str) -> str:
    return next(reference.removeprefix(kind) for kind in KINDS if reference.startswith(kind))
