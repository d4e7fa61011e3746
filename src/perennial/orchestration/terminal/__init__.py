"""A flow as a command."""
