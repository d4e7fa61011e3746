"""What is special about the stores of Google and Azure."""

import json

import pytest
from support import s3, stores

from perennial.base import retries
from perennial.base.errors import ConfigError, DataError, PerennialError
from perennial.base.storage import Changed, Missing, open_store

LONG_AGO = "Signature not valid in the specified time frame: Start [Mon] - Expiry [Tue] - Current [Wed]"


@pytest.fixture
def refused(monkeypatch):
    """The error for an answer with a status and a body."""
    monkeypatch.setattr(retries, "STORE_PAUSE_S", 0.001)
    proxy = s3.Proxy("http://127.0.0.1:9")  # passes nothing on
    proxy.rate, proxy.faults = 1, ["answer"]

    def ask(scheme, status, body, kind="application/xml"):
        for name, value in stores.PROVIDERS[scheme].variables(proxy.url).items():
            monkeypatch.setenv(name, value)
        answer = status, [("Content-Type", kind)], body.encode()
        monkeypatch.setitem(s3.FAULTS, "answer", lambda handler, _body: handler.answer(*answer))
        proxy.asked.clear()
        with pytest.raises(PerennialError) as caught:
            open_store(f"{scheme}://bucket/prefix").get_bytes("key")
        return caught, len(proxy.asked)

    yield ask
    proxy.end()


def test_an_extra_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'perennial-ml\[gcs\]'"):
        open_store("gs://bucket/prefix")


def test_azure_without_an_account_names_the_variables(monkeypatch):
    for name in ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"no account; .*AZURE_STORAGE_ACCOUNT"):
        open_store("azure://container")


def test_google_without_credentials_names_the_variable(monkeypatch, tmp_path):
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(ConfigError, match=r"no credentials .*GOOGLE_APPLICATION_CREDENTIALS"):
        open_store("gs://bucket")


ANSWERS = {
    (409, "BlobAlreadyExists"): Changed,
    (412, "ConditionNotMet"): Changed,
    (401, "AuthorizationFailure"): ConfigError,
    (403, "AuthorizationFailure"): ConfigError,
    (404, "BlobNotFound"): Missing,
    (503, "ServerBusy"): PerennialError,
}


@pytest.mark.fast_rows("409--gs", "412--azure", "401--gs", "403--azure", "404--gs", "503--azure")
@pytest.mark.parametrize("scheme", ["gs", "azure"])
@pytest.mark.parametrize(
    ("answer", "expected"), ANSWERS.items(), ids=lambda each: str(each[0]) if isinstance(each, tuple) else ""
)
def test_an_answer_that_is_an_error_is_translated(refused, scheme, answer, expected):
    caught, asked = refused(scheme, answer[0], s3.XML.format(code=answer[1]))
    assert caught.type is expected
    assert asked == (retries.STORE_TRIES if answer[0] == 503 else 1)


DETAILED = {
    (
        403,
        "AuthenticationFailed",
        LONG_AGO,
    ): "have expired .*Expiry .*a new AZURE_STORAGE_SAS_TOKEN",
    (403, "AuthenticationFailed", "Request date header too old: 'Thu'"): "set the clock of this machine",
    (403, "AuthenticationFailed", "The MAC signature is wrong"): "rejects the credentials .*AZURE_STORAGE_KEY",
    (403, "AuthorizationPermissionMismatch", "no"): "access denied .*Storage Blob Data Contributor",
    (409, "BlobArchived", "no"): "the server answered 409 .*BlobArchived",
    (412, "LeaseIdMissing", "no"): "the server answered 412 .*LeaseIdMissing",
    (404, "ContainerNotFound", "no"): "the container does not exist; create it",
}


@pytest.mark.parametrize(("answer", "expected"), DETAILED.items(), ids=lambda each: each[1][:25])
def test_the_cause_and_the_remedy_of_a_refusal_of_azure_are_named(refused, answer, expected):
    status, code, detail = answer
    body = (
        s3.XML.format(code=code).replace("</Message>", f"</Message><AuthenticationErrorDetail>{detail}") + "\n"
    )
    body = body.replace("</Error>", "</AuthenticationErrorDetail></Error>")
    caught, _ = refused("azure", status, body)
    assert not isinstance(caught.value, (Changed, DataError))
    assert caught.match(expected)


@pytest.mark.parametrize(
    ("status", "reason", "message", "expected", "tries"),
    [
        (403, "forbidden", "me does not have storage.objects.get access", "denied .*Storage Object Admin", 1),
        (403, "userRateLimitExceeded", "slow down", "try again later", retries.STORE_TRIES),
        (404, "notFound", "The specified bucket does not exist.", "the bucket does not exist; create it", 1),
    ],
)
def test_the_cause_and_the_remedy_of_a_refusal_of_google_are_named(
    refused, status, reason, message, expected, tries
):
    error = {"code": status, "message": message, "errors": [{"reason": reason, "message": message}]}
    caught, asked = refused("gs", status, json.dumps({"error": error}), "application/json")
    assert caught.match(expected)
    assert asked == tries
