"""What workers that train together tell each other between two calls of TensorFlow.

It pairs what they send by its place in a call: workers that ran a different number of updates at once would
wait for each other for ever. And where one is gone, the others learn it here, with whole weights to save.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.errors import ConfigError, Interrupted
from perennial.runtime import cluster
from perennial.runtime.cluster import Worker

# What TensorFlow raises where another worker is gone, was started anew, or gave up because of a third.
LOST = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.UnavailableError,
)


class Agreement:
    """How the workers of a training keep in step; a process that trains alone agrees with itself."""

    def __init__(self, strategy: tf.distribute.Strategy, worker: Worker | None) -> None:
        self._strategy, self._worker = strategy, worker
        self._sum = tf.function(self._summed)

    def told(self, *values: float) -> NDArray[np.float64]:
        """What each worker says, [workers, values], when all have spoken."""
        if self._worker is None:
            return np.array([values], np.float64)
        table = np.zeros((self._worker.count, len(values)))
        table[self._worker.index] = values
        told: NDArray[np.float64] = self._sum(tf.constant(table)).numpy()
        return told

    def wait(self) -> None:
        """Returns when all workers are here: one that ends before the others would count as lost.

        Raises:
            Interrupted: another worker was lost.
        """
        with naming_lost(self._worker):
            self.told(0)

    def require_same(self, step: int, digest: str) -> None:
        """Lets workers begin that continue the same training, told by its digest, from the same step.

        Raises:
            ConfigError: they do not.
            Interrupted: another worker was lost.
        """
        with naming_lost(self._worker):
            steps, digests = self.told(step, int(digest[:12], 16)).T
        for number in np.flatnonzero(digests != digests[0]):
            raise ConfigError(
                f"worker {number} and worker 0 do not train the same: parameters, data, code or packages "
                "differ; nothing was trained; start all workers in the same checkout"
            )
        for number in np.flatnonzero(steps != steps[0]):
            raise ConfigError(
                f"worker 0 continues from step {steps[0]:.0f}, worker {number} from step {steps[number]:.0f}; "
                "nothing was trained; paths.work must be one folder that all workers see"
            )

    def _summed(self, table: tf.Tensor) -> tf.Tensor:
        own_replicas = self._strategy.num_replicas_in_sync // len(table)

        def said() -> tf.Tensor:
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            return tf.where(tf.equal(number % own_replicas, 0), table, tf.zeros_like(table))

        return self._strategy.reduce("SUM", self._strategy.run(said), axis=None)


@contextmanager
def naming_lost(worker: Worker | None) -> Iterator[None]:
    """Lets what TensorFlow raises in the block because a worker is gone be an Interrupted that names it."""
    try:
        yield
    except LOST as error:
        if worker is None:
            raise
        raise Interrupted(
            f"the loss of {cluster.unreachable(worker)} ended the training; start all workers again to resume"
        ) from error
