"""Flows: the order of the stages."""

import tasks  # noqa: F401 - checks Prefect's settings, and sets defaults, before Prefect is imported
