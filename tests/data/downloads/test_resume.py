"""Resumed downloads: kept bytes, servers with wrong ranges, versions that are never mixed."""

import json
import os
import random
import signal
import time
from contextlib import suppress

import pytest
from data.downloads import client
from data.downloads.fault_server import CONTENT, OTHER, chunked, cut, gated, hang, honest, part, status

from perennial.data.downloads.fetch import Unavailable
from perennial.data.downloads.spec import FileSpec, TransferLimits

HALF = 150_000
LAST = len(CONTENT) - 1


def ranges(server):
    return [headers.get("Range") for headers in server.headers]


def half_done(fetching, server, **headers):
    """A run that ended in the middle of the file."""
    server.plan = [cut(HALF, **headers)]
    fetching.limit(tries=1)
    fetching.refusal()
    fetching.limit(tries=3)
    server.plan.clear()
    server.headers.clear()
    server.served = 0


@pytest.mark.fast_rows("0-9", "4-9", "10-15")
@pytest.mark.parametrize(
    ("seed", "number"), [*((seed, signal.SIGKILL) for seed in range(10)), (10, signal.SIGTERM)]
)
def test_a_killed_download_resumes(fetching, server, seed, number):
    count = random.Random(seed).randrange(1, len(CONTENT))
    server.plan = [gated(count)]
    process = client.start(fetching.spec, server.url, fetching.folder)
    while not (fetching.part.exists() and fetching.part.stat().st_size == count):
        assert process.is_alive()
        time.sleep(0.005)
    os.kill(process.pid, number)
    process.join(600)
    assert process.exitcode == -number
    assert not fetching.file.exists()
    server.plan, server.served = [honest], 0
    assert fetching().read_bytes() == CONTENT
    assert server.served == len(CONTENT) - count


def test_a_failed_download_resumes_the_same_version_in_the_next_run(fetching, server):
    half_done(fetching, server)
    assert fetching().read_bytes() == CONTENT
    assert server.served == HALF
    assert ranges(server) == [f"bytes={HALF}-"]
    assert server.headers[0]["If-Range"] == '"one"'
    assert sorted(path.name for path in fetching.folder.iterdir()) == ["file.bin", "file.bin.lock"]


def test_the_date_of_a_file_proves_its_version_where_there_is_no_etag(fetching, server):
    date = "Wed, 21 Oct 2015 07:28:00 GMT"
    half_done(fetching, server, ETag=None, Last_Modified=date)
    server.plan = [part(HALF, LAST, LAST + 1, CONTENT[HALF:], ETag=None, Last_Modified=date)]
    assert fetching().read_bytes() == CONTENT
    assert server.headers[0]["If-Range"] == date


@pytest.mark.parametrize(
    "headers",
    [{"ETag": 'W/"one"'}, {"ETag": 'W/"one"', "Last_Modified": "today"}, {"ETag": None}, {"ETag": "unquoted"}],
    ids=["weak", "weak with a date", "none", "malformed"],
)
def test_without_a_strong_validator_a_download_restarts(fetching, server, headers):
    half_done(fetching, server, **headers)
    assert fetching().read_bytes() == CONTENT
    assert ranges(server) == [None]


def test_another_version_is_fetched_from_its_first_byte(fetching, server):
    server.content = OTHER
    half_done(fetching, server)
    server.content, server.etag = CONTENT, '"two"'
    assert fetching().read_bytes() == CONTENT
    assert server.served == len(CONTENT)


