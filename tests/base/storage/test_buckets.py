"""What the stores of all providers do over HTTP, behind a proxy that fails requests."""

import hashlib
import random
import socketserver
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from support import s3, stores

from perennial.base import retries
from perennial.base.errors import ConfigError, DataError, PerennialError
from perennial.base.storage import Changed, open_store, together
from perennial.base.storage import bucket as module

CONTENT = random.Random(0).randbytes(3 << 20)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
LARGE = CONTENT * 2  # more than Azure's client reads at once
FIRST_OK = {"s3": [], "gs": [], "azure": [None]}


@pytest.fixture(params=stores.PROVIDERS)
def bucket(request, make_bucket):
    return make_bucket(request.param)


@pytest.fixture
def proxy(bucket):
    bucket.proxy.scheme = bucket.provider.scheme
    return bucket.proxy


@pytest.fixture
def store(bucket):
    return open_store(f"{bucket.url}/some/prefix")


@pytest.fixture
def read(proxy, monkeypatch):
    """The offset of the first byte of each read; the faults of `proxy.plan` meet reads alone."""
    seen, forward = [], s3.Handler.forward

    def noting(handler):
        asked = handler.headers.get("x-ms-range") or handler.headers.get("Range") or "bytes=0-"
        if proxy.only in f"GET {handler.path}":
            seen.append(int(asked.removeprefix("bytes=").partition("-")[0]))
        forward(handler)

    proxy.only = "GET /download" if proxy.scheme == "gs" else "GET"
    monkeypatch.setattr(s3.Handler, "do_GET", noting)
    return seen


def test_objects_beside_the_prefix_are_not_listed(bucket, store):
    store.put("a", b"1")
    for key in ("some/prefixed", "some/prefix", "some/prefix/folder/"):
        bucket.put(key, b"")
    assert [entry.key for entry in store.list()] == ["a"]


def test_a_store_at_the_root_of_a_bucket(bucket):
    store = open_store(bucket.url)
    store.put("a", b"1")
    assert [(entry.key, store.get_bytes(entry.key)[0]) for entry in store.list()] == [("a", b"1")]


@pytest.mark.slow
def test_a_listing_holds_every_page_in_the_order_of_the_keys(bucket, proxy, store):
    number = 5203 if proxy.scheme == "azure" else 1203  # pages have 5000, and 1000
    keys = [f"{each:04}/x" for each in range(number)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda key: bucket.put(f"some/prefix/{key}", b"x"), keys))
    assert [entry.key for entry in store.list()] == keys
    assert [entry.key for entry in store.list(f"{number - 3}"[:2])] == keys[-(number % 100) :]
    assert store.numbers() == tuple(range(number))


def test_the_md5_of_the_content_is_listed(store):
    store.put("key", CONTENT)
    assert [entry.md5 for entry in store.list()] == [hashlib.md5(CONTENT).hexdigest()]


def test_a_conditional_write_whose_answer_was_lost_counts_as_done(store, proxy):
    proxy.plan = ["lost"]
    put = store.put("key", b"unique", if_none_match=True)
    proxy.plan = ["lost"]
    assert store.put("key", b"next", if_match=put.etag).etag == store.get_bytes("key")[1].etag
    assert [fault for fault, *_ in proxy.failed] == ["lost"] * 2


def test_the_store_is_probed_for_conditions_once(store, proxy):
    assert store.conditional() is True
    assert store.conditional() is True
    assert len(proxy.asked) == 3


def test_a_large_file_is_put_in_parts(store, tmp_path, monkeypatch, proxy):
    monkeypatch.setattr(module, "SINGLE_BYTES", 1 << 20)
    monkeypatch.setattr(module, "PART_BYTES", 5 << 20)
    (tmp_path / "large").write_bytes(CONTENT * 4)
    proxy.plan = ["500", None, "503", "reset", None]
    if proxy.scheme != "gs":  # its server appends a part again; Google's ignores what it has
        proxy.plan += ["lost", "short"]
    put = store.put("large", tmp_path / "large", if_none_match=True)
    assert store.get_bytes("large")[0] == CONTENT * 4
    assert put.etag == next(store.list()).etag
    assert len(proxy.failed) >= 3


