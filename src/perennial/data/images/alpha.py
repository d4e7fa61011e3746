"""Transparent pixels: drop the alpha channel, as TensorFlow does, or composite on white, as web pages do."""

import numpy as np
import PIL.Image
from numpy.typing import NDArray

WHITE = (255, 255, 255, 255)
KEY = "transparency"  # Pillow's name for the colour that is transparent, or the alpha of palette entries
GRAYS = {"1", "L", "LA", "La", "I;16", "I;16B", "I;16L", "I;16N"}
# A picture is lost with its alpha channel if its colours vary by at most FLAT levels and its alpha by CONTRAST.
FLAT, CONTRAST = 8, 64


def on_white(image: PIL.Image.Image) -> PIL.Image.Image:
    """Composite a transparent image on white; returns 8-bit grey or RGB."""
    colours = _with_alpha(image)
    white = PIL.Image.new("RGBA", colours.size, WHITE)
    return PIL.Image.alpha_composite(white, colours).convert("L" if image.mode in GRAYS else "RGB")


def holds_the_picture(image: PIL.Image.Image, pixels: NDArray[np.uint8]) -> bool:
    """Whether the pixels of an image show nothing without its alpha channel, which shows something."""
    if not image.has_transparency_data or int(np.ptp(pixels, axis=(0, 1)).max()) > FLAT:
        return False
    least, most = _with_alpha(image).getchannel("A").getextrema()
    return most - least >= CONTRAST  # type: ignore[operator]  # one band has two numbers


def correct_key(image: PIL.Image.Image, bits: int, key: tuple[int, ...]) -> None:
    """Scale the transparent colour of a grey or RGB PNG to 8 bits; Pillow leaves it in the file's range."""
    if not key or image.mode not in {"1", "L", "RGB"}:
        return
    scaled = tuple(value >> bits - 8 if bits > 8 else value * 255 // (2**bits - 1) for value in key)
    image.info[KEY] = scaled if image.mode == "RGB" else scaled[0]


def _with_alpha(image: PIL.Image.Image) -> PIL.Image.Image:
    """Convert an image of any mode to RGBA."""
    if image.mode == "1" or image.mode.startswith("I;16"):
        values, key = np.asarray(image).astype(np.uint16), image.info[KEY]
        if image.mode == "1":
            values, key = values * 255, 255 if key else 0
        upper = (values >> 8 if image.mode != "1" else values).astype(np.uint8)
        alpha = np.where(values == key, 0, 255).astype(np.uint8)
        return PIL.Image.fromarray(np.stack([upper, upper, upper, alpha], axis=-1), "RGBA")
    return image.convert("RGBA")
