"""An image drawn in a terminal: two pixels a character where there are colours, else shades of characters."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby

import numpy as np
import PIL.Image
from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style

from perennial.images.decode import Pixels, array

UPPER_HALF = "▀"
SHADES = " .:-=+*#%@"  # from dark to bright, on a dark ground
LINES_KEPT = 2  # for what stands above the picture


class Picture:
    """Pixels uint8 [height, width, 1 or 3] as something that rich prints."""

    def __init__(self, pixels: Pixels) -> None:
        self.pixels = pixels

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The picture as large as the terminal lets it be, its sides in proportion."""
        fitting = fitted(self.pixels, options.max_width, 2 * max(console.height - LINES_KEPT, 1))
        plain = console.color_system is None or console.no_color or options.ascii_only
        for line in _shades(fitting) if plain else _halves(fitting):
            yield from line
            yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """As wide as there is room."""
        return Measurement(1, options.max_width)


def fitted(pixels: Pixels, width: int, height: int) -> Pixels:
    """The pixels at the largest size within width x height: enlarged by a whole factor, or made smaller."""
    factor = min(width // pixels.shape[1], height // pixels.shape[0])
    if factor >= 1:
        return pixels.repeat(factor, axis=0).repeat(factor, axis=1)
    scale = min(width / pixels.shape[1], height / pixels.shape[0])
    size = (max(int(pixels.shape[1] * scale), 1), max(int(pixels.shape[0] * scale), 1))
    image = PIL.Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[..., 0])
    return array(image.resize(size, PIL.Image.Resampling.BOX))


def _halves(pixels: Pixels) -> Iterator[list[Segment]]:
    """Lines of half blocks: the upper pixel in the character's colour, the lower one in its ground's."""
    colours = np.broadcast_to(pixels, (*pixels.shape[:2], 3)).tolist()
    for upper, lower in zip(colours[::2], [*colours[1::2], None][: len(colours[::2])], strict=True):
        below = [None] * len(upper) if lower is None else map(tuple, lower)
        cells = list(zip(map(tuple, upper), below, strict=True))
        yield [Segment(UPPER_HALF * len(list(run)), _style(*cell)) for cell, run in groupby(cells)]


def _shades(pixels: Pixels) -> Iterator[list[Segment]]:
    """Lines of characters that cover more of their cell the brighter the two pixels in it are."""
    luma = pixels.mean(axis=2)
    if len(luma) % 2:
        luma = np.concatenate((luma, luma[-1:]))
    levels = (luma[::2] + luma[1::2]) / 2 * len(SHADES) / 256
    for line in levels.astype(int).tolist():
        yield [Segment("".join(SHADES[level] for level in line))]


@lru_cache(maxsize=4096)
def _style(upper: tuple[int, int, int], lower: tuple[int, int, int] | None) -> Style:
    return Style(color=Color.from_rgb(*upper), bgcolor=None if lower is None else Color.from_rgb(*lower))
