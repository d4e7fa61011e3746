"""Sources that change over time: the listing of `dataset.url`, its pin, and local copies of its objects."""