def test_parts_that_a_server_puts_together_wrongly_are_found_out(make_bucket, tmp_path, monkeypatch):
    bucket = make_bucket("gs")
    monkeypatch.setattr(module, "SINGLE_BYTES", 1)
    monkeypatch.setattr(module, "PART_BYTES", 1 << 20)
    (tmp_path / "large").write_bytes(CONTENT)
    bucket.proxy.plan = [None, "lost"]
    with pytest.raises(DataError, match="put other bytes together"):
        open_store(bucket.url).put("large", tmp_path / "large")


@pytest.mark.parametrize(
    "plan", [[None, None, "gone"], [None, None, None, "500", "gone"]], ids=["in", "at the end"]
)
def test_an_upload_that_the_server_ended_begins_again(make_bucket, tmp_path, monkeypatch, plan):
    bucket = make_bucket("gs")
    monkeypatch.setattr(module, "SINGLE_BYTES", 1)
    monkeypatch.setattr(module, "PART_BYTES", 1 << 20)
    monkeypatch.setitem(s3.FAULTS, "gone", s3.refused(410, "Gone"))
    (tmp_path / "large").write_bytes(CONTENT)
    bucket.proxy.plan = list(plan)
    store = open_store(bucket.url)
    store.put("large", tmp_path / "large", if_none_match=True)
    assert store.get_bytes("large")[0] == CONTENT


def test_the_lost_answer_to_the_end_of_an_upload_in_parts_is_found_out(store, tmp_path, monkeypatch, proxy):
    monkeypatch.setattr(module, "SINGLE_BYTES", 1)
    (tmp_path / "large").write_bytes(CONTENT)
    proxy.plan = [None, None, "lost"]  # begin or first part, part, end; Google's last part is the end
    if store.url.startswith(("gs", "azure")):
        proxy.plan.pop(0)
    store.put("large", tmp_path / "large")
    assert store.get_bytes("large")[0] == CONTENT
    assert len(proxy.failed) == 1


@pytest.mark.fast_rows("s3-503", "s3-lost", "gs-500", "azure-reset")
@pytest.mark.parametrize("fault", s3.FAST_FAULTS)
def test_a_request_that_fails_is_tried_again(store, proxy, tmp_path, fault):
    proxy.plan = [fault] * 3
    store.put("key", CONTENT)
    proxy.plan = [fault] * 3
    store.get("key", tmp_path / "file", sha256=SHA256)
    proxy.plan = [fault] * 3
    assert [entry.size for entry in store.list()] == [len(CONTENT)]
    assert len(proxy.failed) == 9


@pytest.mark.fast_rows("s3-stalled", "s3-silent", "azure-stalled")
@pytest.mark.parametrize("fault", s3.FAULTS_THAT_WAIT)
def test_a_server_that_stalls_is_asked_again(bucket, proxy, tmp_path, fault, monkeypatch):
    monkeypatch.setattr(module, "STALL_S", 1)
    store = open_store(bucket.url)
    store.put("key", CONTENT)
    proxy.plan = [fault]
    store.get("key", tmp_path / "file", sha256=SHA256)
    assert len(proxy.failed) == 1


@pytest.mark.fast_rows("s3-0.2", "azure-0.2")
@pytest.mark.parametrize("rate", [0.05, 0.2, 0.5])
def test_many_objects_come_whole_through_many_failures(store, proxy, tmp_path, rate):
    contents = {f"{number:03}": random.Random(number).randbytes(number * 1000) for number in range(100)}
    proxy.rate, proxy.faults = rate, s3.FAST_FAULTS
    list(together(store, lambda key: store.put(key, contents[key]), contents))
    list(together(store, lambda entry: store.get(entry.key, tmp_path / entry.key), store.list()))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name[0] != "."} == contents
    assert proxy.failed


