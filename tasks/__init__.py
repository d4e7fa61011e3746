"""Tasks: how each stage runs (retries, time limits), and all calls to DVC."""

from perennial.worker import settings

settings.require_valid()
