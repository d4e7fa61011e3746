"""Checks of record folders, and the report of a validation as JSON, HTML page and terminal summary."""
