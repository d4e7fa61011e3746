"""Messages of errors: no secrets, and all that is no secret."""

import pytest

from perennial.base.errors import STARTED_AGAIN, InputsChanged, Interrupted, exit_code, redacted

HIDDEN = [
    "https://ada:planted@host/x",
    "https://ada:pla/planted@host/x",
    "https://ada:pl@planted@host/x",
    "https://ada:pla planted@host/x",
    "https://ada:pl@ planted@host/x",
    "https://ada:'planted'@host/x",
    'https://ada:"planted" x@host/x',
    "https://ada:pla\nplanted@host/x",
    "https://planted@host/x",
    "https://ada:p%40planted@host/x",
    r"https:\/\/ada:planted@host\/x",
    r'{"url": "https:\/\/ada:a \"planted@host\/x"}',
    "https:/ada:planted@host/x",
    "s3:/planted@bucket/x",
    "https:/host/x?sig=planted",
    "https://host/x?X-Amz-Signature=planted&a=b",
    "https://host/x?a=b&token=planted",
    "https://host/x#access_token=planted",
    r"https:\/\/host\/x?sig=planted",
    "Authorization: Bearer planted",
    "{'Authorization': 'Basic planted'}",
    '"Authorization": "AWS4-HMAC-SHA256 Credential=a/b, Signature=planted"',
    "Proxy-Authorization: Basic planted",
    "X-Amz-Security-Token: planted",
    "Set-Cookie: session=planted; Path=/",
    "AWS_SECRET_ACCESS_KEY=planted",
    "password = 'a planted b'",
    '"secret_access_key": "planted"',
    "the token=planted&a=1",
]
SHOWN = [
    "cannot fetch https://host:8080/x for ada@host",
    "http://[::1]:4200/api does not answer; ask ada@host",
    "git@github.com:ada/x.git is not found",
    "see https://host/page#section",
    "max_tokens is 5",
    "PATH=/usr/bin:/home/ada@host/bin is set",
    "cannot push to ada@host:/srv/x.git; ask bob@host",
    "https://host/x: 404, and https://other/y: 500; ada@host knows",
    "the token has expired",
]


@pytest.mark.parametrize("text", HIDDEN)
@pytest.mark.parametrize("around", ["{}", "fatal: cannot read {}: 403\nand then", "'{}' failed"])
def test_no_secret_is_left_in_a_message(text, around):
    assert "planted" not in redacted(around.format(text))


@pytest.mark.parametrize("text", SHOWN)
def test_what_is_no_secret_stays(text):
    assert redacted(text) == text


def test_the_words_between_two_addresses_with_passwords_stay():
    text = "cannot push https://a:b@host/x to 'https://c:d@other/y'"
    assert redacted(text) == "cannot push https://***@host/x to 'https://***@other/y'"


def test_what_a_supervisor_starts_again_ends_otherwise_if_its_inputs_changed(monkeypatch) -> None:
    monkeypatch.delenv(STARTED_AGAIN, raising=False)
    assert (exit_code(InputsChanged("")), exit_code(Interrupted(""))) == (75, 75)
    monkeypatch.setenv(STARTED_AGAIN, "1")
    assert (exit_code(InputsChanged("")), exit_code(Interrupted(""))) == (2, 75)
