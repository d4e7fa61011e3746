"""Which devices train, and the strategy that shares the work among them."""

import faulthandler
import logging
import signal

import tensorflow as tf

from perennial.config.training import TrainConfig
from perennial.errors import ConfigError
from perennial.runtime import cluster, devices
from perennial.runtime.cluster import Worker
from perennial.training import agreement

log = logging.getLogger(__name__)
Communication = tf.distribute.experimental.CommunicationImplementation
CROSS_DEVICE = {
    "nccl": tf.distribute.NcclAllReduce,
    "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
    "reduce_to_one": tf.distribute.ReductionToOneDevice,
}
ACROSS_MACHINES = {"auto": Communication.AUTO, "nccl": Communication.NCCL, "ring": Communication.RING}
CONNECTING_S = 120  # for workers that all answered a moment ago


def strategy(config: TrainConfig, worker: Worker | None) -> tf.distribute.Strategy:
    """The strategy for train.devices: one device, mirrored, or mirrored over the workers of TF_CONFIG.

    Has to be called before anything uses a device: the CPU cannot be split once TensorFlow has used it.
    Several workers wait for each other here.

    Raises:
        ConfigError: the devices are not there, or the global batch cannot be split evenly over them.
        Interrupted: another worker did not come up.
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


def _require_possible(config: TrainConfig, kind: str, devices: int, worker: Worker | None) -> None:
    count = devices * (worker.count if worker else 1)
    if config.batch_size % count:
        lower = config.batch_size // count * count
        near = " or ".join(str(size) for size in (lower, lower + count) if size)
        raise ConfigError(
            f"train.batch_size {config.batch_size} cannot be split evenly over {count} devices; nearest: {near}"
        )
    if worker is None and config.all_reduce == "ring":
        raise ConfigError("train.all_reduce is ring, which is for several machines (TF_CONFIG); use auto")
    if worker and config.all_reduce not in ACROSS_MACHINES:
        known = ", ".join(ACROSS_MACHINES)
        raise ConfigError(f"train.all_reduce is {config.all_reduce}; several machines know {known}")
    if worker and kind == "cpu" and devices > 1:
        raise ConfigError(
            f"train.devices is {config.devices}, but each of several workers (TF_CONFIG) has one CPU; use cpu:1"
        )


def _across_machines(config: TrainConfig, worker: Worker) -> tf.distribute.Strategy:
    # No timeout: TensorFlow lets a thread sleep through it at every reduction, thousands at a time. A worker
    # that is gone is noticed by its closed connection, one that hangs by its heartbeat.
    options = tf.distribute.experimental.CommunicationOptions(implementation=ACROSS_MACHINES[config.all_reduce])
    cluster.rendezvous(worker)
    log.info("all %d workers answer; connecting them, for %d s at most", worker.count, CONNECTING_S)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    # If one is gone again or no worker, TensorFlow waits for ever, and lets no signal and no thread end it.
    faulthandler.dump_traceback_later(CONNECTING_S, exit=True)
    try:
        with agreement.naming_lost(worker):
            return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    finally:
        faulthandler.cancel_dump_traceback_later()
        for number, handler in handlers.items():  # TensorFlow has taken SIGTERM for itself
            signal.signal(number, handler)
