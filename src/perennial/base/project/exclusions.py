"""Images that must not be in any records: pins/exclusions.json in git lists their digests, with reasons."""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from perennial.base import documents
from perennial.base.project import pins

FILE = pins.FOLDER / "exclusions.json"
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Reason(documents.JsonFile):
    """Why an image is excluded, who decided it, and when."""

    because: str
    who: str
    date: str  # of the decision, as 2026-11-23


class Exclusions(documents.JsonFile):
    """The content of pins/exclusions.json. Only `digests` is a DVC parameter; reasons make no stage stale."""

    digests: list[Digest] = Field(default=[])  # SHA-256 of image files, in ascending order
    reasons: dict[Digest, Reason] = Field(default={})

    @model_validator(mode="after")
    def _sorted(self) -> Self:
        if self.digests != sorted(set(self.digests)):
            raise ValueError("the digests must be in ascending order, each once")
        return self

    @classmethod
    def read(cls) -> Self:
        """Read the project's file; without one, nothing is excluded."""
        if not FILE.exists():
            return cls()
        return documents.read_checked(
            FILE, cls, f"`git checkout {FILE}` restores it, `perennial forget` adds to it"
        )

    def with_reason(self, digests: Mapping[str, Reason]) -> Self:
        """Add exclusions; existing ones keep their reason."""
        merged = sorted({*self.digests, *digests})
        return self.model_copy(update={"digests": merged, "reasons": {**digests, **self.reasons}})
