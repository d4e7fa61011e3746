"""A history that a test fills by hand."""

from support.histories import hand

__all__ = ["hand"]
