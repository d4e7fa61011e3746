"""Monitoring of the champion: its source, score on new data, drift and age, and rules on these."""
