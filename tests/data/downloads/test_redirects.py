"""Which redirects are followed."""

import pytest
from data.downloads.fault_server import CONTENT, redirect, status


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
