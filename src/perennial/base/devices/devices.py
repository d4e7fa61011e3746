"""Choose and configure the devices that a parameter names."""

import tensorflow as tf

from perennial.base.errors import ConfigError


def select(devices: str, *, key: str) -> tuple[str, list[int]]:
    """Kind and indices of the devices in a parameter: `auto`, `cpu:N`, `gpu:N` or `gpu:0,2`."""
    gpus = tf.config.list_physical_devices("GPU")
    if devices == "auto":
        devices = f"gpu:{len(gpus)}" if gpus else "cpu:1"
    kind, _, which = devices.partition(":")
    indices = [int(index) for index in which.split(",")] if "," in which else list(range(int(which)))
    if kind == "gpu" and (missing := [index for index in indices if index >= len(gpus)]):
        raise ConfigError(
            f"{key} is {devices}, but TensorFlow sees {len(gpus)} GPUs on this machine and no GPU "
            f"{missing[0]}; its own messages are in tensorflow.log in paths.work"
        )
    return kind, indices


def configure(kind: str, indices: list[int]) -> list[str]:
    """Make only these devices visible, before anything uses one; returns TensorFlow's names of them."""
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices([gpus[index] for index in indices] if kind == "gpu" else [], "GPU")
    if kind == "cpu" and len(indices) > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * len(indices))
    return [f"{kind}:{index}" for index in range(len(indices))]


def disable_tf32() -> None:
    """Multiply in full float32 instead of TF32, because scores are compared to a precision of 1e-5."""
    tf.config.experimental.enable_tensor_float_32_execution(enabled=False)
