"""A candidate that answers a share of the requests: equal images always get the same version.

Whatever the candidate cannot answer, the served version answers. A candidate that fails too often gets no more
requests until it has a new version.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from perennial.base.errors import redacted
from perennial.data.images import BadImage
from perennial.operations.serving.batching import Output
from perennial.operations.serving.requests import ImageRequest, RequestRefused
from perennial.operations.serving.shadow import failing
from perennial.operations.serving.versions import Follower, LoadedVersion

log = logging.getLogger(__name__)
Answer: TypeAlias = tuple[LoadedVersion, list[Output]]
Classify: TypeAlias = Callable[[LoadedVersion], Awaitable[list[Output]]]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What answers which share."""

    model: str  # export, publish folder or URL
    share: float  # of the requests, 0..1


class Canary:
    """Decides which requests the candidate answers, and stops it.

    Args:
        plan: the candidate and its share.
        follower: holds the candidate's version.
        count: called with `answered`, `failed` or `stopped`, and the number of images.
    """

    def __init__(self, plan: Candidate, follower: Follower, count: Callable[[str, int], object]) -> None:
        self.follower = follower
        self._plan, self._count = plan, count
        self._version: LoadedVersion | None = None  # of the numbers below
        self._images = self._failed = 0
        self._stopped = False

    async def answer(self, served: LoadedVersion, request: ImageRequest, classify: Classify) -> Answer:
        """Let the candidate classify the images of a request if it is its turn, else the served version.

        Args:
            served: the version that answers what the candidate does not.
            request: its images.
            classify: classifies them with a version.

        Raises:
            RequestRefused: there is no room for the images.
        """
        candidate = self._chosen(request)
        if candidate is None:
            return served, await classify(served)
        outputs, reason = await _attempt(classify, candidate)
        if not reason:
            self._count("answered", len(outputs))
            self._judge(candidate, len(outputs), 0, "")
            return candidate, outputs
        outputs = await classify(served)
        if not _reason(outputs):
            self._count("failed", len(outputs))
            self._judge(candidate, len(outputs), len(outputs), reason)
        return served, outputs

    def _chosen(self, request: ImageRequest) -> LoadedVersion | None:
        """The candidate, if it is to answer a request."""
        version = self.follower.current
        if version is None or request.key >= self._plan.share:
            return None
        if version is not self._version:
            self._version, self._images, self._failed, self._stopped = version, 0, 0, False
        if self._stopped:
            self._count("stopped", len(request.images))
            return None
        return version

    def _judge(self, version: LoadedVersion, images: int, failed: int, reason: str) -> None:
        """Add images of a request, and stop a candidate that fails too often."""
        if version is not self._version or self._stopped:
            return
        self._images += images
        self._failed += failed
        if failing(self._failed, self._images):
            self._stopped = True
            place, shown = redacted(self._plan.model), f"{self._failed} of {self._images} images failed"
            log.warning("stop the canary %s of %s: %s, such as: %s", version.number, place, shown, reason)


async def _attempt(classify: Classify, version: LoadedVersion) -> tuple[list[Output], str]:
    """The outputs of a version, and why some are missing."""
    try:
        outputs = await classify(version)
    except RequestRefused:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the served version answers
        return [], str(error) or type(error).__name__
    return outputs, _reason(outputs)


def _reason(outputs: list[Output]) -> str:
    return next((each.reason for each in outputs if isinstance(each, BadImage)), "")
