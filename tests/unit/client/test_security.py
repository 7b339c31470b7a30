"""Admin at brokers and name servers with accounts and TLS: signed requests, and what each refusal says."""

import asyncio
import ssl
import sys

import pytest
from support.certificates import Certificates
from support.secured import ACCESS_KEY, SECRET, Secured

from rocketc.client.admin import Admin
from rocketc.client.security import Credentials, Tls, read_credentials, tls_context
from rocketc.errors import AnswerError, ConnectionLostError, NotSentError
from rocketc.remoting.loops import run_on_loop
from rocketc.remoting.tls_faults import tls_fault

ACCOUNT = Credentials(ACCESS_KEY, SECRET)
RUNS = {"asyncio": asyncio.run, "uvloop or asyncio": run_on_loop}


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    servers = Secured(tmp_path_factory.mktemp)
    yield servers
    servers.close()


@pytest.fixture(params=RUNS)
def groups(request):
    """groups(address, ...): what Admin.groups() returns, on each event loop."""

    async def main(address, options):
        async with Admin(address, **options) as admin:
            return await admin.groups()

    return lambda address, **options: RUNS[request.param](main(address, options))


def test_an_account(secured, groups):
    broker = secured["plain"]
    assert "TOOLS_CONSUMER" in groups(broker.name_server, credentials=ACCOUNT)
    for account, says in (
        (Credentials("operators", "another secret"), "Check signature failed for accessKey=operators"),
        (Credentials("nobody11", SECRET), "No acl config for nobody11"),
        (None, "No accessKey is configured"),
    ):
        with pytest.raises(
            AnswerError, match=rf"^{broker.address}: GET_ALL_SUB.* was answered with 1 .*{says}"
        ) as caught:
            groups(broker.name_server, credentials=account)
        assert "secret" not in str(caught.value) + repr(caught.value)


def test_tls(secured, groups):
    broker = secured["tls"]
    ca = secured.file("ca")
    assert "TOOLS_CONSUMER" in groups(broker.name_server, credentials=ACCOUNT, tls=Tls(ca))
    context = ssl.create_default_context(cafile=ca)
    assert "TOOLS_CONSUMER" in groups(broker.name_server, credentials=ACCOUNT, tls=context)


def test_mutual_tls(secured, groups):
    broker, ca = secured["mutual"], secured.file("ca")

    def ask(name, **more):
        files = Tls(ca, secured.file(name), secured.file(f"{name}.key"), **more)
        return groups(broker.name_server, credentials=ACCOUNT, tls=files)

    assert "TOOLS_CONSUMER" in ask("client")
    with pytest.raises(
        ConnectionError, match=r"the server does not accept the certificate of this client|server closed"
    ):
        ask("stranger")
    with pytest.raises(ConnectionError, match=r"the server wants a certificate of this client"):
        groups(broker.name_server, credentials=ACCOUNT, tls=Tls(ca))


@pytest.mark.parametrize(
    ("kind", "trusts", "error", "says"),
    [
        ("tls", "foreign", NotSentError, "the certificate of the server is from an authority that is not trusted here"),
        ("tls", None, NotSentError, "the certificate of the server is from an authority that is not trusted here"),
        ("expired", "ca", NotSentError, "the certificate of the server has expired"),
        ("other host", "ca", NotSentError, "the certificate of the server is for another host: IP address mismatch"),
        ("plain", "ca", NotSentError, "the server ended the TLS handshake; it may speak only plain text"),
        ("tls", "plain", ConnectionLostError, "the server closed it without any answer; it may accept only TLS"),
    ],
)
def test_what_a_refusal_says(secured, groups, kind, trusts, error, says):
    address = secured[kind].name_server
    tls = Tls(trusts and secured.file(trusts)) if trusts != "plain" else False
    with pytest.raises(error, match=f"^{address}: (no connection|the connection ended): {says}"):
        groups(address, credentials=ACCOUNT, tls=tls)


