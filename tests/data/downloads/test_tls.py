"""Certificates that are not trusted."""

import datetime as dt
import ipaddress
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from data.downloads.fault_server import CONTENT, honest, redirect

TODAY = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)


def certify(folder, server, host="127.0.0.1", begin=TODAY - DAY, end=TODAY + DAY):
    """Make a server use TLS; returns the file of its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    hosts = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), begin, end)
        .add_extension(hosts, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    (folder / "cert").write_bytes(certificate.public_bytes(encoding))
    (folder / "key").write_bytes(
        key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return folder / "cert"


@pytest.fixture
def secure(fetching, server):
    fetching.mirrors = [server.url.replace("http:", "https:")]
    return fetching


EXPIRED = {"begin": TODAY - 3 * DAY, "end": TODAY - DAY}
EARLY = {"begin": TODAY + DAY, "end": TODAY + 3 * DAY}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"host": "127.0.0.2"}, "IP address mismatch"),
        (EXPIRED, "certificate has expired (clock"),
        (EARLY, "certificate is not yet valid (clock"),
    ],
    ids=["other host", "expired", "not yet valid"],
)
def test_a_certificate_is_refused_with_its_reason(secure, server, tmp_path, monkeypatch, changes, reason):
    monkeypatch.setenv("SSL_CERT_FILE", str(certify(tmp_path, server, **changes)))
    error = secure.refusal()
    assert (reason in str(error), error.temporary, len(server.asked)) == (True, False, 0)


def test_a_self_signed_certificate_is_refused_without_offering_to_ignore_it(secure, server, tmp_path):
    certify(tmp_path, server)
    error = str(secure.refusal())
    assert "self-signed certificate" in error
    assert not any(word in error.lower() for word in ("insecure", "verif", "disable", "ignore"))


@pytest.fixture
def trusted(secure, server, tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certify(tmp_path, server)))
    return secure


def test_a_redirect_from_https_to_http_is_not_followed(trusted, server, start):
    plain = start()
    server.plan = [redirect(plain.url)]
    assert "redirect to http://127.0.0.1" in str(trusted.refusal())
    assert plain.asked == []


def test_a_redirect_from_http_to_https_is_followed(trusted, server, start):
    plain = start()
    plain.plan = [redirect(trusted.mirrors[0])]
    server.plan = [honest]
    trusted.mirrors = [plain.url]
    assert trusted().read_bytes() == CONTENT


def test_a_server_without_tls_is_temporary(secure):
    secure.limit(tries=1)
    assert secure.refusal().temporary
