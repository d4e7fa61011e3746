"""Which devices train, and the strategy that shares the work among them."""

import tensorflow as tf

from perennial.config.training import TrainConfig
from perennial.errors import ConfigError
from perennial.training.workers import Worker

Communication = tf.distribute.experimental.CommunicationImplementation
CROSS_DEVICE = {
    "nccl": tf.distribute.NcclAllReduce,
    "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
    "reduce_to_one": tf.distribute.ReductionToOneDevice,
}
ACROSS_MACHINES = {"auto": Communication.AUTO, "nccl": Communication.NCCL, "ring": Communication.RING}
PEER_TIMEOUT_S = 60  # after which a worker that does not answer counts as lost


def strategy(config: TrainConfig, worker: Worker | None) -> tf.distribute.Strategy:
    """The strategy for train.devices: one device, mirrored, or mirrored over the workers of TF_CONFIG.

    Has to be called before anything uses a device: the CPU cannot be split once TensorFlow has used it.

    Raises:
        ConfigError: the devices are not there, or the global batch cannot be split evenly over them.
    """
    kind, numbers = _asked(config.devices)
    _require_even(config.batch_size, len(numbers) * (worker.count if worker else 1))
    if config.intra_op_threads:
        tf.config.threading.set_intra_op_parallelism_threads(config.intra_op_threads)
    if config.inter_op_threads:
        tf.config.threading.set_inter_op_parallelism_threads(config.inter_op_threads)
    devices = _set_up(kind, numbers)
    if worker:
        return _across_machines(config)
    if len(devices) == 1:
        return tf.distribute.OneDeviceStrategy(devices[0])
    if config.all_reduce == "ring":
        raise ConfigError("train.all_reduce is ring, which is for several machines (TF_CONFIG); use auto")
    choice = CROSS_DEVICE.get(config.all_reduce)
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=choice() if choice else None)


def _asked(asked: str) -> tuple[str, list[int]]:
    """The kind of devices that train.devices says, and their numbers on this machine."""
    gpus = tf.config.list_physical_devices("GPU")
    if asked == "auto":
        asked = f"gpu:{len(gpus)}" if gpus else "cpu:1"
    kind, _, which = asked.partition(":")
    numbers = [int(number) for number in which.split(",")] if "," in which else list(range(int(which)))
    if kind == "gpu" and (missing := [number for number in numbers if number >= len(gpus)]):
        raise ConfigError(
            f"train.devices is {asked}, but TensorFlow sees {len(gpus)} GPUs on this machine and no GPU "
            f"{missing[0]}; its own messages are in tensorflow.log in paths.work"
        )
    return kind, numbers


def _set_up(kind: str, numbers: list[int]) -> list[str]:
    """TensorFlow's names of the devices: the GPUs of these numbers, or so many parts of the CPU."""
    if kind == "gpu":
        gpus = tf.config.list_physical_devices("GPU")
        tf.config.set_visible_devices([gpus[number] for number in numbers], "GPU")
    elif len(numbers) > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * len(numbers))
    return [f"{kind}:{index}" for index in range(len(numbers))]


def _require_even(batch_size: int, count: int) -> None:
    if batch_size % count:
        lower = batch_size // count * count
        near = " or ".join(str(size) for size in (lower, lower + count) if size)
        raise ConfigError(
            f"train.batch_size {batch_size} cannot be split evenly over {count} devices; nearest: {near}"
        )


def _across_machines(config: TrainConfig) -> tf.distribute.Strategy:
    if config.all_reduce not in ACROSS_MACHINES:
        known = ", ".join(ACROSS_MACHINES)
        raise ConfigError(f"train.all_reduce is {config.all_reduce}; several machines know {known}")
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=ACROSS_MACHINES[config.all_reduce], timeout_seconds=PEER_TIMEOUT_S
    )
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
