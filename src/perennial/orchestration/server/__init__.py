"""The Prefect server of a run: its settings, artifacts, and the runs that it knows."""
