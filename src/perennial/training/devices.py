"""Which devices train, and the strategy that shares the work among them."""

import tensorflow as tf

from perennial.errors import ConfigError


def strategy(devices: str, *, batch_size: int) -> tf.distribute.Strategy:
    """The strategy for `auto` (every GPU, else one CPU), `cpu:N` or `gpu:N`; mirrored where N > 1.

    Raises:
        ConfigError: the devices are not there, or the global batch cannot be split evenly over them.
    """
    gpus = len(tf.config.list_physical_devices("GPU"))
    if devices == "auto":
        devices = f"gpu:{gpus}" if gpus else "cpu:1"
    kind, _, number = devices.partition(":")
    count = int(number)
    if kind == "gpu" and count > gpus:
        raise ConfigError(
            f"train.devices is {devices}, but TensorFlow sees {gpus} GPUs on this machine; "
            "its own messages are in tensorflow.log in paths.work"
        )
    if batch_size % count:
        lower = batch_size // count * count
        near = " or ".join(str(size) for size in (lower, lower + count) if size)
        raise ConfigError(
            f"train.batch_size {batch_size} cannot be split evenly over {count} devices; nearest: {near}"
        )
    if count == 1:
        return tf.distribute.OneDeviceStrategy(f"{kind}:0")
    if kind == "cpu":
        _split_cpu(count)
    return tf.distribute.MirroredStrategy([f"{kind}:{index}" for index in range(count)])


def _split_cpu(count: int) -> None:
    """Makes the CPU look like several devices, which has to happen before TensorFlow first uses it."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
