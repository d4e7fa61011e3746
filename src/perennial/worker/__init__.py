"""The command of a work pool: a checkout and an environment for each run, then Prefect's engine in them."""
