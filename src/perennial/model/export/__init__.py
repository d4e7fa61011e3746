"""Exports: the SavedModel, other formats, the model card, and the check that all match the evaluated model."""
