"""An export that takes photographs of any size."""

from support.inference import classifier, photographs, world

__all__ = ["classifier", "photographs", "world"]
