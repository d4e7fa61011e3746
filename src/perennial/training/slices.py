"""Which examples of each global batch a worker's replicas take: pure arithmetic.

A batch is cut into contiguous slices whose sizes differ by one at most. A last batch with fewer examples than
replicas goes whole to each of them: with nothing to look at, batch normalization would see what is no example.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Slices:
    """The slices of some of the replicas, all that one worker has."""

    examples: int  # of an epoch
    batch_size: int  # global
    replicas: range = range(1)
    of: int = 1  # replicas of all workers together

    @property
    def steps(self) -> int:
        """Batches of an epoch, the last of which may be short."""
        return -(-self.examples // self.batch_size)

    def sizes(self, skip: int) -> NDArray[np.int64]:
        """How long the slices of an epoch are, batch by batch, those of the first `skip` batches last."""
        batches = np.full(self.steps, self.batch_size)
        batches[-1] = self.examples - (self.steps - 1) * self.batch_size
        bounds = batches[:, None] * np.arange(self.replicas.start, self.replicas.stop + 1) // self.of
        sizes = np.where(batches[:, None] < self.of, batches[:, None], np.diff(bounds, axis=1))
        return np.roll(sizes, -skip, axis=0).ravel()

    def own(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of some places of an epoch's order that these replicas take, each as often as it is taken."""
        positions = places % self.batch_size
        batches = np.minimum(self.batch_size, self.examples - (places - positions))
        begin, end = (batches * bound // self.of for bound in (self.replicas.start, self.replicas.stop))
        whole = batches < self.of
        cut = places[~whole & (positions >= begin) & (positions < end)]
        return np.concatenate([cut, np.tile(places[whole], len(self.replicas))])
