"""Weights from a checkpoint of TensorFlow 1 that slim wrote, such as the published inception_v3.ckpt."""

import logging
from collections.abc import Mapping
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.errors import ConfigError, DataError
from perennial.models import slim_names

log = logging.getLogger(__name__)
OPTION = "train.warm_start.path"
OTHERS = ("global_step", "beta1_power", "beta2_power")  # of the training, not of the network
SLOTS = ("Momentum", "RMSProp", "RMSProp_1", "Adam", "Adam_1", "Adagrad", "ExponentialMovingAverage")
SHOWN = 5


def read(prefix: Path) -> dict[str, NDArray[np.generic]]:
    """All weights by slim's names, without the state of the training.

    Raises:
        DataError: it is damaged, a part is missing, or it is no checkpoint.
    """
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        names = sorted(reader.get_variable_to_shape_map())
        kept = [name for name in names if name not in OTHERS and name.rpartition("/")[-1] not in SLOTS]
        return {name: reader.get_tensor(name) for name in kept}
    except (tf.errors.OpError, LookupError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{OPTION}: not a whole checkpoint of TensorFlow 1: {reason}") from error


def by_path(model: keras.Model, weights: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
    """The weights by the paths of our model, in its shapes; logs those that the model does not have.

    Kernels over a whole grid are dense layers here; a weight of another size stays as it is.

    Raises:
        ConfigError: slim has no such network.
    """
    names = slim_names.variables(model)
    if not names:
        raise ConfigError(
            f"{OPTION}: a checkpoint of slim is read for {', '.join(slim_names.SCOPES)}, and not for "
            f"model.name {model.name}"
        )
    found = {}
    for weight in model.weights:
        if (value := weights.get(names[weight.path])) is not None:
            fits = value.size == np.prod(weight.shape) and value.shape[-1] == weight.shape[-1]
            found[weight.path] = value.reshape(weight.shape) if fits else value
    if extra := sorted(weights.keys() - set(names.values())):
        more = f" and {len(extra) - SHOWN} more" if len(extra) > SHOWN else ""
        log.info("the checkpoint also has %s%s, which %s has not", ", ".join(extra[:SHOWN]), more, model.name)
    return found
