"""Models of any architecture."""

from support.models import build, describe, policy

__all__ = ["build", "describe", "policy"]
