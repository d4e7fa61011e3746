"""One run of a pipeline at a time."""
