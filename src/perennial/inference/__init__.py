"""Predictions of an exported model, for a program."""
