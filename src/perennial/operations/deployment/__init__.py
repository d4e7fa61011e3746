"""The command of a work pool: prepare a run's checkout and environment, then start Prefect's engine."""
