"""Work in a second thread: its result, its errors, and an end of the process that does not wait for it."""

import io
import subprocess
import sys
import threading
import time

import pytest

from perennial.runtime import parallel

ENDS_EARLY = """
import time
from perennial.runtime import parallel
parallel.start(lambda: time.sleep(60))
"""


def closed():
    stream = io.BytesIO()
    stream.close()
    return stream


def test_the_result_of_a_call_is_waited_for():
    gate = threading.Event()
    result = parallel.start(lambda: gate.wait(10))
    gate.set()
    assert result() is True


def test_an_error_of_the_call_is_raised_where_its_result_is_asked_for():
    result = parallel.start(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        result()


def test_the_end_of_the_process_does_not_wait_for_a_call():
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", ENDS_EARLY], check=True)
    assert time.monotonic() - started < 30


def test_every_consumer_gets_every_chunk_in_order():
    first, second = [], []
    parallel.feed(iter([b"a", b"b", b"c"]), first.append, second.append)
    assert (first, second) == ([b"a", b"b", b"c"], [b"a", b"b", b"c"])


def test_an_error_of_a_consumer_is_raised():
    with pytest.raises(ValueError, match="closed file"):
        parallel.feed(iter([b"a", b"b"]), closed().write)
