"""Training on several devices and machines: the strategy, and synchronization between workers."""

import faulthandler
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.base.config.training import TrainConfig
from perennial.base.devices import cluster, devices
from perennial.base.devices.cluster import Worker
from perennial.base.errors import ConfigError, Interrupted

log = logging.getLogger(__name__)
Communication = tf.distribute.experimental.CommunicationImplementation
CROSS_DEVICE = {
    "nccl": tf.distribute.NcclAllReduce,
    "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
    "reduce_to_one": tf.distribute.ReductionToOneDevice,
}
ACROSS_MACHINES = {"auto": Communication.AUTO, "nccl": Communication.NCCL, "ring": Communication.RING}
CONNECTING_S = 120  # for workers that were reachable a moment ago
SPARE_S = 5
# TensorFlow's errors if another worker ended, restarted, or gave up because it lost a third one.
LOST = (
    tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError, tf.errors.UnavailableError,
)  # fmt: skip


def strategy(config: TrainConfig, worker: Worker | None) -> tf.distribute.Strategy:
    """Create the strategy for train.devices: one device, mirrored, or mirrored over the workers of TF_CONFIG.

    Call it before anything uses a device, because TensorFlow cannot split the CPU after its first use. Several
    workers wait for each other here.
    """
    kind, numbers = devices.select(config.devices, key="train.devices")
    _require_possible(config, kind, len(numbers), worker)
    if config.intra_op_threads:
        tf.config.threading.set_intra_op_parallelism_threads(config.intra_op_threads)
    if config.inter_op_threads:
        tf.config.threading.set_inter_op_parallelism_threads(config.inter_op_threads)
    names = devices.configure(kind, numbers)
    if worker:
        return _across_machines(config, worker)
    if len(names) == 1:
        return tf.distribute.OneDeviceStrategy(names[0])
    choice = CROSS_DEVICE.get(config.all_reduce)
    return tf.distribute.MirroredStrategy(names, cross_device_ops=choice() if choice else None)


def _require_possible(config: TrainConfig, kind: str, count: int, worker: Worker | None) -> None:
    total = count * (worker.count if worker else 1)
    if config.batch_size % total:
        lower = config.batch_size // total * total
        near = f"{lower} or {lower + total}" if lower else total
        raise ConfigError(
            f"train.batch_size {config.batch_size} cannot be split evenly over {total} devices; nearest: {near}"
        )
    if config.all_reduce == "hierarchical_copy" and count > 1 and count % 2:
        # It sums up two groups of equal size, and would leave out one device without an error.
        raise ConfigError(
            f"train.all_reduce is hierarchical_copy, for an even number of devices, got {count}; use auto"
        )
    if worker is None and config.all_reduce == "ring":
        raise ConfigError("train.all_reduce is ring, which is for several machines (TF_CONFIG); use auto")
    if worker and config.all_reduce not in ACROSS_MACHINES:
        known = f"several machines support {', '.join(ACROSS_MACHINES)}"
        raise ConfigError(f"train.all_reduce is {config.all_reduce}; {known}")
    if worker and kind == "cpu" and count > 1:
        raise ConfigError(
            f"train.devices is {config.devices}, but each of several workers (TF_CONFIG) has one CPU; use cpu:1"
        )


def _across_machines(config: TrainConfig, worker: Worker) -> tf.distribute.Strategy:
    # No timeout: TensorFlow would keep a sleeping thread for each of thousands of reductions until it expires.
    # A closed connection reveals a worker that ended, and a missing heartbeat one that hangs.
    options = tf.distribute.experimental.CommunicationOptions(implementation=ACROSS_MACHINES[config.all_reduce])
    cluster.rendezvous(worker)
    log.info(
        "all %d workers are reachable; connecting them; SIGALRM ends this one after %d s: then start all again",
        worker.count, CONNECTING_S,
    )  # fmt: skip
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    # If a worker ends now, or the peer is no worker, TensorFlow waits forever; no handler and no thread can
    # stop it. A signal without a handler can: the process counts as killed and starts again, unlike after 1.
    signal.setitimer(signal.ITIMER_REAL, CONNECTING_S)
    faulthandler.dump_traceback_later(CONNECTING_S + SPARE_S, exit=True)  # process 1 ignores such a signal
    try:
        with lost_worker_errors(worker):
            return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        for number, handler in handlers.items():  # TensorFlow replaces the handler of SIGTERM
            signal.signal(number, handler)


class Peers:
    """The workers of a training; a process that trains alone is the only one.

    TensorFlow matches the messages of workers by their order within a call. Workers that ran different numbers
    of steps would wait for each other forever, so they agree on the number between calls. A lost worker is also
    noticed here, where the weights are consistent and can be saved.
    """

    def __init__(self, strategy: tf.distribute.Strategy, worker: Worker | None) -> None:
        self.worker = worker
        self._strategy = strategy
        self._sum = tf.function(self._summed, autograph=False)

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the results."""
        return self.worker is None or self.worker.is_chief

    def all_gather(self, *values: float) -> NDArray[np.float64]:
        """Gather the values of each worker, float64 [workers, values]; waits for all."""
        if self.worker is None:
            return np.array([values], np.float64)
        table = np.zeros((self.worker.count, len(values)))
        table[self.worker.index] = values
        gathered: NDArray[np.float64] = self._sum(tf.constant(table)).numpy()
        return gathered

    def barrier(self) -> None:
        """Wait for all workers. A worker that ended before the others would count as lost."""
        with lost_worker_errors(self.worker):
            self.all_gather(0)

    def require_same(self, step: int, digest: str) -> None:
        """Wait for all workers; raise if their fingerprints (hexadecimal) or first steps differ."""
        with lost_worker_errors(self.worker):
            steps, digests = self.all_gather(step, int(digest[:12], 16)).T
        for number in np.flatnonzero(digests != digests[0]):
            raise ConfigError(
                f"worker {number} and worker 0 have different parameters, data, code or packages; "
                "nothing was trained; start all workers in the same checkout"
            )
        for number in np.flatnonzero(steps != steps[0]):
            raise ConfigError(
                f"worker 0 continues from step {steps[0]:.0f}, worker {number} from step {steps[number]:.0f}; "
                "nothing was trained; paths.work must be one folder that all workers share"
            )

    def _summed(self, table: tf.Tensor) -> tf.Tensor:
        own_replicas = self._strategy.num_replicas_in_sync // table.shape[0]

        def own() -> tf.Tensor:
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            return tf.where(tf.equal(number % own_replicas, 0), table, tf.zeros_like(table))

        return self._strategy.reduce("SUM", self._strategy.run(own), axis=None)


@contextmanager
def lost_worker_errors(worker: Worker | None) -> Iterator[None]:
    """Convert TensorFlow's error about a lost worker in the block to an Interrupted that names the worker."""
    try:
        yield
    except LOST as error:
        if worker is None:
            raise
        raise Interrupted(
            f"the loss of {cluster.unreachable(worker)} ended the training; start all workers again to resume"
        ) from error
