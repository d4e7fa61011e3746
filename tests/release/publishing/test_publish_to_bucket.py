"""Versions in buckets: published, rolled back, raced for, killed; mostly in S3, against moto over HTTP."""

import itertools
from pathlib import Path

import pytest
from support.exports import write_export
from support.s3 import CREDENTIALS, SECRET, Handler
from typer.testing import CliRunner

from perennial.base import files
from perennial.base.errors import DataError, PerennialError, QualityError
from perennial.base.storage import open_store
from perennial.cli import app
from perennial.release.publishing import fetch_version
from perennial.release.publishing import publish_to_bucket as publishing
from perennial.release.publishing.publish import verified_digests
from perennial.release.publishing.version_layout import AllowedExport


@pytest.fixture
def url(bucket):
    return f"s3://{bucket.name}/models/digits"


@pytest.fixture
def make(load, tmp_path):
    """Makes an export in a folder of its own."""
    config, numbers = load(), itertools.count()

    def make(model, card=""):
        export = tmp_path / f"export-{next(numbers)}"
        write_export(config, model).rename(export)
        if card:
            (export / "README.md").write_text(card)
            (export / "assets.extra" / "files.json").unlink()
            files.write_json(export / "assets.extra" / "files.json", files.digests(export))
        return export

    return make


@pytest.fixture
def add(url, make):
    def add(model, card=""):
        export = make(model, card)
        return publishing.add(
            url, AllowedExport(export=export, digests=verified_digests(export), decision={"promote": True})
        )

    return add


def read(url):
    """The model that a reader gets."""
    version = fetch_version.find(url)
    assert version.record.files["saved_model.pb"]
    return version.store.get_bytes(f"{version.prefix}saved_model.pb")[0].decode().removeprefix("graph of ")


def keys(url):
    return [entry.key for entry in open_store(url).list()]


def test_versions_count_from_one_and_the_last_is_current(url, add):
    assert [add(model).version for model in "abc"] == [1, 2, 3]
    assert read(url) == "c"
    assert [key for key in keys(url) if key.startswith("3/")] == [
        "3/assets.extra/files.json", "3/assets.extra/model.json", "3/assets.extra/published.json",
        "3/assets/labels.txt", "3/saved_model.pb", "3/variables/variables.index",
    ]  # fmt: skip


def test_a_current_export_is_not_published_again(url, add):
    first, before = add("a"), keys(url)
    assert (add("a").moved, add("a").version, keys(url)) == (False, first.version, before)


def test_the_record_comes_after_the_files_and_before_the_pointer(add, proxy):
    add("a")
    puts = [
        path.partition("/digits/")[2] for method, path in proxy.asked if method == "PUT" and "/digits/" in path
    ]
    assert puts[-3:] == ["1/saved_model.pb", "1/assets.extra/published.json", "current"]


def test_a_rolled_back_model_is_not_published_again(url, add):
    for model in "abc":
        add(model)
    assert (publishing.roll_back(url, 1).version, read(url)) == (1, "a")
    for model in "bc":
        with pytest.raises(QualityError, match=r"version [23] .*rolled back; current stays 1"):
            add(model, card="another card")
    assert (add("d").version, read(url)) == (4, "d")
    assert (publishing.roll_back(url, None).version, publishing.roll_back(url, 3).version) == (1, 3)
    assert (read(url), add("c").moved) == ("c", False)


def test_a_rollback_to_the_current_version_stops_a_killed_publish_from_going_on(url, add, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    add("a")
    with monkeypatch.context() as patch:
        patch.setattr(publishing, "_point", killed)
        with pytest.raises(KeyboardInterrupt):
            add("b")
    assert publishing.roll_back(url, 1).moved is False
    with pytest.raises(QualityError, match=r"version 2 .*rolled back; current stays 1"):
        add("b")


@pytest.mark.parametrize("version", [None, 4])
def test_a_missing_version_cannot_be_rolled_back_to(url, add, version):
    add("a")
    with pytest.raises(DataError, match=r"\[1\], current is 1; nothing was changed"):
        publishing.roll_back(url, version)


def test_a_damaged_version_cannot_be_rolled_back_to(url, add):
    add("a")
    add("b")
    open_store(url).put("1/variables/variables.index", b"damaged")
    with pytest.raises(DataError, match=r"1/variables/variables.index has the SHA-256"):
        publishing.roll_back(url, None)
    assert read(url) == "b"


@pytest.mark.parametrize("rolled_back", [False, True])
def test_who_publishes_later_than_another_is_told_and_undoes_nothing(url, add, monkeypatch, rolled_back):
    for model in "ab":
        add(model)
    upload = publishing._upload

    def slow(*arguments):
        monkeypatch.setattr(publishing, "_upload", upload)
        publishing.roll_back(url, 1) if rolled_back else add("faster")
        upload(*arguments)

    monkeypatch.setattr(publishing, "_upload", slow)
    made = "version 1 " if rolled_back else "version 4 .*; version 3 is complete but"
    with pytest.raises(PerennialError, match=f"another publisher made {made}"):
        add("slower")
    assert read(url) == ("a" if rolled_back else "faster")


def test_an_object_of_another_program_in_the_version_is_refused(url, add):
    add("a")
    open_store(url).put("claims/2", b"{}")
    open_store(url).put("3/other", b"")
    export_is_version = add("b").version
    assert export_is_version == 4
    with pytest.raises(DataError, match="differs from"):
        publishing._upload(open_store(url), 3, Path(), {})


def test_an_export_that_changes_during_the_upload_is_refused(url, add, monkeypatch):
    add("a")
    monkeypatch.setattr(publishing.files, "digests", lambda _: {})
    with pytest.raises(DataError, match=r"current is unchanged"):
        publishing.add(url, changed())
    assert read(url) == "a"


def changed():
    export = Path("models/changed")
    files.write_bytes(export / "saved_model.pb", b"graph of b")
    files.write_json(export / "assets.extra" / "model.json", {})
    digests = {"saved_model.pb": files.sha256(export / "saved_model.pb")}
    return AllowedExport(export=export, digests=digests, decision={})


def test_a_store_that_ignores_conditions_is_reported(url, add, proxy, monkeypatch, caplog):
    ask = Handler.ask

    def ignoring(handler, body):
        for name in ("If-None-Match", "If-Match"):
            del handler.headers[name]
        return ask(handler, body)

    monkeypatch.setattr(Handler, "ask", ignoring)
    assert (add("a").version, add("b").version, read(url)) == (1, 2, "b")
    assert "ignores conditional writes: two publishers" in caplog.text


def test_a_publish_that_stops_at_any_write_leaves_a_whole_version_and_goes_on_under_its_number(
    url, add, make, monkeypatch
):
    add("first")
    export, store = make("second"), type(open_store(url))
    allowed = AllowedExport(export=export, digests=verified_digests(export), decision={})
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
                version = publishing.add(url, allowed).version
                break
            except KeyboardInterrupt:
                stops += 1
        assert read(url) == "first"
        assert fetch_version.fetch(url, Path("reader")).version == 1
    assert (version, read(url), stops > 2) == (2, "second", True)


def test_no_secret_is_printed(url, load, proxy, tmp_path, monkeypatch):
    """Neither by the commands, nor in what they write, nor with --debug."""
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
