"""Single calls in a thread, and a stream of bytes that a second thread consumes."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def start(function: Callable[[], Result]) -> Callable[[], Result]:
    """Run `function` in a daemon thread; the returned callable blocks for its result or raises its error."""
    called: Future[Result] = Future()

    def call() -> None:
        try:
            called.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised by `result`
            called.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return called.result


def feed(chunks: Iterable[bytes], *consumers: Callable[[bytes], object]) -> None:
    """Pass every chunk to all consumers in a second thread; faster if both release the interpreter lock."""

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
