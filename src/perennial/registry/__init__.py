"""Published versions of a model."""
