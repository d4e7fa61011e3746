"""Data that moves: what `dataset.url` holds now, its pin, and the copies of its objects on this machine."""
