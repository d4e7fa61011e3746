import pytest
from support import s3

from perennial.storage import s3 as store


@pytest.fixture(scope="module")
def server():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3.CREDENTIALS.items():
            patch.setenv(name, value)
        s3.share_loader(patch)
        with s3.moto() as url:
            yield url


@pytest.fixture
def bucket(server, monkeypatch, request):
    """The client of an empty bucket, which the environment leads to; its name is `bucket.name`."""
    for name, value in {**s3.CREDENTIALS, "AWS_ENDPOINT_URL": server}.items():
        monkeypatch.setenv(name, value)
    client = s3.create_bucket(server, name := f"bucket-{abs(hash(request.node.nodeid))}")
    client.name = name
    return client


@pytest.fixture
def proxy(bucket, server, monkeypatch):
    """A proxy with faults before the server; retries pause shortly."""
    proxy = s3.Proxy(server)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    monkeypatch.setattr(store, "PAUSE_S", 0.001)
    monkeypatch.setattr(store, "TRIES_INSIDE", 1)
    yield proxy
    proxy.end()
