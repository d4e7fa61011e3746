"""Response bodies that are truncated, too long or wrong."""

import gzip
import random
import re

import pytest
from data.downloads.fault_server import CONTENT, OTHER, chunked, cut, honest, sha256, status

from perennial.data.downloads.spec import FileSpec

POINTS = random.Random(2).sample(range(1, len(CONTENT)), 8)


@pytest.mark.parametrize("count", POINTS)
def test_a_body_that_is_cut_is_resumed(fetching, server, count):
    server.plan = [cut(count), honest]
    assert fetching().read_bytes() == CONTENT
    assert server.served == len(CONTENT)


WITHOUT_A_LENGTH = [
    *(([cut(count, Content_Length=None), honest], 2) for count in POINTS[:5]),
    *(([chunked(count, ended=False), honest], 2) for count in (1, len(CONTENT) // 2, len(CONTENT) - 1)),
    ([chunked(len(CONTENT), ended=False)], 1),
    ([chunked(len(CONTENT), ended=True)], 1),
]


@pytest.mark.parametrize(("plan", "requests"), WITHOUT_A_LENGTH)
def test_a_body_without_a_length_is_fetched_on_until_all_of_its_bytes_are_there(
    fetching, server, plan, requests
):
    server.plan = list(plan)
    assert (fetching().read_bytes(), len(server.asked)) == (CONTENT, requests)


def test_a_body_that_is_always_truncated_is_reported_in_bytes(fetching, server):
    server.plan = [cut(4100)]
    error = fetching.refusal()
    assert error.temporary
    assert re.search(r"got 4,100 of 300,000 bytes.*\(3 tries\)", str(error))
    assert not fetching.file.exists()


def test_tries_that_make_progress_do_not_count(fetching, server):
    fetching.limit(progress_bytes=10_000, backoff_first_s=0.001, backoff_max_s=0.001)

    def a_little(handler):
        first = int(handler.headers.get("Range", "bytes=0-")[6:-1])
        rest = {"Content_Range": f"bytes {first}-299999/300000"} if first else {}
        handler.head(206 if first else 200, Content_Length=300_000 - first, ETag='"one"', **rest)
        handler.send(CONTENT[first : first + 20_000])

    server.plan = [a_little]
    assert fetching().read_bytes() == CONTENT
    assert (len(server.asked), server.served) == (15, 300_000)


@pytest.mark.parametrize("position", [0, 150_000, len(CONTENT) - 1])
def test_one_flipped_bit_is_reported_with_both_digests_and_the_file_kept(fetching, server, position):
    wrong = bytearray(CONTENT)
    wrong[position] ^= 1
    server.content = bytes(wrong)
    error = str(fetching.refusal())
    assert f"sha256 {sha256(wrong)}, expected sha256 {sha256(CONTENT)}" in error
    assert f"file kept as {fetching.rejected}" in error
    assert fetching.rejected.read_bytes() == wrong
    assert not fetching.file.exists()
    assert not fetching.part.exists()
    assert len(server.asked) == 1


@pytest.mark.parametrize("length", [len(CONTENT) + 1, 10**15])
def test_a_body_with_a_too_large_content_length_is_hardly_read(fetching, server, length):
    server.plan = [cut(len(CONTENT), Content_Length=length)]
    assert f"{length:,} bytes, expected 300,000" in str(fetching.refusal())
    assert fetching.rejected.stat().st_size <= 1 << 16


def test_reading_stops_beyond_the_expected_size(fetching, server):
    def endless(handler):
        handler.head(200, Content_Length=None)
        while True:
            handler.send(OTHER)

    server.plan = [endless]
    assert "more than 300,000 bytes, expected 300,000" in str(fetching.refusal())
    assert fetching.rejected.stat().st_size < 300_000 + (1 << 17)


@pytest.mark.parametrize("announced", [True, False])
def test_a_page_instead_of_a_gzip_file_is_recognised(fetching, server, announced):
    page = b"\n<html><body>Quota exceeded</body></html>"
    fetching.spec = FileSpec(name="images.gz", bytes=9, sha256="0" * 64, content_sha256="1" * 64)
    server.plan = [status(200, page, **({} if announced else {"Content_Length": None}))]
    error = fetching.refusal()
    assert ("not gzip, starts with '<html" in str(error), error.temporary) == (True, False)
    assert fetching.rejected.read_bytes() == page


def test_control_characters_of_a_wrong_file_are_not_printed(fetching, server):
    server.content = b"<\x1b[2J\r\x07"
    assert "\x1b" not in str(fetching.refusal())


def test_a_recompressed_gzip_file_is_accepted(fetching, server):
    first, again = (gzip.compress(CONTENT, level, mtime=0) for level in (9, 0))
    fetching.spec = FileSpec(
        name="file.gz", bytes=len(first), sha256=sha256(first), content_sha256=sha256(CONTENT)
    )
    server.content = again
    assert fetching().read_bytes() == again


def test_a_gzip_bomb_is_not_decompressed_to_its_end(fetching, server):
    bomb = gzip.compress(bytes(50_000_000), mtime=0)
    fetching.spec = FileSpec(
        name="file.gz", bytes=len(bomb), sha256="0" * 64, content_sha256=sha256(bytes(50_000_000))
    )
    server.content = bomb
    assert f"sha256 {sha256(bomb)}" in str(fetching.refusal())


def test_a_content_encoding_is_refused(fetching, server):
    server.plan = [status(200, gzip.compress(CONTENT), Content_Encoding="gzip")]
    assert "Content-Encoding 'gzip'" in str(fetching.refusal())
    assert server.headers[0]["Accept-Encoding"] == "identity"


def test_a_gzip_file_declared_as_encoded_is_stored_as_it_is(fetching, server):
    content = gzip.compress(CONTENT, mtime=0)
    fetching.spec = FileSpec(name="file.gz", bytes=len(content), sha256=sha256(content))
    server.plan = [status(200, content, Content_Encoding="gzip")]
    assert fetching().read_bytes() == content


def test_a_first_file_without_a_length_is_not_trusted(fetching, server):
    fetching.spec = FileSpec(name="file.bin")
    server.plan = [cut(1000, Content_Length=None)]
    assert "Content-Length" in str(fetching.refusal())
