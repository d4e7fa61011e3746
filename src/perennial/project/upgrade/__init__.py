"""A project moves to another version of perennial, and keeps what its owner changed."""
