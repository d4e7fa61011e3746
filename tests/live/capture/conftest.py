"""An export to serve, and an S3 server for what is kept."""

from support.inference import classifier, world
from support.s3 import bucket, server

__all__ = ["bucket", "classifier", "server", "world"]
