"""Credentials for `dataset.base_url`: from netrc or the environment, for that server alone, and never shown."""

import base64

import pytest
from data.downloads.fault_server import CONTENT, OTHER, cut, honest, redirect, status

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


def leaked(fetching, logged, error=""):
    """Whether the password, plain or in base64, is in what was logged, said or written."""
    files = [path for path in fetching.folder.rglob("*") if path.is_file()]
    contents = (path.read_bytes().decode("latin-1") for path in files)
    texts = (logged(), str(error), *map(str, files), *contents)
    return any(SECRET in text or "aHVzaC00NzEx" in text for text in texts)


FAULTS = {
    "404": status(404),
    "503": status(503),
    "cut": cut(1000),
    "wrong": status(200, OTHER),
    "loop": redirect(f"/{'x'}?token={SECRET}"),
    "to another protocol": redirect(f"ftp://user:{SECRET}@example.org/?token={SECRET}"),
    "to a link-local address": redirect(f"http://user:{SECRET}@169.254.1.1/?token={SECRET}"),
    "to nowhere": redirect(f"http://user:{SECRET}@[half/?token={SECRET}"),
    "to nobody": redirect(f"http://user:{SECRET}@127.0.0.1:1/?token={SECRET}"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_password_is_not_in_a_failure(fetching, server, caplog, fault):
    caplog.set_level("DEBUG", logger="perennial")
    fetching.mirrors = [server.url.replace("//", f"//user:{SECRET}@")]
    server.plan = [fault]
    assert not leaked(fetching, lambda: caplog.text, fetching.refusal())


@pytest.mark.parametrize("scheme", ["http", "socks5", "nonsense"])
def test_a_proxy_password_is_not_in_a_failure(fetching, monkeypatch, logged, scheme):
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("HTTP_PROXY", f"{scheme}://user:{SECRET}@127.0.0.1:1")
    fetching.mirrors = ["http://data.invalid/"]
    assert not leaked(fetching, logged, fetching.refusal())


def test_a_proxy_of_the_environment_receives_its_password(fetching, server, monkeypatch, logged):
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("HTTP_PROXY", server.url.replace("//", f"//user:{SECRET}@"))
    fetching.mirrors = ["http://data.invalid/"]
    assert fetching().read_bytes() == CONTENT
    assert server.asked == ["http://data.invalid/file.bin"]
    assert "Proxy-Authorization" in server.headers[0]
    assert not leaked(fetching, logged)


def test_a_proxy_that_refuses_the_password_is_not_tried_again(fetching, server, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("HTTP_PROXY", server.url)
    server.plan = [status(407)]
    fetching.mirrors = ["http://data.invalid/"]
    assert (fetching.refusal().temporary, len(server.asked)) == (False, 1)
