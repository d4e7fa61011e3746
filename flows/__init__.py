"""Flows: the order of the stages."""

import os

# Prefect reads these when it is imported. On two cores its temporary server needs longer than its 20 s.
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30")  # seconds; automations miss them after 90

import tasks  # noqa: F401 - checks Prefect's settings before Prefect is imported
