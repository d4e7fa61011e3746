"""Looks for inputs that a reader does not bear."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

ONE_S = 120  # more is taken for a hang, also on a busy machine
MINUTE_S = 60  # what a reader gets under the profile `fuzz`
QUICK = settings(
    max_examples=100, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
THOROUGH = settings(QUICK, max_examples=50, derandomize=False)


def hunt(inputs: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    """Checks one input after the other: a few, always the same, or for a minute, always others."""

    def timed(value: Any) -> None:
        with at_most(ONE_S):
            check(value)

    if settings.get_current_profile_name() != "fuzz":
        QUICK(given(inputs)(timed))()
        return
    started = time.monotonic()
    while time.monotonic() - started < MINUTE_S:
        seed(time.time_ns())(THOROUGH(given(inputs)(timed)))()


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fails the block when it takes longer."""

    def stop(*_: object) -> None:
        raise AssertionError(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def changed(draw: Random, content: bytes) -> bytes:
    """Bytes after a few changes anywhere."""
    found = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        at, size = draw.randrange(len(found) + 1), draw.choice((1, 1, 1, 2, 4, 16))
        match draw.randrange(6):
            case 0:
                found[at : at + size] = draw.randbytes(size)
            case 1:
                found[at:at] = draw.randbytes(size)
            case 2:
                del found[at : at + size]
            case 3:
                found[at:at] = found[at : at + size] * draw.randint(1, 50)
            case 4:
                found[at:at] = bytes([draw.choice((0xFF, 0, 0xD9, 0xDA, 0xC0))]) * draw.randint(1, 200)
            case 5:
                if at < len(found):
                    found[at] ^= 1 << draw.randrange(8)
    return bytes(found)


def mutated(valid: bytes) -> st.SearchStrategy[bytes]:
    """A valid content after some changes, or its beginning."""
    seeds, sizes = st.integers(0, 1 << 32), st.integers(0, len(valid))
    return seeds.map(lambda seed: changed(Random(seed), valid)) | sizes.map(lambda size: valid[:size])


def hostile(*valid: bytes) -> st.SearchStrategy[bytes]:
    """Any bytes, a beginning and any bytes, or valid contents after some changes."""
    begun = st.builds(
        lambda content, size, junk: content[:size] + junk,
        st.sampled_from(valid),
        st.integers(0, 64),
        st.binary(max_size=200),
    )
    return st.one_of(st.binary(max_size=300), begun, *map(mutated, valid))
