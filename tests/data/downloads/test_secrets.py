"""Secrets in URLs and the environment never appear in messages, logs or files."""

import pytest
from data.downloads.fault_server import CONTENT, OTHER, cut, redirect, status

CANARY = "hush-4711"


def seen(fetching, logged, error=""):
    files = [path for path in fetching.folder.rglob("*") if path.is_file()]
    return [
        text
        for text in (
            logged(),
            str(error),
            *map(str, files),
            *(path.read_bytes().decode("latin-1") for path in files),
        )
        if CANARY in text or "aHVzaC00NzEx" in text  # base64, as in a header
    ]


FAULTS = {
    "404": status(404),
    "503": status(503),
    "cut": cut(1000),
    "wrong": status(200, OTHER),
    "loop": redirect(f"/{'x'}?token={CANARY}"),
    "to another protocol": redirect(f"ftp://user:{CANARY}@example.org/?token={CANARY}"),
    "to a link-local address": redirect(f"http://user:{CANARY}@169.254.1.1/?token={CANARY}"),
    "to nowhere": redirect(f"http://user:{CANARY}@[half/?token={CANARY}"),
    "to nobody": redirect(f"http://user:{CANARY}@127.0.0.1:1/?token={CANARY}"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_password_is_not_in_a_failure(fetching, server, caplog, fault):
    caplog.set_level("DEBUG", logger="perennial")
    fetching.mirrors = [server.url.replace("//", f"//user:{CANARY}@")]
    server.plan = [fault]
    assert seen(fetching, lambda: caplog.text, fetching.refusal()) == []


def test_a_password_is_not_stored_with_a_partial_file(fetching, server, logged):
    fetching.mirrors = [server.url.replace("//", f"//user:{CANARY}@")]
    server.plan = [cut(1000)]
    error = fetching.refusal()
    assert (fetching.note.exists(), seen(fetching, logged, error)) == (True, [])


@pytest.mark.parametrize("scheme", ["http", "socks5", "nonsense"])
def test_a_proxy_password_is_not_in_a_failure(fetching, monkeypatch, logged, scheme):
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("HTTP_PROXY", f"{scheme}://user:{CANARY}@127.0.0.1:1")
    fetching.mirrors = ["http://data.invalid/"]
    assert seen(fetching, logged, fetching.refusal()) == []


def test_a_proxy_of_the_environment_receives_its_password(fetching, server, monkeypatch, logged):
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("HTTP_PROXY", server.url.replace("//", f"//user:{CANARY}@"))
    fetching.mirrors = ["http://data.invalid/"]
    assert fetching().read_bytes() == CONTENT
    assert (server.asked, "Proxy-Authorization" in server.headers[0]) == (
        ["http://data.invalid/file.bin"],
        True,
    )
    assert seen(fetching, logged) == []


def test_a_proxy_that_refuses_the_password_is_not_tried_again(fetching, server, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("HTTP_PROXY", server.url)
    server.plan = [status(407)]
    fetching.mirrors = ["http://data.invalid/"]
    assert (fetching.refusal().temporary, len(server.asked)) == (False, 1)
