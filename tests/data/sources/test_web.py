"""One archive on a web server as a source: noticed by its headers, fetched when it is as pinned."""

import pytest
from data.downloads.fault_server import Server, honest, status
from support import raw

from perennial.base import files
from perennial.base.errors import DataError, PerennialError
from perennial.data import archives
from perennial.data.downloads.spec import TransferLimits
from perennial.data.sources.pin import SourceChanged, pin
from perennial.stages.download import download

QUICK = TransferLimits(
    connect_s=300, stall_s=300, rate_window_s=300, tries=3, backoff_first_s=0.01, backoff_max_s=0.02
)
RAW = "images.tar"


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    raw.write_pictures(tmp_path / "photos", each=2)
    archives.pack(tmp_path / "photos", tmp_path / "photos.tar")
    server.content = (tmp_path / "photos.tar").read_bytes()
    yield server
    server.end()


@pytest.fixture
def config(load, server):
    return load(**{"dataset.name": "image_folder", "dataset.url": f"{server.url}my%20photos.tar"})


def fetched(config):
    download(config, QUICK)
    return (config.paths.raw / RAW).read_bytes()


def test_an_archive_is_pinned_by_its_headers_alone_and_fetched_once(config, server):
    found = pin(config)
    assert (found.objects, found.bytes, server.served) == (1, len(server.content), 0)
    fetched(config)
    fetched(config)
    assert server.served == len(server.content)


def test_a_new_archive_is_noticed_and_fetched(config, server):
    before = pin(config)
    fetched(config)
    server.content, server.etag = server.content + bytes(10240), '"two"'
    with pytest.raises(SourceChanged):
        download(config, QUICK)
    assert pin(config) != before
    assert fetched(config) == server.content


def test_an_archive_that_changes_between_the_listing_and_the_transfer_is_refused(config, server):
    pin(config)

    def changed(handler):
        server.content, server.etag = bytes(len(server.content)), '"two"'
        honest(handler)

    server.plan = [honest, changed, honest]
    with pytest.raises(PerennialError, match="the file changed") as caught:
        download(config, QUICK)
    assert (caught.value.exit_code, config.paths.raw.exists()) == (1, False)


def test_without_an_etag_the_time_of_change_counts(config, server):
    def dated(handler):
        length = len(server.content)
        handler.head(200, Content_Length=length, Last_Modified="Sun, 22 Nov 2026 10:00:00 GMT")
        handler.send(server.content)

    server.plan = [dated]
    pin(config)
    assert fetched(config) == server.content


@pytest.mark.parametrize("missing", ["ETag", "Content-Length"])
def test_a_server_that_does_not_say_when_a_file_changes_is_refused(config, server, missing):
    headers = {"Content_Length": 10, "ETag": '"one"'}
    headers.pop(missing.replace("-", "_"))
    server.plan = [lambda handler: handler.head(200, **headers)]
    with pytest.raises(DataError, match=missing):
        pin(config)


@pytest.mark.parametrize(("code", "kind"), [(404, DataError), (403, DataError), (503, PerennialError)])
def test_a_server_that_refuses_is_named(config, server, code, kind):
    server.plan = [status(code)]
    with pytest.raises(PerennialError, match=f"{server.url}.*HTTP {code}") as caught:
        pin(config)
    assert type(caught.value) is kind


def test_a_password_in_the_environment_is_sent_and_never_written(config, server, monkeypatch, caplog):
    monkeypatch.setenv("PERENNIAL_BASE_URL_USER", "me")
    monkeypatch.setenv("PERENNIAL_BASE_URL_PASSWORD", "planted-secret")
    pin(config)
    fetched(config)
    assert all("Authorization" in headers for headers in server.headers)
    written = [path.read_bytes() for path in files.Path().rglob("*") if path.is_file()]
    assert not any(b"planted-secret" in content for content in written)
    assert "planted-secret" not in caplog.text
