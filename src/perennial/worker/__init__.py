"""What a work pool runs: a checkout and an environment for each run, then Prefect's engine in them."""
