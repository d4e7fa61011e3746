"""Scores of a training's checkpoints while it goes on elsewhere."""
