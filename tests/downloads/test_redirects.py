"""Redirects: which are followed, and what goes along."""

import pytest
from downloads.fault_server import CONTENT, honest, redirect, status

from perennial.downloads import addresses


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_server_is_followed(fetching, server, start, code):
    server.plan = [redirect(f"{start().url}elsewhere", code)]
    assert fetching().read_bytes() == CONTENT


def test_a_redirect_within_a_server_is_followed(fetching, server):
    server.plan = [redirect("/other/place"), honest]
    assert (fetching().read_bytes(), server.asked) == (CONTENT, ["/file.bin", "/other/place"])


def test_five_redirects_are_followed(fetching, server):
    server.plan = [*[redirect("/again")] * 5, honest]
    assert fetching().read_bytes() == CONTENT


def test_a_redirect_loop_is_left(fetching, server):
    server.plan = [redirect("/again")]
    told = fetching.refusal()
    assert ("more than 5 redirects" in str(told), told.may_pass, len(server.asked)) == (True, False, 6)


REFUSED = {
    "file:///etc/passwd": "file://",
    "ftp://ftp.example.org/file": "ftp://ftp.example.org",
    "http://169.254.169.254/latest/meta-data/": "http://169.254.169.254",
    "http://0xA9FEA9FE/": "169.254.169.254",
    "http://2852039166/": "169.254.169.254",
    "http://[::ffff:169.254.169.254]/": "169.254.169.254",
    "http://[fe80::1]/": "fe80::1",
    "http://0.0.0.0/": "http://0.0.0.0",
    "http://[::]/": "::",
    "//169.254.1.2/": "http://169.254.1.2",
}


@pytest.mark.parametrize(("target", "named"), REFUSED.items(), ids=REFUSED)
def test_a_redirect_that_no_mirror_needs_is_refused_by_its_host(fetching, server, target, named):
    server.plan = [redirect(target)]
    told = fetching.refusal()
    assert (f"redirect to {target.partition(':')[0] if ':' in target[:6] else 'http'}" in str(told)) is True
    assert (named in str(told), "refused" in str(told), told.may_pass, len(server.asked)) == (
        True,
        True,
        False,
        1,
    )


def test_a_redirect_from_https_to_http_is_refused_by_its_host():
    current = addresses.without_credentials("https://safe.example/file")
    with pytest.raises(addresses.Forbidden, match=r"plain\.example refused: it leads from https to http"):
        addresses.redirected(current, "http://plain.example/file")


@pytest.mark.parametrize("location", ["data:text/plain,x", "http://a:port/", "http://[1::2::3]/", None])
def test_a_redirect_to_nowhere_is_refused(fetching, server, location):
    server.plan = [status(302, Location=location)]
    assert not fetching.refusal().may_pass