def test_a_certificate_for_another_host(secured, groups):
    tls = Tls(secured.file("ca"), check_host=False)
    assert "TOOLS_CONSUMER" in groups(secured["other host"].name_server, credentials=ACCOUNT, tls=tls)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "the file needs accessKey and secretKey; put quotes around them"),
        (b"accessKey: a\n", "the file needs accessKey"),
        (b"accessKey: a\nsecretKey: 1.5\n", "the file needs accessKey"),
        (b"accessKey: a\nsecretKey: [very-secret]\n", "the file needs accessKey"),
        (b"accessKey: a\nsecretKey: '  '\n", "the file needs accessKey"),
        (b"[very-secret", "this is not YAML"),
        (b"very-secret: !!python/object:os.system {}", "this is not YAML"),
        (b"\xff\xfe\x00", "this is not YAML"),
        (b"- very-secret", "the file needs accessKey"),
    ],
)
def test_a_file_without_an_account(tmp_path, text, says):
    (tmp_path / "tools.yml").write_bytes(text)
    with pytest.raises(ValueError, match=f"tools.yml: {says}") as caught:
        read_credentials(str(tmp_path / "tools.yml"))
    assert "very-secret" not in str(caught.value)


def test_a_file_with_an_account(tmp_path):
    (tmp_path / "tools.yml").write_text("accessKey: rocketmq2\nsecretKey: 12345678\nsecurityToken: a token\nmore: 1\n")
    assert read_credentials(str(tmp_path / "tools.yml")) == Credentials("rocketmq2", "12345678", "a token")
    with pytest.raises(FileNotFoundError):
        read_credentials(str(tmp_path / "none"))


def test_pyyaml_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ValueError, match=r"needs the package pyyaml: pip install 'rocketc\[acl\]'"):
        read_credentials(str(tmp_path / "tools.yml"))


def test_settings_of_tls(secured):
    assert tls_context(False) is None
    assert tls_context(True).verify_mode is ssl.CERT_REQUIRED and tls_context(True).check_hostname
    assert not tls_context(Tls(check_host=False)).check_hostname
    one = ssl.create_default_context()
    assert tls_context(one) is one
    for wrong, says in (
        (Tls(ca="/none"), "/none: No such file"),
        (Tls(cert="/none"), "/none: No such file"),
        (Tls(key="/none"), "/none: give the certificate of this key, too"),
        (Tls(ca=secured.file("local.key")), "local.key: not certificates in PEM"),
        (Tls(cert=secured.file("locked"), key=secured.file("locked.key"), key_password="wrong"), "not a certificate"),
    ):
        with pytest.raises(ValueError, match=says):
            Admin("127.0.0.1:1", tls=wrong)
    right = Tls(cert=secured.file("locked"), key=secured.file("locked.key"), key_password=Certificates.password)
    assert tls_context(right) is not None and Certificates.password not in repr(right)


def error(kind, reason, code=0, message=""):
    made = kind(1, "text")
    made.reason = reason
    if kind is ssl.SSLCertVerificationError:
        made.verify_code, made.verify_message = code, message
    return made


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (error(ssl.SSLCertVerificationError, "", 9), "the certificate of the server is not valid yet"),
        (error(ssl.SSLCertVerificationError, "", 7, "bad."), "the certificate of the server is not accepted: bad"),
        (error(ssl.SSLError, "WRONG_VERSION_NUMBER"),
         "the server does not speak TLS on this port (WRONG_VERSION_NUMBER)"),
        (error(ssl.SSLError, "SSLV3_ALERT_HANDSHAKE_FAILURE"),
         "the server ended the TLS connection (SSLV3_ALERT_HANDSHAKE_FAILURE)"),
        (error(ssl.SSLError, None), "the TLS connection failed"),
        (ConnectionAbortedError("slow"), "the TLS handshake did not end in time"),
        (OSError("odd"), "odd"),
        (OSError(), "OSError"),
    ],
)  # fmt: skip
def test_names_of_faults(fault, says):
    assert tls_fault(fault) == says