LIES = {
    "shifted by one": part(HALF - 1, LAST, LAST + 1, CONTENT[HALF - 1 :]),
    "shifted with its right end": part(HALF + 1, LAST, LAST + 1, CONTENT[HALF + 1 :]),
    "from the start": part(0, LAST, LAST + 1, CONTENT),
    "not to the end": part(HALF, LAST - 1, LAST + 1, CONTENT[HALF:-1]),
    "not to the end, without a length": part(HALF, LAST - 1, LAST + 1, CONTENT[HALF:-1], Content_Length=None),
    "another total": part(HALF, LAST + 1, LAST + 2, CONTENT[HALF:] + b"x"),
    "unknown total": part(HALF, LAST, "*", CONTENT[HALF:]),
    "another etag": part(HALF, LAST, LAST + 1, OTHER[HALF:], ETag='"two"'),
    "no etag": part(HALF, LAST, LAST + 1, OTHER[HALF:], ETag=None),
    "weak etag": part(HALF, LAST, LAST + 1, OTHER[HALF:], ETag='W/"one"'),
    "another date": part(HALF, LAST, LAST + 1, OTHER[HALF:], Last_Modified="Thu, 01 Jan 2026 00:00:00 GMT"),
    "no range": status(206, CONTENT[HALF:], ETag='"one"'),
    "a broken range": status(206, CONTENT[HALF:], ETag='"one"', Content_Range="bytes one-two/three"),
    "another length": part(HALF, LAST, LAST + 1, CONTENT[HALF:-5]),
    "several parts": status(206, CONTENT[HALF:], ETag='"one"', Content_Type="multipart/byteranges"),
    "not satisfiable": status(416, Content_Range=f"bytes */{LAST + 1}"),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_continuation_that_does_not_fit_is_discarded(fetching, server, lie, logged):
    half_done(fetching, server)
    server.plan = [lie, status(404)]
    fetching.refusal()
    assert not fetching.part.exists()
    half_done(fetching, server)
    server.plan = [lie, honest]
    assert fetching().read_bytes() == CONTENT
    assert ranges(server) == [f"bytes={HALF}-", None]
    assert "after resuming" not in logged()  # it was not the digest that found out


@pytest.mark.parametrize("wrong", [OTHER[HALF:], CONTENT[HALF:-1] + b"x"])
def test_a_continuation_with_wrong_bytes_is_fetched_once_from_zero(fetching, server, wrong):
    half_done(fetching, server)
    server.plan = [part(HALF, LAST, LAST + 1, wrong), honest]
    assert fetching().read_bytes() == CONTENT
    assert ranges(server) == [f"bytes={HALF}-", None]


def test_a_resumed_download_restarts_only_once(fetching, server):
    half_done(fetching, server)
    server.content = OTHER
    error = fetching.refusal()
    assert ranges(server) == [f"bytes={HALF}-", None]
    assert error.temporary is False
    assert fetching.rejected.read_bytes() == OTHER


@pytest.mark.parametrize("kept", [bytes(HALF), OTHER], ids=["damaged", "complete but wrong"])
def test_wrong_kept_bytes_are_not_used(fetching, server, kept):
    half_done(fetching, server)
    fetching.part.write_bytes(kept)
    assert fetching().read_bytes() == CONTENT
    assert ranges(server)[-1] is None


CHANGES = ({"url": "http://other/"}, {"etag": 5}, {"total": "5"}, {"total": 5}, {"new": 5})


@pytest.mark.parametrize("note", [None, b"", b"[]", b"\xff\xfe", *CHANGES])
def test_kept_bytes_without_a_valid_version_are_not_used(fetching, server, note):
    half_done(fetching, server)
    if isinstance(note, dict):
        note = json.dumps(json.loads(fetching.note.read_text()) | note).encode()
    fetching.note.unlink()
    if note is not None:
        fetching.note.write_bytes(note)
    assert fetching().read_bytes() == CONTENT
    assert ranges(server) == [None]


def test_a_failing_mirror_keeps_the_bytes_of_another(fetching, server, start):
    half_done(fetching, server)
    refusing = start()
    refusing.plan = [status(404)]
    fetching.mirrors = [refusing.url, server.url]
    assert fetching().read_bytes() == CONTENT
    assert server.served == HALF


def test_a_download_killed_before_the_verification_needs_no_server(fetching, server):
    half_done(fetching, server)
    fetching.part.write_bytes(CONTENT)
    server.plan = [hang]
    assert fetching().read_bytes() == CONTENT
    assert server.headers == []


def test_without_a_digest_a_download_always_restarts(fetching, server):
    fetching.spec = FileSpec(name="file.bin")
    server.plan = [cut(HALF), honest]
    assert fetching().read_bytes() == CONTENT
    assert ranges(server) == [None, None]


@pytest.mark.fast_rows(*map(str, range(12)))
@pytest.mark.parametrize("seed", range(40))
def test_no_mixture_of_faults_gives_a_wrong_file(fetching, server, seed):
    """Either the right file or none, and never a partial file that a later run cannot overcome."""
    choose = random.Random(seed)
    point = choose.randrange(1, LAST)
    faults = [
        cut(point), cut(point, ETag='"two"'), chunked(point, ended=False), status(503), status(416),
        *LIES.values(), honest,
    ]  # fmt: skip

    def flipped(handler):
        handler.server.content = choose.choice([CONTENT, OTHER])
        honest(handler)
        handler.server.content = CONTENT

    server.plan = [choose.choice([*faults, flipped]) for _ in range(8)] + [honest]
    fetching.limits = TransferLimits(tries=2, backoff_first_s=0.001, backoff_max_s=0.001)
    for _ in range(10):
        with suppress(Unavailable):
            fetching()
            break
        assert not fetching.file.exists()
    assert fetching.file.read_bytes() == CONTENT
