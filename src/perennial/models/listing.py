"""What `perennial models` lists."""

from perennial.models import MODELS

CLASSES = 10  # that parameters are counted with


def listing() -> list[dict[str, str | int]]:
    """Each architecture's name and number of weights at its own image size with 10 classes."""
    rows: list[dict[str, str | int]] = []
    for name, model in MODELS.items():
        image = (model.image_size, model.image_size, model.channels)
        parameters = model.build(image, CLASSES).count_params()
        rows.append(
            {
                "name": name,
                "parameters": parameters,
                "image_size": model.image_size,
                "channels": model.channels,
            }
        )
    return rows
