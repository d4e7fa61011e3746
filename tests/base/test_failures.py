"""The kinds of failures, by real errors of the packages that raise them."""

import errno
import http.client
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path

import boto3
import httpx
import pytest
import requests
import urllib3
from botocore.config import Config

from perennial.base import documents, failures
from perennial.base.errors import ConfigError, Failure, InputsChanged, Interrupted, PerennialError

CLOSED = "http://127.0.0.1:9/"  # nothing listens there
CALLS = {
    "urllib": lambda: urllib.request.urlopen(CLOSED),
    "http.client": lambda: http.client.HTTPConnection("127.0.0.1", 9).request("GET", "/"),
    "requests": lambda: requests.get(CLOSED, timeout=5),
    "httpx": lambda: httpx.get(CLOSED),
    "urllib3": lambda: urllib3.PoolManager(retries=False).request("GET", CLOSED),
    "boto3": lambda: boto3.client(
        "s3",
        endpoint_url=CLOSED,
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=Config(retries={"total_max_attempts": 1}),
    ).list_buckets(),
}


@pytest.mark.parametrize("client", CALLS)
def test_what_a_client_raises_about_its_connection_is_of_the_network(client):
    with pytest.raises(Exception) as raised:  # noqa: PT011 - each client has a class of its own
        CALLS[client]()
    assert failures.kind(raised.value) is Failure.NETWORK
    for how in ("__cause__", "__context__"):  # as Keras raises a plain exception while it handles one
        wrapped = Exception("of another package")
        setattr(wrapped, how, raised.value)
        assert failures.kind(wrapped) is Failure.NETWORK


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KeyError("x"), Failure.BUG),
        (MemoryError(), Failure.BUG),
        (FileNotFoundError(errno.ENOENT, "x"), Failure.BUG),
        (OSError("cannot identify image file"), Failure.BUG),  # as Pillow raises it
        (PermissionError(errno.EACCES, "x"), Failure.REFUSED),
        (OSError(errno.ENOSPC, "x"), Failure.DISK),
        (OSError(errno.EIO, "x"), Failure.DISK),
        (OSError(errno.EHOSTUNREACH, "x"), Failure.NETWORK),
        (TimeoutError(), Failure.NETWORK),
        (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), Failure.NETWORK),
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), Failure.REFUSED),
        (PerennialError("x"), Failure.OUTSIDE),
        (ConfigError("x"), Failure.REFUSED),
        (Interrupted("x"), Failure.INTERRUPTED),
        (InputsChanged("x"), Failure.CHANGED),
    ],
)
def test_other_errors(error, kind):
    assert failures.kind(error) is kind


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (PermissionError(errno.EACCES, "x"), Failure.REFUSED),
        (OSError(errno.ENOSPC, "x"), Failure.DISK),
        (ConnectionResetError(), Failure.NETWORK),
        (Interrupted("x"), Failure.INTERRUPTED),
        (FileNotFoundError(errno.ENOENT, "x"), Failure.OUTSIDE),
    ],
)
def test_an_error_that_says_no_kind_has_that_of_its_cause(cause, kind):
    error = PerennialError("x cannot be written")
    error.__cause__ = cause
    assert failures.kind(error) is kind


@pytest.mark.parametrize(
    ("status", "kind"), [(404, Failure.BUG), (429, Failure.NETWORK), (503, Failure.NETWORK)]
)
def test_an_answer_of_a_server_counts_by_its_status(status, kind):
    request = httpx.Request("GET", CLOSED)
    error = httpx.HTTPStatusError("x", request=request, response=httpx.Response(status, request=request))
    assert failures.kind(error) is kind


def test_a_process_that_wrote_nothing_is_judged_by_its_code():
    assert (failures.of_code(1), failures.of_code(2)) == (Failure.BUG, Failure.REFUSED)
    assert {failures.of_code(code) for code in (75, -9, 137)} == {Failure.INTERRUPTED}


def test_a_command_tells_the_process_that_started_it_the_kind_of_its_failure(tmp_path, monkeypatch):
    file = tmp_path / "failure.json"
    monkeypatch.setenv(failures.VARIABLE, str(file))
    command = [sys.executable, "-m", "perennial", "config", "--params", str(tmp_path / "none.yaml")]
    assert subprocess.run(command, check=False, stderr=subprocess.DEVNULL, cwd=Path.cwd()).returncode == 2
    found = documents.read_json(file)
    assert (found["code"], found["kind"], "none.yaml" in found["message"]) == (2, "refused", True)
