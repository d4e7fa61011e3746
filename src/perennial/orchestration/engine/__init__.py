"""Who carries out flows and tasks: Prefect where a server is set, else this process alone."""
