"""Scores of models on splits of the records."""
