"""What is known of a file before it comes."""

from dataclasses import dataclass
from typing import Self

from perennial.datasets.dataset import SourceFile

RECOMPRESSED_TIMES = 16  # how much larger than the original another compression of it may be


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A file to fetch. Without a sha256 the first one that comes is trusted."""

    name: str
    bytes: int | None = None
    sha256: str | None = None
    content_sha256: str | None = None  # of what a gzip file holds, however it was compressed

    @classmethod
    def pinned(cls, source: SourceFile) -> Self:
        """A file of a data set, as its definition describes it."""
        return cls(
            name=source.name,
            bytes=source.bytes,
            sha256=source.sha256,
            content_sha256=source.content_sha256,
        )

    @property
    def exact_bytes(self) -> int | None:
        """The size that the file must have; None where another compression may change it."""
        return None if self.content_sha256 else self.bytes

    @property
    def most_bytes(self) -> int | None:
        """The size beyond which reading stops; None where any size may be right."""
        if self.bytes is None or not self.content_sha256:
            return self.bytes
        return self.bytes * RECOMPRESSED_TIMES

    def __str__(self) -> str:
        size = "" if self.bytes is None else f"{self.bytes:,} bytes, "
        return f"{self.name} ({size}sha256 {self.sha256})"
