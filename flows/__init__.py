"""Flows: the order of the stages."""

import os

# Prefect reads these when it is imported. On two cores its temporary server needs longer than its 20 s.
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30")  # seconds; automations miss them after 90

# A request that is given up may leave the server's SQLite locked for good; SQLite waits 60 s for its lock.
os.environ.setdefault("PREFECT_API_REQUEST_TIMEOUT", "600")
os.environ.setdefault("PREFECT_CLIENT_RETRY_EXTRA_CODES", "500,504")  # a busy server or its proxy

import tasks  # noqa: F401 - checks Prefect's settings before Prefect is imported