def test_a_body_continues_where_it_broke_off(store, proxy, read, tmp_path):
    store.put("key", LARGE)
    proxy.plan = FIRST_OK[proxy.scheme] + ["short"]
    store.get("key", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == LARGE
    assert read[-1] >= len(LARGE) // 2


@pytest.mark.fast_rows("s3", "gs")
def test_the_next_call_continues_an_interrupted_one_of_the_same_version(store, proxy, read, tmp_path):
    etag = store.put("key", LARGE).etag
    proxy.plan = FIRST_OK[proxy.scheme] + ["short", *["500"] * retries.STORE_TRIES]
    with pytest.raises(PerennialError, match="try again later"):
        store.get("key", tmp_path / "file", if_match=etag)
    assert not (tmp_path / "file").exists()
    read.clear()
    store.get("key", tmp_path / "file", if_match=etag)
    assert (tmp_path / "file").read_bytes() == LARGE
    assert read[0] >= len(LARGE) // 2
    store.put("key", LARGE[::-1])
    with pytest.raises(Changed):
        store.get("key", tmp_path / "file", if_match=etag)
    assert (tmp_path / "file").read_bytes() == LARGE


@pytest.mark.fast_rows("s3")
def test_bytes_of_another_version_are_never_continued(store, proxy, read, tmp_path):
    etag = store.put("key", LARGE).etag
    proxy.plan = FIRST_OK[proxy.scheme] + ["short", *["500"] * retries.STORE_TRIES]
    with pytest.raises(PerennialError):
        store.get("key", tmp_path / "file", if_match=etag)
    other = store.put("key", LARGE[::-1])
    store.get("key", tmp_path / "file", if_match=other.etag)
    assert (tmp_path / "file").read_bytes() == LARGE[::-1]


def test_an_object_that_changes_while_it_is_read_is_refused(store, bucket, proxy, read, tmp_path, monkeypatch):
    store.put("key", LARGE)
    proxy.plan = FIRST_OK[proxy.scheme] + ["short"]
    changed = [lambda: bucket.put("some/prefix/key", LARGE[::-1])]
    monkeypatch.setattr(store._stopped, "wait", lambda _: changed.pop()() if changed else None)
    with pytest.raises(Changed):
        store.get("key", tmp_path / "file")
    assert not (tmp_path / "file").exists()


@pytest.mark.fast_rows("s3-digest0-damaged", "s3-digest1-part2", "gs-digest1-part2", "azure-digest1-part2")
@pytest.mark.parametrize("part", [b"damaged", CONTENT, CONTENT[:-7] + b"damaged", CONTENT + b"more"])
@pytest.mark.parametrize("digest", [{"sha256": SHA256}, {}])
def test_whatever_an_interrupted_call_left_the_file_is_right_and_alone(store, tmp_path, part, digest):
    etag = store.put("key", CONTENT).etag
    (tmp_path / ".file.part").write_bytes(part)
    (tmp_path / ".file.etag").write_text(etag)
    store.get("key", tmp_path / "file", if_match=etag, size=len(CONTENT), **digest)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [CONTENT]


def test_a_missing_bucket_is_named(bucket):
    missing = replace(bucket, name="not-there-1").url
    with pytest.raises(ConfigError, match=f"{missing}/.* does not exist; create it"):
        list(open_store(missing).list())


def test_a_server_that_is_not_there_is_named(bucket, monkeypatch):
    with socketserver.TCPServer(("127.0.0.1", 0), None) as free:
        url = f"http://127.0.0.1:{free.server_address[1]}"
    for name, value in bucket.provider.variables(url).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PerennialError, match="cannot be reached"):
        open_store(bucket.url).get_bytes("key")


def test_the_first_error_ends_the_others(store, proxy):
    def work(number):
        if number == 3:
            raise DataError("three")
        store.get_bytes("missing-while-the-server-fails")

    proxy.rate, proxy.faults = 1, ["503"]
    with pytest.raises(PerennialError):
        list(together(store, work, range(1000)))
    assert len(proxy.asked) < 1000
