"""Chunks consumed in a second thread while the next one is being made."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor


def consume(chunks: Iterable[bytes], *consumers: Callable[[bytes], object]) -> None:
    """Hands every chunk to the consumers, in order; one chunk waits at most.

    It pays where both sides leave the interpreter alone: inflating, hashing, writing. An error of either side
    is raised here.
    """

    def hand_over(chunk: bytes) -> None:
        for consumer in consumers:
            consumer(chunk)

    handed: Future[None] | None = None
    with ThreadPoolExecutor(1) as thread:
        for chunk in chunks:
            if handed is not None:
                handed.result()
            handed = thread.submit(hand_over, chunk)
        if handed is not None:
            handed.result()
