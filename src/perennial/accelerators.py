"""The devices of this machine: those that a parameter asks for, by TensorFlow's names."""

import tensorflow as tf

from perennial.errors import ConfigError


def asked(devices: str, *, key: str) -> tuple[str, list[int]]:
    """The kind of devices that a parameter (`auto`, `cpu:N`, `gpu:N` or `gpu:0,2`) says, and their numbers.

    Raises:
        ConfigError: one of them is not on this machine; the message names the parameter by `key`.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if devices == "auto":
        devices = f"gpu:{len(gpus)}" if gpus else "cpu:1"
    kind, _, which = devices.partition(":")
    numbers = [int(number) for number in which.split(",")] if "," in which else list(range(int(which)))
    if kind == "gpu" and (missing := [number for number in numbers if number >= len(gpus)]):
        raise ConfigError(
            f"{key} is {devices}, but TensorFlow sees {len(gpus)} GPUs on this machine and no GPU "
            f"{missing[0]}; its own messages are in tensorflow.log in paths.work"
        )
    return kind, numbers


def compute_exactly() -> None:
    """Keeps every digit of float32, of which newer GPUs drop half in products: scores are compared to 1e-5."""
    tf.config.experimental.enable_tensor_float_32_execution(enabled=False)


def set_up(kind: str, numbers: list[int]) -> list[str]:
    """TensorFlow's names of the devices: the GPUs of these numbers, or so many parts of the CPU.

    Has to be called before anything uses a device: the CPU cannot be split once TensorFlow has used it.
    """
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices([gpus[number] for number in numbers] if kind == "gpu" else [], "GPU")
    if kind == "cpu" and len(numbers) > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * len(numbers))
    return [f"{kind}:{index}" for index in range(len(numbers))]
