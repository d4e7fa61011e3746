"""How a model is trained."""
