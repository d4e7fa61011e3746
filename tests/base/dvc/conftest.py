"""An S3 server, a bucket, and a proxy that fails requests."""

from support.s3 import bucket, proxy, server

__all__ = ["bucket", "proxy", "server"]
