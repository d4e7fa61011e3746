"""Looks for inputs that a reader does not bear."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def _flipped(content: bytes, at: int, size: int, junk: bytes) -> bytes:
    return (
        content[:at] + bytes([content[at] ^ 1 << size % 8]) + content[at + 1 :]
        if at < len(content)
        else content
    )


CHANGES: dict[str, Callable[[bytes, int, int, bytes], bytes]] = {
    "flip": _flipped,
    "overwrite": lambda content, at, size, junk: content[:at] + junk + content[at + len(junk) :],
    "insert": lambda content, at, size, junk: content[:at] + junk + content[at:],
    "delete": lambda content, at, size, junk: content[:at] + content[at + size :],
    "double": lambda content, at, size, junk: (
        content[: at + size] + content[at : at + size] + content[at + size :]
    ),
    "zero": lambda content, at, size, junk: content[:at] + bytes(size) + content[at + size :],
    "move": lambda content, at, size, junk: content[at : at + size] + content[:at] + content[at + size :],
    "cut": lambda content, at, size, junk: content[:at],
}


def mutated(valid: bytes, most: int = 3) -> st.SearchStrategy[bytes]:
    """A valid content after some changes."""
    change = st.tuples(
        st.sampled_from(sorted(CHANGES)),
        st.integers(0, len(valid)),
        st.integers(1, 64) | st.integers(1, max(len(valid), 1)),
        st.binary(max_size=16),
    )

    def changed(changes: list[tuple[str, int, int, bytes]]) -> bytes:
        content = valid
        for kind, at, size, junk in changes:
            content = CHANGES[kind](content, at, size, junk)
        return content

    return st.lists(change, min_size=1, max_size=most).map(changed)


def hostile(*valid: bytes) -> st.SearchStrategy[bytes]:
    """Any bytes, a beginning and any bytes, or valid contents after some changes."""
    begun = st.builds(
        lambda content, size, junk: content[:size] + junk,
        st.sampled_from(valid),
        st.integers(0, 64),
        st.binary(max_size=200),
    )
    return st.one_of(st.binary(max_size=300), begun, *map(mutated, valid))
