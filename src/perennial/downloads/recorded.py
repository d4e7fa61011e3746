"""Digests of files whose first copy was trusted, in a file that git tracks."""

import logging
from pathlib import Path

from perennial import files

log = logging.getLogger(__name__)


def recorded(file: Path, url: str) -> str | None:
    """The digest that the first download from an address had; None where this is the first."""
    digests: dict[str, str] = files.read_json(file) if file.exists() else {}
    return digests.get(url)


def record(file: Path, url: str, digest: str) -> None:
    """Notes the digest of a first download."""
    digests = files.read_json(file) if file.exists() else {}
    files.write_json(file, {**digests, url: digest})
    log.info("recorded the sha256 of %s in %s; commit that file", url, file)
