"""An export that takes photographs of any size."""

from support.inference import classifier, photographs, world
from support.s3 import bucket, server

__all__ = ["bucket", "classifier", "photographs", "server", "world"]
