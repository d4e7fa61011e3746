"""Deployments on a Prefect server, and the workers that take their runs."""
