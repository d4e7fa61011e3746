"""Tasks: how each stage runs (retries, time limits, tags), and all calls of DVC."""
