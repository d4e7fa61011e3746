"""Models of any architecture, to export."""

from support.models import build, describe, policy

__all__ = ["build", "describe", "policy"]
