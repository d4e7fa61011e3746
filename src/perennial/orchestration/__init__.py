"""How flows run: stages through DVC, one run at a time, records and alerts, deployments on a Prefect server."""
