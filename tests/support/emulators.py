"""Servers of Azure's and Google's storage protocols: azurite and fake-gcs-server, if this machine has them."""

import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

ACCOUNT = "devstoreaccount1"  # azurite's own, with its public key
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def azurite():
    """The program, by AZURITE or on PATH."""
    return os.environ.get("AZURITE") or shutil.which("azurite-blob")


def fake_gcs_server():
    """The program, by FAKE_GCS_SERVER or on PATH."""
    return os.environ.get("FAKE_GCS_SERVER") or shutil.which("fake-gcs-server")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def started(command, url):
    """Run a server until the block ends; the block begins when it answers."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(url, timeout=5)
                break
            except urllib.error.HTTPError:
                break
            except OSError:
                assert process.poll() is None, f"{command[0]} ended"
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def azure_server():
    if not azurite():
        pytest.skip("needs azurite: npm install azurite, and AZURITE=.../node_modules/.bin/azurite-blob")
    port = free_port()
    command = [
        azurite(),
        "--blobHost",
        "127.0.0.1",
        "--blobPort",
        str(port),
        "--inMemoryPersistence",
        "--silent",
    ]
    return started([*command, "--skipApiVersionCheck", "--disableTelemetry"], f"http://127.0.0.1:{port}")


def google_server():
    if not fake_gcs_server():
        pytest.skip("needs fake-gcs-server on PATH or in FAKE_GCS_SERVER")
    port = free_port()
    command = [fake_gcs_server(), "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1"]
    address = f"127.0.0.1:{port}"
    return started([*command, "-port", str(port), "-public-host", address], f"http://{address}")


class Azure:
    """What the tests of all stores need to know of Azure."""

    scheme, refused = "azure", "AZURE_STORAGE_CONNECTION_STRING"

    def variables(self, url):
        account = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY}"
        return {"AZURE_STORAGE_CONNECTION_STRING": f"{account};BlobEndpoint={url}/{ACCOUNT};"}

    def create(self, url, name):
        from azure.storage.blob import BlobServiceClient  # noqa: PLC0415 - slow

        text = self.variables(url)["AZURE_STORAGE_CONNECTION_STRING"]
        BlobServiceClient.from_connection_string(text).create_container(name)


class Google:
    """What the tests of all stores need to know of Google."""

    scheme, refused = "gs", "GOOGLE_APPLICATION_CREDENTIALS"

    def variables(self, url):
        return {"STORAGE_EMULATOR_HOST": url}

    def create(self, url, name):
        body = f'{{"name": "{name}"}}'.encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}/storage/v1/b?project=p", body, headers)
        urllib.request.urlopen(request).close()
