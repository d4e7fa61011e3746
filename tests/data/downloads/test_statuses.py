"""Responses without the file: how often they are retried, and which redirects are followed."""

import logging
import re
import socket
import time
from email.utils import formatdate

import pytest
from data.downloads.fault_server import CONTENT, cut, hang, honest, redirect, status


@pytest.mark.parametrize(
    ("code", "tries"),
    [*((code, 1) for code in (400, 401, 403, 404, 410, 416, 451, 204, 304)), (429, 3), (503, 3)],
)
def test_a_permanent_status_is_requested_once_and_a_temporary_one_three_times(fetching, server, code, tries):
    server.plan = [status(code)]
    error = fetching.refusal()
    assert (error.temporary, len(server.asked)) == (tries == 3, tries)
    assert f"HTTP {code}" + " (3 tries)" * (tries == 3) in str(error)


@pytest.mark.parametrize("code", [206, 408, 425, 429, 500, 502, 503, 504])
def test_a_temporary_status_is_retried(fetching, server, code):
    server.plan = [status(code), status(code), honest]
    assert (fetching().read_bytes(), len(server.asked)) == (CONTENT, 3)


@pytest.mark.parametrize(("code", "tries"), [(socket.EAI_NONAME, 1), (socket.EAI_AGAIN, 3)])
def test_an_unknown_host_is_asked_for_once(fetching, monkeypatch, code, tries):
    asked = []

    def answer(host, *_, **__):
        asked.append(host)
        raise socket.gaierror(code, "no address")

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    fetching.mirrors[:] = ["http://host.invalid/"]
    error, once = fetching.refusal(), tries == 1
    assert (error.temporary, len(asked), "the host is not known" in str(error)) == (not once, tries, once)


@pytest.mark.parametrize(
    "value", ["3600", formatdate(time.time() + 3600, usegmt=True)], ids=["seconds", "date"]
)
def test_a_long_retry_after_is_capped(fetching, server, value, logged):
    server.plan = [status(503, Retry_After=value), honest]
    fetching()
    assert "HTTP 503; retry 1 in 0.3 s" in logged()


PASSING = {
    **{
        f"Retry-After {value:.9}": status(503, Retry_After=value)
        for value in ("soon", "-5", "", "9" * 40, formatdate(0, usegmt=True))
    },
    "another protocol": lambda handler: handler.wfile.write(b"SSH-2.0-OpenSSH\r\n"),
    "a closed connection": lambda handler: None,
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_a_fault_that_passes_is_tried_again(fetching, server, fault):
    server.plan = [fault, honest]
    assert fetching().read_bytes() == CONTENT


def test_the_query_of_a_url_is_not_shown(fetching, server):
    server.plan = [status(404)]
    fetching.mirrors = [f"{server.url}?token=hush&file="]
    assert "hush" not in str(fetching.refusal())


def test_a_refused_connection_is_temporary(fetching):
    fetching.mirrors = ["http://127.0.0.1:1/"]
    error = fetching.refusal()
    assert (error.temporary, "refused" in str(error)) == (True, True)


def test_a_finished_file_has_one_line_in_the_log(fetching, server, caplog):
    caplog.set_level(logging.INFO, logger="perennial")
    server.plan = [cut(100_000), honest]
    fetching()
    line = caplog.messages[-1]
    assert re.search(
        r"file\.bin: 300000 bytes in [0-9.]+ s, [0-9.]+ MB/s, 1 retries, resumed from byte 100000$", line
    )


def test_a_mirror_is_not_asked_after_the_deadline(fetching, server, start):
    server.plan = [hang]
    other = start()
    fetching.mirrors.append(other.url)
    fetching.limit(total_s=0.3)
    error = fetching.refusal()
    assert (other.asked, "not tried" in str(error), error.temporary) == ([], True, True)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_server_is_followed(fetching, server, start, code):
    server.plan = [redirect(f"{start().url}elsewhere", code)]
    assert fetching().read_bytes() == CONTENT


def test_a_redirect_loop_fails(fetching, server):
    server.plan = [redirect("/again")]
    error = fetching.refusal()
    assert (error.temporary, len(server.asked)) == (False, 6)


REFUSED = {
    "file:///etc/passwd": "file://", "ftp://ftp.example.org/file": "ftp://ftp.example.org",
    "http://169.254.169.254/latest/meta-data/": "http://169.254.169.254",
    "http://0xA9FEA9FE/": "169.254.169.254", "http://2852039166/": "169.254.169.254",
    "http://[::ffff:169.254.169.254]/": "169.254.169.254", "http://[fe80::1]/": "fe80::1",
    "http://0.0.0.0/": "http://0.0.0.0", "http://[::]/": "::", "//169.254.1.2/": "http://169.254.1.2",
}  # fmt: skip


@pytest.mark.parametrize(("target", "named"), REFUSED.items(), ids=REFUSED)
def test_an_unsafe_redirect_is_refused_and_its_host_named(fetching, server, target, named):
    server.plan = [redirect(target)]
    error = fetching.refusal()
    assert (f"redirect to {target.partition(':')[0] if ':' in target[:6] else 'http'}" in str(error)) is True
    assert named in str(error)
    assert "refused" in str(error)
    assert (error.temporary, len(server.asked)) == (False, 1)


@pytest.mark.parametrize("location", ["data:text/plain,x", "http://a:port/", "http://[1::2::3]/", None])
def test_a_redirect_to_nowhere_is_refused(fetching, server, location):
    server.plan = [status(302, Location=location)]
    assert not fetching.refusal().temporary
