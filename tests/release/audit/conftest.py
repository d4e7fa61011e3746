"""An S3 server and a proxy that counts requests."""

from support.s3 import bucket, proxy, server

__all__ = ["bucket", "proxy", "server"]
