"""Convert images in another process: many decoders hold Python's lock, which would keep `/health` waiting."""

import io
import threading
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from perennial.base.parallel import process_pool
from perennial.model.inference.image_inputs import PixelBudget, UnusableImage

FEW_PIXELS = 100_000  # are converted here: a decoder takes some milliseconds
PIECE = 1 << 20  # bytes of a result that are received at a time


class Converter(PixelBudget):
    """A limit on decoded pixels, with a process that converts larger images, one at a time."""

    def __init__(self, pixels: int) -> None:
        super().__init__(pixels)
        self._worker = process_pool.Worker(_work, [])
        self._one = threading.Lock()

    def convert(self, pixels: int, function: Callable[..., bytes], *given: Any) -> bytes:
        """Call a function that decodes so many pixels, in the other process if they are many."""
        if pixels <= FEW_PIXELS:
            return super().convert(pixels, function, *given)
        result = io.BytesIO()
        with self.reserve(pixels), self._one:
            try:
                for start in range(0, self._worker((function, given)), PIECE):
                    result.write(self._worker(start))
            except BrokenProcessPool:
                raise UnusableImage("its conversion was killed; does it need too much memory?") from None
        return result.getvalue()

    def close(self) -> None:
        """Let the process end after its current call."""
        self._worker.close()


def _work(kept: list[memoryview], task: tuple[Callable[..., bytes], tuple[Any, ...]] | int) -> int | bytes:
    """Call a function, keep its result and return its size; or return the piece of it that begins somewhere."""
    if isinstance(task, int):
        piece = bytes(kept[0][task : task + PIECE])
        if task + PIECE >= len(kept[0]):
            kept.clear()
        return piece
    function, given = task
    kept[:] = [memoryview(function(*given))]
    return len(kept[0])
