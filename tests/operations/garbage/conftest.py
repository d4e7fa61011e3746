"""An S3 server."""

from support.s3 import bucket, server

__all__ = ["bucket", "server"]
