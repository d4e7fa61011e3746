"""Predictions of an exported model, for use in programs."""
