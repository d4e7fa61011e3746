"""Where the time goes before the first update."""

import time

from perennial.runtime.process import STARTED


class Stopwatch:
    """Seconds since the process started, in named parts."""

    def __init__(self) -> None:
        self._last = STARTED
        self._laps: list[str] = []
        self.lap("imports")

    def lap(self, part: str) -> None:
        """Ends a part."""
        now = time.monotonic()
        self._laps.append(f"{part} {now - self._last:.1f}")
        self._last = now

    def laps(self) -> str:
        """Every part with its seconds."""
        return f"{self.total()} ({', '.join(self._laps)})"

    def total(self) -> str:
        """The seconds since the process started."""
        return f"{time.monotonic() - STARTED:.1f} s"
