"""How long, how often and how slowly a file may come."""

import time
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of the fetching of one file. All are needed: none alone ends every kind of hanging."""

    connect_s: float = 10  # a connection and, for https, its handshake
    stall_s: float = 30  # without a byte
    least_bytes_per_s: int = 1000  # on average over rate_window_s
    rate_window_s: float = 30
    total_s: float = 2 * 3600  # the file, all mirrors and tries together
    tries: int = 5  # a mirror; one that brought fruitful_bytes does not count
    fruitful_bytes: int = 1 << 20
    backoff_first_s: float = 0.5  # doubled with every try
    backoff_most_s: float = 30
    retry_after_most_s: float = 60  # of what a server asks for
    redirects: int = 5


LIMITS = Limits()


@dataclass(frozen=True)
class Deadline:
    """A moment of the clock that never goes back."""

    at_s: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """The moment so many seconds from now."""
        return cls(time.monotonic() + seconds)

    def left_s(self) -> float:
        """The seconds until then, 0 when it is over."""
        return max(0.0, self.at_s - time.monotonic())
