"""What `perennial models` lists."""

from perennial.models import MODELS


def listing() -> list[dict[str, str | int]]:
    """Each architecture with its number of weights at its own image size with 10 classes; builds none."""
    return [
        {
            "name": name,
            "parameters": model.parameters,
            "image_size": model.image_size,
            "channels": model.channels,
            "preprocessing": model.preprocessing,
        }
        for name, model in MODELS.items()
    ]
