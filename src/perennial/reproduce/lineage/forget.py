"""Add images to the exclusions."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from perennial.base import files
from perennial.base.errors import DataError
from perennial.base.project.exclusions import FILE, Exclusions, Reason
from perennial.base.project.git import Repository
from perennial.data.validation import image_index


def forget(repository: Repository, digests: Sequence[str], because: str) -> tuple[Exclusions, list[str]]:
    """Add digests to pins/exclusions.json; returns its content and the newly added digests.

    Raises:
        DataError: the file is not valid.
    """
    before = Exclusions.read()
    new = sorted(set(digests) - set(before.digests))
    if not new:
        return before, []
    who = repository.run("var", "GIT_AUTHOR_IDENT").rpartition(" ")[0].rpartition(" ")[0]
    reason = Reason(because=because, who=who, date=datetime.now(UTC).date().isoformat())
    after = before.with_reason(dict.fromkeys(new, reason))
    files.write_json(FILE, after.model_dump())
    return after, new


def not_in(index: Path, digests: Sequence[str]) -> list[str]:
    """List digests that are not in the checkout's image index; empty without an index."""
    try:
        known = {each.tobytes().hex() for each in image_index.read(index / image_index.FILE)["sha256"]}
    except DataError:
        return []
    return [digest for digest in digests if digest not in known]
