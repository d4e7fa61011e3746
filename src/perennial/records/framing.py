"""Moved."""

from perennial.tfrecord.framing import *  # noqa: F403
