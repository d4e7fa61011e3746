"""Exports: the SavedModel, other formats, the model card, and the proof that all match the scored model."""
