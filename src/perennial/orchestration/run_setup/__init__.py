"""The command of a work pool: prepare the checkout and the packages of a run, then start Prefect's engine."""
