"""Read and check params.yaml, for programs: `perennial.config.load(path)`."""

from perennial.base.config import Config, load

__all__ = ["Config", "load"]
