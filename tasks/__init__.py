"""Tasks: how each stage runs (retries, time limits), and all calls to DVC."""
