"""Credentials for `dataset.base_url`: from netrc or the environment, for that server alone, never logged."""

import base64

import pytest
from data.downloads.fault_server import CONTENT, honest, redirect, status

from perennial.data.downloads import connection

SECRET = "hush-4711"
BASIC = base64.b64encode(f"user:{SECRET}".encode()).decode()


def guarded(handler):
    """The file, for those with the password."""
    allowed = handler.headers.get("Authorization") == f"Basic {BASIC}"
    (honest if allowed else status(401, WWW_Authenticate='Basic realm="data"'))(handler)


@pytest.fixture(params=["netrc", "environment"])
def known(request, monkeypatch, tmp_path):
    """The password of the server is known."""
    if request.param == "netrc":
        (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login user password {SECRET}\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    else:
        monkeypatch.setenv(connection.USER, "user")
        monkeypatch.setenv(connection.PASSWORD, SECRET)


@pytest.fixture
def own(fetching, server):
    """A fetch from a server that asks for a password."""
    server.plan = [guarded]
    fetching.credentials = lambda: connection.credentials_for(server.url)
    return fetching


@pytest.mark.usefixtures("known")
def test_the_server_receives_the_password(own, logged):
    assert own().read_bytes() == CONTENT
    assert (SECRET in logged(), BASIC in logged()) == (False, False)


@pytest.mark.usefixtures("known")
def test_a_redirect_within_the_server_keeps_the_password(own, server):
    server.plan = [redirect("/other"), guarded]
    assert own().read_bytes() == CONTENT


@pytest.mark.usefixtures("known")
def test_another_server_never_receives_the_password(own, server, start):
    other = start()
    server.plan = [redirect(other.url)]
    own()
    assert "Authorization" not in other.headers[0]


def test_without_a_password_the_error_names_its_sources(own, monkeypatch, tmp_path):
    monkeypatch.setenv("NETRC", str(tmp_path / "absent"))
    error = str(own.refusal())
    assert ("401" in error, "netrc" in error, connection.PASSWORD in error) == (True, True, True)


def test_a_broken_netrc_is_named_without_its_content(own, monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login user passwort {SECRET}\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(Exception, match="netrc") as refused:
        own()
    assert SECRET not in str(refused.value)


def test_a_password_in_the_url_is_not_sent(fetching, server):
    fetching.mirrors = [server.url.replace("//", f"//user:{SECRET}@")]
    fetching()
    assert "Authorization" not in server.headers[0]
