"""What a preprocessing is, and what it is to make."""

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf


@dataclass(frozen=True, kw_only=True)
class Target:
    """The images that a model takes."""

    height: int
    width: int
    channels: int  # 1 where there are 3 to start with: in grey
    fast: bool  # inception: the cheap distortions


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """Raw pixels into those of a target: float32 [N, height, width, channels], 0..255 before."""

    training: Callable[[tf.Tensor, tf.Tensor, Target], tf.Tensor]  # images, keys int32 [N, 2], target
    evaluation: Callable[[tf.Tensor, Target], tf.Tensor]


def undistorted(evaluation: Callable[[tf.Tensor, Target], tf.Tensor]) -> Preprocessing:
    """A preprocessing that trains on what it evaluates on."""

    def training(images: tf.Tensor, _keys: tf.Tensor, target: Target) -> tf.Tensor:
        return evaluation(images, target)

    return Preprocessing(training=training, evaluation=evaluation)
