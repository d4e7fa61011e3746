"""A source in S3 over HTTP, with a proxy that counts and fails requests."""

import pytest
from support import raw, s3
from support.s3 import server

from perennial.base import retries

__all__ = ["server"]


@pytest.fixture
def proxy(server, monkeypatch):
    proxy = s3.Proxy(server)
    for name, value in {**s3.CREDENTIALS, "AWS_ENDPOINT_URL": proxy.url}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(retries, "STORE_PAUSE_S", 0.001)
    yield proxy
    proxy.end()


class Bucket:
    """An empty bucket; what is put under `photos/` is the source `url`."""

    def __init__(self, client, proxy, name):
        self.client, self.name, self.proxy = client, name, proxy
        self.url = f"s3://{name}/photos"
        client.create_bucket(Bucket=name)

    def put(self, name, content):
        self.client.put_object(Bucket=self.name, Key=f"photos/{name}", Body=content)

    def put_folder(self, folder):
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            self.put(file.relative_to(folder).as_posix(), file.read_bytes())

    def requests(self):
        """Objects that were asked for since the last call, and the number of other requests."""
        return self.proxy.requests("/photos/")


@pytest.fixture(scope="module")
def client(server):
    return s3.create_bucket(server)


@pytest.fixture
def bucket(client, proxy, request):
    return Bucket(client, proxy, f"bucket-{abs(hash(request.node.nodeid))}")


@pytest.fixture
def photos(bucket, tmp_path):
    """A bucket of 2 pictures of each of three classes, with the folder that they come from as `folder`."""
    bucket.folder = tmp_path / "photos"
    raw.write_pictures(bucket.folder, each=2)
    bucket.put_folder(bucket.folder)
    return bucket
