"""What bounds the memory of images that are decoded at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class Budget:
    """Pixels that threads share."""

    def __init__(self, pixels: int) -> None:
        self._pixels = pixels
        self._taken = 0
        self._changed = Condition()

    @contextmanager
    def taken(self, pixels: int) -> Iterator[None]:
        """Takes a part for the block, once it is free; what is more than all of it gets all of it."""
        pixels = min(pixels, self._pixels)
        with self._changed:
            self._changed.wait_for(lambda: self._taken + pixels <= self._pixels)
            self._taken += pixels
        try:
            yield
        finally:
            with self._changed:
                self._taken -= pixels
                self._changed.notify_all()
