"""Work in a second thread: a value computed meanwhile, chunks consumed while the next one is being made."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def begin(function: Callable[[], Result]) -> Callable[[], Result]:
    """Starts a call; what is given waits for its result, and raises its error.

    The end of this process does not wait for it.
    """
    called: Future[Result] = Future()

    def call() -> None:
        try:
            called.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            called.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return called.result


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
