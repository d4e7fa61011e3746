"""Moved."""

from perennial.tfrecord.example import *  # noqa: F403
