"""Tasks: how each stage is run - retries, time limits, tags - and the one door to DVC."""
