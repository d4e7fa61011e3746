"""Perennial retrains image classifiers on a schedule and rebuilds any of them from a git revision."""
