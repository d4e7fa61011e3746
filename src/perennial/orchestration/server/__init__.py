"""The Prefect server of a run: its settings, a temporary one, and the runs that it knows."""
