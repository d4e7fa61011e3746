"""Versions in buckets: published, rolled back, raced for, killed; mostly in S3, against moto over HTTP."""

import itertools
from pathlib import Path

import pytest
from support.exports import Place, write_export
from support.s3 import CREDENTIALS, SECRET, Handler
from typer.testing import CliRunner

from perennial.base.errors import DataError, PerennialError, QualityError
from perennial.base.storage import open_store
from perennial.cli import app
from perennial.release.publishing import fetch_version
from perennial.release.publishing import publish_to_bucket as publishing


@pytest.fixture
def place(load, bucket):
    return Place(load(), f"s3://{bucket.name}/models/digits", publishing)


def test_the_record_comes_after_the_files_and_before_the_pointer(place, proxy):
    place.add("a")
    puts = [
        path.partition("/digits/")[2] for method, path in proxy.asked if method == "PUT" and "/digits/" in path
    ]
    added = [f"1/assets.extra/{name}.json" for name in ("provenance", "published")]
    assert puts[-4:] == ["1/saved_model.pb", *added, "current"]


def test_a_rollback_to_the_current_version_stops_a_killed_publish_from_going_on(place, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    place.add("a")
    with monkeypatch.context() as patch:
        patch.setattr(publishing, "_point", killed)
        with pytest.raises(KeyboardInterrupt):
            place.add("b")
    assert place.roll_back(1).moved is False
    with pytest.raises(QualityError, match=r"version 2 .*rolled back; current stays 1"):
        place.add("b")


@pytest.mark.parametrize("rolled_back", [False, True])
def test_who_publishes_later_than_another_is_told_and_undoes_nothing(place, monkeypatch, rolled_back):
    for model in "ab":
        place.add(model)
    upload = publishing._upload

    def slow(*arguments):
        monkeypatch.setattr(publishing, "_upload", upload)
        place.roll_back(1) if rolled_back else place.add("faster")
        upload(*arguments)

    monkeypatch.setattr(publishing, "_upload", slow)
    made = "version 1 " if rolled_back else "version 4 .*; version 3 is complete but"
    with pytest.raises(PerennialError, match=f"another publisher made {made}"):
        place.add("slower")
    assert place.read() == ("a" if rolled_back else "faster")


def test_an_object_of_another_program_in_the_version_is_refused(place):
    place.add("a")
    open_store(place.url).put("claims/2", b"{}")
    open_store(place.url).put("3/other", b"")
    assert place.add("b").version == 4
    with pytest.raises(DataError, match="differs from"):
        publishing._upload(open_store(place.url), 3, Path(), {})


def test_a_store_that_ignores_conditions_is_reported(place, proxy, monkeypatch, caplog):
    ask = Handler.ask

    def ignoring(handler, body):
        for name in ("If-None-Match", "If-Match"):
            del handler.headers[name]
        return ask(handler, body)

    monkeypatch.setattr(Handler, "ask", ignoring)
    assert (place.add("a").version, place.add("b").version, place.read()) == (1, 2, "b")
    assert "ignores conditional writes: two publishers" in caplog.text


def test_a_publish_that_stops_at_any_write_leaves_a_whole_version_and_goes_on_under_its_number(
    place, monkeypatch
):
    place.add("first")
    allowed, store = place.allowed("second"), type(open_store(place.url))
    put, stops = store.put, 0
    for stop in itertools.count(1):
        writes = itertools.count(1)

        def stopping(*arguments, writes=writes, stop=stop, **options):
            if next(writes) == stop:
                raise KeyboardInterrupt
            return put(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(store, "put", stopping)
            try:
                version = publishing.add(place.url, allowed).version
                break
            except KeyboardInterrupt:
                stops += 1
        assert (place.read(), fetch_version.fetch(place.url, Path("reader")).version) == ("first", 1)
    assert (version, place.read(), stops > 2) == (2, "second", True)


def test_no_secret_is_printed(place, load, proxy, tmp_path, monkeypatch):
    """Neither by the commands, nor in what they write, nor with --debug."""
    url = place.url
    write_export(load(**{"publish.url": url}))
    proxy.plan = ["500"]
    commands = [
        ["publish", "--json"],
        ["fetch", url, "--to", "fetched", "--json"],
        ["publish", "--rollback", "7", "--debug"],
        ["fetch", f"{url}/7", "--debug"],
        ["publish", "--to", f"s3://user:{SECRET}@bucket/x"],
    ]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = [CliRunner().invoke(app, each) for each in commands]
    assert [each.exit_code for each in done] == [0, 0, 3, 3, 2]
    printed = "".join(each.output for each in done)
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for secret in (SECRET, CREDENTIALS["AWS_ACCESS_KEY_ID"]):
        assert (secret in printed, secret.encode() in written) == (False, False)
