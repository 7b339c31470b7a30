"""TLS and plain connections on one port: on virtual time, with a network in memory, and on real sockets."""

import asyncio
import logging
import os
import random
import ssl
import subprocess
import time

import pytest
from simulation import virtual

from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.channel import Channel
from rocketc.remoting.command import Command
from rocketc.remoting.connection import Limits
from rocketc.remoting.server import Answer, Server
from rocketc.remoting.tls import TlsGate
from rocketc.remoting.tls_contexts import TlsContexts, client_context, server_context, tls_connector
from rocketc.remoting.tls_settings import ClientAuth, Identity, TlsMode, TlsSettings, tls_settings


def settings_of(tmp_path, text, mode="permissive"):
    (tmp_path / "tls.properties").write_text(text)
    return tls_settings(mode, None, str(tmp_path / "tls.properties"))


class Echo:
    """Answers GET_MAX_OFFSET with the queue id, and a body of as many bytes."""

    codes = (30,)

    def __init__(self):
        self.held = []

    def process(self, call):
        if call.values["topic"] == "held":
            self.held.append(call)
            return None
        return Answer(values={"offset": call.values["queueId"]}, body=[b"x" * call.values["queueId"]])


class Client(asyncio.Protocol):
    """A client with TLS, or a plain one without a context."""

    def __init__(self, context=None):
        self.answers, self.lost, self.error, self._decoder = [], False, None, FrameDecoder()
        self.tls = None
        if context is not None:
            self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
            self.tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")
            self._is_open, self._early = False, []

    def connection_made(self, transport):
        self.transport = transport
        if self.tls is not None:
            self._step()

    def data_received(self, data):
        if self.tls is not None:
            self._in.write(data)
            self._step()
        else:
            self._plain(data)

    def _plain(self, data):
        self.answers += [Command.decode(*frame) for frame in self._decoder.receive(data)]

    def _step(self):
        try:
            if not self._is_open:
                self.tls.do_handshake()
                self._is_open = True
                for data in self._early:
                    self.tls.write(data)
            while data := self.tls.read(1 << 16):
                self._plain(data)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.error = self.error or error.reason
        self.transport.write(self._out.read())

    def connection_lost(self, error):
        self.lost = True

    def send(self, *queue_ids, topic="t"):
        commands = [Command(30, {"topic": topic, "queueId": str(n)}, opaque=n) for n in queue_ids]
        data = b"".join(command.encode() for command in commands)
        if self.tls is None:
            self.transport.write(data)
        elif self._is_open:
            self.tls.write(data)
            self.transport.write(self._out.read())
        else:
            self._early.append(data)

    def offsets(self):
        return [int(answer.fields["offset"]) for answer in self.answers]


def play(settings, main, *, seed=1, delay=(0.0, 0.01), grace=2.0, **limits):
    """Run main(server, connect) on virtual time; connect(context) makes a client."""

    async def whole():
        chance = random.Random(seed)
        gate = TlsGate(TlsContexts(settings, in_thread=False), is_enforcing=settings.mode is TlsMode.ENFORCING)
        server = Server([Echo()], limits=Limits(**limits), grace=grace, tls=gate)
        server.gate = gate

        def connect(client):
            client = client if isinstance(client, Client) else Client(client)
            virtual.link(client, server.connection(), chance, delay)
            return client

        async with server:
            await main(server, connect)

    virtual.run(whole())


# ------------------------------------------------------------------------------------------ one port, two protocols


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("newest", [True, False])
def test_tls_and_plain_connections_share_a_port(tmp_path, certificates, seed, newest):
    async def main(server, connect):
        plain, secret = connect(None), connect(certificates.client_context(newest=newest))
        for client in (plain, secret):
            client.send(*range(50))
        await asyncio.sleep(5)
        assert plain.offsets() == secret.offsets() == list(range(50))
        assert secret.tls.version() == ("TLSv1.3" if newest else "TLSv1.2")
        assert len(server.connections) == 2 and server.gate.failures == 0

    play(settings_of(tmp_path, certificates.properties()), main, seed=seed)


@pytest.mark.parametrize("context", [False, True])
def test_large_answers_and_pauses(tmp_path, certificates, context):
    """Answers that the peer does not read stop its requests, with TLS as without; nothing is lost or in disorder."""

    async def main(server, connect):
        client = connect(certificates.client_context() if context else None)
        client.send(0)
        await asyncio.sleep(1)
        client.transport.pause_reading()
        client.send(*range(5000, 5200))
        await asyncio.sleep(5)
        (connection,) = server.connections
        assert len(client.answers) == 1
        client.transport.resume_reading()
        await asyncio.sleep(5)
        assert client.offsets() == [0, *range(5000, 5200)]
        assert [len(answer.body) for answer in client.answers] == client.offsets()
        assert connection.in_flight == 0

    play(settings_of(tmp_path, certificates.properties()), main, in_flight=4, unread=100_000)


def test_requests_that_came_before_a_pause_are_read_after_it(tmp_path, certificates):
    """They are decrypted, or could be: no byte comes after them that would say so."""

    async def main(server, connect):
        client = connect(certificates.client_context())
        await asyncio.sleep(1)
        for n in range(50):
            fields = {"topic": "held", "queueId": str(n)}
            client.tls.write(Command(30, fields, bytes(4000), opaque=n).encode())  # a record each
        client.transport.write(client._out.read())  # more than 64 KiB: it comes in one piece
        held = server._processors[30].held
        for n in range(50):
            await asyncio.sleep(1)
            assert n < len(held) <= n + 8
            held[n].later(Answer(values={"offset": n}))
        await asyncio.sleep(1)
        assert client.offsets() == list(range(50))

    play(settings_of(tmp_path, certificates.properties()), main, in_flight=4)


def test_an_answer_of_many_records(tmp_path, certificates):
    async def main(server, connect):
        client = connect(certificates.client_context())
        client.send(3 << 20, 7)
        await asyncio.sleep(5)
        assert [len(answer.body) for answer in client.answers] == [3 << 20, 7]

    play(settings_of(tmp_path, certificates.properties()), main)


def test_enforcing_closes_plain_connections(tmp_path, certificates, caplog):
    async def main(server, connect):
        plain, other, secret = connect(None), connect(None), connect(certificates.client_context())
        for client in (plain, other, secret):
            client.send(1)
        await asyncio.sleep(5)
        assert plain.lost and other.lost and plain.answers == other.answers == []
        assert secret.offsets() == [1] and server.gate.failures == 2 and len(server.connections) == 1

    with caplog.at_level(logging.DEBUG, "rocketc.remoting"):
        play(settings_of(tmp_path, certificates.properties(), "enforcing"), main)
    levels = [record.levelname for record in caplog.records if "no TLS connection" in record.getMessage()]
    assert levels == ["WARNING", "DEBUG"]
    assert "it is plain, and tls.server.mode is enforcing" in caplog.text


def test_without_a_gate_tls_is_not_the_protocol(certificates, caplog):
    async def main():
        server, client = Server([Echo()]), Client(certificates.client_context())
        virtual.link(client, server.connection(), random.Random(1))
        await asyncio.sleep(5)
        assert client.lost and client.answers == []
        await server.close()

    virtual.run(main())
    assert "this is not RocketMQ's protocol" in caplog.text


def test_limits_hold_before_the_first_byte(tmp_path, certificates):
    async def main(server, connect):
        first, second = connect(None), connect(certificates.client_context())
        await asyncio.sleep(1)
        assert not first.lost and second.lost and server.refused == 1
        await asyncio.sleep(30)
        assert first.lost and not server.connections  # idle

    play(settings_of(tmp_path, certificates.properties()), main, connections=1, idle=20.0)


# ------------------------------------------------------------------------------------------ certificates of clients


@pytest.mark.parametrize("newest", [True, False])
@pytest.mark.parametrize(
    ("name", "passes"), [("client", True), ("", False), ("expired", False), ("stranger", False)]
)  # fmt: skip
def test_mutual_tls(tmp_path, certificates, name, passes, newest, caplog):
    async def main(server, connect):
        client = connect(certificates.client_context(name, newest=newest))
        client.send(1)
        await asyncio.sleep(5)
        assert client.offsets() == ([1] if passes else [])
        assert client.lost is not passes and server.gate.failures == (not passes)
        assert passes or client.error is not None  # the client hears why

    play(settings_of(tmp_path, certificates.mutual(), "enforcing"), main)
    assert "Traceback" not in caplog.text and len(caplog.records) == (not passes)


@pytest.mark.parametrize(("name", "passes"), [("client", True), ("", True), ("stranger", False)])
def test_optional_certificates_are_checked_if_they_come(tmp_path, certificates, name, passes):
    text = certificates.mutual().replace("require", "optional")

    async def main(server, connect):
        client = connect(certificates.client_context(name))
        client.send(1)
        await asyncio.sleep(5)
        assert client.offsets() == ([1] if passes else [])

    play(settings_of(tmp_path, text), main)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_are_refused(tmp_path, certificates, version):
    context = certificates.client_context()
    with pytest.warns(DeprecationWarning):
        context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")

    async def main(server, connect):
        client = connect(context)
        await asyncio.sleep(5)
        assert client.lost and client.error in ("TLSV1_ALERT_PROTOCOL_VERSION", "NO_PROTOCOLS_AVAILABLE")

    play(settings_of(tmp_path, certificates.properties()), main)


def test_a_client_that_trusts_another_authority_ends(tmp_path, certificates):
    async def main(server, connect):
        client = connect(certificates.client_context(trusts="foreign"))
        await asyncio.sleep(5)
        assert client.error == "CERTIFICATE_VERIFY_FAILED" and client.answers == []
        client.transport.close()
        await asyncio.sleep(5)
        assert not server.connections and server.gate.failures == 1

    play(settings_of(tmp_path, certificates.properties()), main)


# ------------------------------------------------------------------------------------------ hostile connections


def hello(certificates):
    client = Client(certificates.client_context())
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.do_handshake()
    return client._out.read()


def test_slow_handshakes_end_and_hold_up_nothing(tmp_path, certificates, caplog):
    first = hello(certificates)

    async def main(server, connect):
        stuck = [connect(None) for _ in range(20)]
        for at, client in enumerate(stuck):
            client.transport.write(first[: 1 + at * 7])
        await asyncio.sleep(1)
        good = connect(certificates.client_context())
        good.send(1)
        await asyncio.sleep(1)
        assert good.offsets() == [1] and len(server.connections) == 21
        await asyncio.sleep(9)
        assert all(client.lost for client in stuck) and list(server.connections) and server.gate.failures == 20
        assert not good.lost

    play(settings_of(tmp_path, certificates.properties()), main)
    assert [record.levelname for record in caplog.records if record.levelno > logging.DEBUG] == ["WARNING"]
    assert "no handshake within 10 s" in caplog.text


def test_a_handshake_byte_by_byte_has_the_same_end(tmp_path, certificates):
    first = hello(certificates)

    async def main(server, connect):
        client = connect(None)
        for at in range(len(first)):
            client.transport.write(first[at : at + 1])
            await asyncio.sleep(0.5)
            if client.lost:
                break
        assert client.lost and asyncio.get_running_loop().time() < 11

    play(settings_of(tmp_path, certificates.properties()), main)


@pytest.mark.parametrize("seed", range(30))
def test_changed_handshakes_and_garbage_close_their_connection_only(tmp_path, certificates, seed, caplog):
    """A fuzzer of the port: garbage after 0x16, changed and cut hellos, garbage after a good handshake."""
    chance = random.Random(seed)
    first = hello(certificates)

    async def main(server, connect):
        good = connect(certificates.client_context())
        good.send(1)
        bad = []
        for _ in range(10):
            data = bytearray(first)
            way = chance.randrange(4)
            if way == 0:
                data = bytearray(b"\x16") + chance.randbytes(chance.randrange(600))
            elif way == 1:
                for _ in range(chance.randint(1, 8)):
                    data[chance.randrange(1, len(data))] = chance.randrange(256)
            elif way == 2:
                del data[chance.randrange(1, len(data)) :]
                data += chance.randbytes(chance.randrange(300))
            else:
                at = chance.randrange(1, len(data))
                data[at:at] = chance.randbytes(chance.randrange(70_000))
            bad.append(connect(None))
            bad[-1].transport.write(bytes(data))
        late = connect(certificates.client_context())
        await asyncio.sleep(2)
        late.transport.write(b"\x17\x03\x03\x00\x20" + chance.randbytes(32))
        good.send(2)
        await asyncio.sleep(11)
        assert good.offsets() == [1, 2] and not good.lost and late.lost
        assert all(client.lost for client in bad) and len(server.connections) == 1
        assert server.gate.failures == 11

    play(settings_of(tmp_path, certificates.properties()), main, seed=seed)
    assert "Traceback" not in caplog.text and len([r for r in caplog.records if r.levelno > logging.INFO]) == 1


def test_garbage_within_tls_is_not_the_protocol(tmp_path, certificates, caplog):
    async def main(server, connect):
        client = connect(certificates.client_context())
        await asyncio.sleep(2)
        client.tls.write(b"\xff" * 100)
        client.transport.write(client._out.read())
        await asyncio.sleep(2)
        assert client.lost

    play(settings_of(tmp_path, certificates.properties()), main)
    assert "this is not RocketMQ's protocol" in caplog.text


# ------------------------------------------------------------------------------------------ the end


def test_a_client_that_says_that_it_ends_is_closed(tmp_path, certificates):
    async def main(server, connect):
        client = connect(certificates.client_context())
        client.send(1)
        await asyncio.sleep(2)
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.unwrap()
        client.transport.write(client._out.read())
        await asyncio.sleep(2)
        assert client.lost and not server.connections and server.gate.failures == 0

    play(settings_of(tmp_path, certificates.properties()), main)


def test_the_server_ends_in_order(tmp_path, certificates):
    async def main(server, connect):
        client, shaking, silent = connect(certificates.client_context()), connect(None), connect(None)
        shaking.transport.write(hello(certificates)[:20])
        client.send(1)
        client.send(7, topic="held")
        await asyncio.sleep(2)
        ending = asyncio.ensure_future(server.close())
        await asyncio.sleep(0.5)
        server._processors[30].held[0].later(Answer(values={"offset": 7}))
        await ending
        await asyncio.sleep(2)
        assert client.offsets() == [1, 7] and client.lost and shaking.lost and silent.lost

    play(settings_of(tmp_path, certificates.properties()), main)


# ------------------------------------------------------------------------------------------ files


@pytest.fixture
def files(tmp_path, certificates):
    """Copies of a certificate and its key, which a test may replace; replace(name) does."""

    class Files:
        def __init__(self):
            self.key, self.cert, self.trust = (tmp_path / name for name in ("s.key", "s.pem", "trust.pem"))
            self.replace("server")
            self.trust.write_bytes(certificates.cert("ca").read_bytes())
            self.text = f"tls.server.keyPath={self.key}\ntls.server.certPath={self.cert}\n"

        def replace(self, name, key=True, cert=True):
            if key:
                self.key.write_bytes(certificates.key(name).read_bytes())
            if cert:
                self.cert.write_bytes(certificates.cert(name).read_bytes())

    return Files()


def test_changed_certificates_count_for_new_connections(tmp_path, certificates, files, caplog):
    async def main(server, connect):
        running = asyncio.ensure_future(server.gate.contexts.run())
        old = connect(certificates.client_context())
        files.replace("stranger", key=False)  # not yet its key
        await asyncio.sleep(5)
        still = connect(certificates.client_context())
        await asyncio.sleep(5)
        files.replace("stranger")
        await asyncio.sleep(5)
        refused, new = connect(certificates.client_context()), connect(certificates.client_context(trusts="foreign"))
        await asyncio.sleep(1)
        for client in (old, still, new):
            client.send(1)
        await asyncio.sleep(1)
        assert [client.offsets() for client in (old, still, new)] == [[1]] * 3
        assert refused.error == "CERTIFICATE_VERIFY_FAILED"
        running.cancel()

    play(settings_of(tmp_path, files.text), main)
    texts = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len([text for text in texts if text.startswith("the changed files for TLS are not used")]) == 1


def test_changed_authorities_count_too(tmp_path, certificates, files):
    text = files.text + (
        f"tls.server.need.client.auth=require\ntls.server.authClient=true\ntls.server.trustCertPath={files.trust}\n"
    )

    async def main(server, connect):
        running = asyncio.ensure_future(server.gate.contexts.run())
        files.trust.write_bytes(certificates.cert("foreign").read_bytes())
        await asyncio.sleep(5)
        clients = [connect(certificates.client_context(name)) for name in ("client", "stranger")]
        for client in clients:
            client.send(1)
        await asyncio.sleep(5)
        assert [client.offsets() for client in clients] == [[], [1]]
        running.cancel()

    play(settings_of(tmp_path, text), main)


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", None])
def test_broken_or_missing_files_keep_the_old_ones(tmp_path, certificates, files, text, caplog):
    settings = settings_of(tmp_path, files.text)
    contexts = TlsContexts(settings, in_thread=False)
    before = contexts.server
    if text is None:
        files.cert.unlink()
    else:
        files.cert.write_text(text)
    for _ in range(5):
        contexts.poll()
    assert contexts.server is before and len(caplog.records) == 1
    files.replace("server")
    contexts.poll()
    assert contexts.server is not before and len(caplog.records) == 1


@pytest.mark.parametrize(
    "error",
    [ssl.SSLError(1, "no memory for a context"), OSError(24, "Too many open files"), PermissionError(13, "denied")],
)
@pytest.mark.parametrize("at", ["SSLContext", "load_cert_chain", "load_verify_locations"])
def test_an_error_while_files_are_read_keeps_the_old_ones(tmp_path, files, error, at, caplog, monkeypatch):
    """The files are the same when the error is gone, so the next look tries again. The service must not end."""
    text = files.text + f"tls.server.authClient=true\ntls.server.trustCertPath={files.trust}\n"
    settings = settings_of(tmp_path, text + "tls.server.need.client.auth=optional\n")

    def fail(*args):
        error.reason = "of OpenSSL"
        raise error

    async def main():
        contexts = TlsContexts(settings, in_thread=False)
        before = contexts.server
        running = asyncio.ensure_future(contexts.run())
        files.replace("stranger")
        with monkeypatch.context() as patched:
            patched.setattr(ssl if at == "SSLContext" else ssl.SSLContext, at, fail)
            await asyncio.sleep(5)
        assert contexts.server is before and not running.done()
        await asyncio.sleep(2)
        assert contexts.server is not before and not running.done()
        running.cancel()

    virtual.run(main())
    found = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(found) == 1 and found[0].startswith("the changed files for TLS are not used, the old ones stay: ")


def test_a_file_without_permission_keeps_the_old_ones(tmp_path, files, caplog, monkeypatch):
    contexts = TlsContexts(settings_of(tmp_path, files.text), in_thread=False)
    before = contexts.server

    def stat(path):
        raise PermissionError(13, "Permission denied", path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", stat)
        patched.setattr(ssl.SSLContext, "load_cert_chain", lambda *args: stat(args[1]))
        for _ in range(3):
            contexts.poll()
        assert contexts.server is before and len(caplog.records) == 1
    contexts.poll()
    assert contexts.server is before  # the same files as before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tls.server.keyPath={key}\n", "needs tls.server.certPath and tls.server.keyPath"),
        ("tls.test.mode.enable=false\n", "needs tls.server.certPath and tls.server.keyPath"),
        ("tls.server.keyPath={other}\ntls.server.certPath={cert}\n", "not a certificate in PEM with its key"),
        ("tls.server.keyPath={cert}\ntls.server.certPath={cert}\n", "not a certificate in PEM with its key"),
        ("tls.server.keyPath={locked}\ntls.server.certPath={cert}\n", "not a certificate in PEM with its key"),
        ("tls.server.keyPath={locked}\ntls.server.certPath={cert}\ntls.server.keyPassword=wrong-password\n",
         "not a certificate in PEM with its key"),
        ("tls.server.keyPath=/missing\ntls.server.certPath={cert}\n", "No such file"),
        ("tls.server.keyPath={key}\ntls.server.certPath={cert}\ntls.server.need.client.auth=require\n",
         "would accept each certificate"),
        ("tls.server.keyPath={key}\ntls.server.certPath={cert}\ntls.server.need.client.auth=require\n"
         "tls.server.authClient=true\ntls.server.trustCertPath={key}\n", "not certificates in PEM"),
        ("tls.server.keyPath={key}\ntls.server.certPath={cert}\ntls.server.need.client.auth=require\n"
         "tls.server.authClient=true\ntls.server.trustCertPath=/missing\n", "No such file"),
        ("tls.server.need.client.auth=sometimes\n", "use one of none, optional, require"),
        ("tls.server.authClient=1\n", "allowed are true and false"),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(tmp_path, certificates, text, says):
    paths = {"key": certificates.key("server"), "cert": certificates.cert("server")}
    paths |= {"other": certificates.key("client"), "locked": certificates.key("locked")}
    with pytest.raises(ValueError, match=says) as error:
        TlsContexts(settings_of(tmp_path, text.format(**paths)), in_thread=False)
    assert "wrong-password" not in str(error.value)


def test_an_encrypted_key(tmp_path, certificates):
    settings = settings_of(tmp_path, certificates.properties("locked", server_keyPassword=certificates.password))
    assert isinstance(server_context(settings), ssl.SSLContext)
    assert certificates.password not in repr(settings)


def test_settings(tmp_path, certificates):
    assert tls_settings(config_file="") == TlsSettings()
    assert tls_settings("ENFORCING", config_file="").is_client_tls
    assert not tls_settings("enforcing", "false", "").is_client_tls
    assert tls_settings("disabled", "true", "").is_client_tls
    mutual = settings_of(tmp_path, certificates.mutual(), "enforcing")
    assert mutual.is_mutual and not mutual.is_test and mutual.client_auth is ClientAuth.REQUIRE
    assert not settings_of(tmp_path, certificates.mutual()).is_mutual
    in_test_mode = certificates.mutual() + "\ntls.test.mode.enable=true\n"
    assert not settings_of(tmp_path, in_test_mode, "enforcing").is_mutual  # no certificate is checked
    with pytest.raises(ValueError, match="would accept each certificate"):
        settings_of(tmp_path, "tls.server.need.client.auth=require\n")
    assert settings_of(tmp_path, certificates.properties(test_mode_enable="true")).is_test
    with pytest.raises(ValueError, match="use one of disabled, permissive, enforcing"):
        tls_settings("enforced")
    with pytest.raises(ValueError, match=r"tls\.enable"):
        tls_settings(enable="yes")
    with pytest.raises(ValueError, match=r"No such file or directory; it is the file of tls\.config\.file"):
        tls_settings(config_file=str(tmp_path / "missing"))


def test_the_system_decides_whom_to_trust_without_a_file(certificates):
    identity = Identity(str(certificates.key("server")), str(certificates.cert("server")), is_checked=True)
    settings = TlsSettings(is_test=False, client_auth=ClientAuth.REQUIRE, server=identity, client=identity)
    assert server_context(settings).verify_mode == client_context(settings).verify_mode == ssl.CERT_REQUIRED


# ------------------------------------------------------------------------------------------ the test mode


def test_the_test_mode_makes_its_certificate_for_the_first_connection(monkeypatch, certificates):
    made = []
    run = subprocess.run

    def note(*arguments, **how):
        made.append(arguments)
        return run(*arguments, **how)

    monkeypatch.setattr(subprocess, "run", note)

    async def main(server, connect):
        plain = connect(None)
        plain.send(1)
        await asyncio.sleep(1)
        assert plain.offsets() == [1] and made == []
        secret = [connect(client_context(TlsSettings())) for _ in range(3)]
        for client in secret:
            client.send(1)
        await asyncio.sleep(5)
        assert [client.offsets() for client in secret] == [[1]] * 3 and len(made) == 1

    play(TlsSettings(), main)


def test_without_openssl_tls_connections_of_the_test_mode_are_closed(monkeypatch, caplog):
    monkeypatch.setenv("PATH", "")

    async def main(server, connect):
        clients = [connect(client_context(TlsSettings())) for _ in range(3)]
        await asyncio.sleep(5)
        assert all(client.lost for client in clients) and server.gate.failures == 3
        plain = connect(None)
        plain.send(1)
        await asyncio.sleep(5)
        assert plain.offsets() == [1]

    play(TlsSettings(), main)
    assert "the command openssl cannot make a certificate" in caplog.text and len(caplog.records) == 1
    with pytest.raises(ValueError, match="the command openssl"):
        TlsContexts(TlsSettings(TlsMode.ENFORCING))


# ------------------------------------------------------------------------------------------ real sockets and loops


def on(loop, main):
    if loop == "uvloop":
        uvloop = pytest.importorskip("uvloop")
        new = uvloop.new_event_loop()
    else:
        new = asyncio.new_event_loop()
    problems = []
    new.set_exception_handler(lambda _, context: problems.append(context))
    try:
        new.run_until_complete(asyncio.wait_for(main(), 20))
    finally:
        new.close()
    assert problems == []


def test_a_channel_does_not_wait_for_the_end_of_tls():
    """The loop may end before the peer has answered."""
    done = []

    class Transport(asyncio.Transport):
        def get_extra_info(self, name, default=None):
            return "an object" if name == "ssl_object" else default

        def is_closing(self):
            return False

        def writelines(self, data):
            pass

        def abort(self):
            done.append("abort")

        def close(self):
            done.append("close")

    async def main():
        async def connect(factory):
            factory().connection_made(Transport())

        channel = Channel(connect, random.Random(1))
        await channel.send(30, {"topic": "t", "queueId": 1}, 5.0)
        channel.close()
        assert done == ["abort"]

    virtual.run(main())


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_on_sockets(tmp_path, certificates, loop, caplog):
    settings = settings_of(tmp_path, certificates.mutual())
    theirs = f"tls.client.keyPath={certificates.key('client')}\ntls.client.certPath={certificates.cert('client')}\n"
    theirs += f"tls.client.authServer=true\ntls.client.trustCertPath={certificates.cert('ca')}\n"
    mine = settings_of(tmp_path, theirs)

    async def main():
        gate = TlsGate(TlsContexts(settings), seconds=0.5)
        async with Server([Echo()], tls=gate) as server:
            host, port = await server.listen("127.0.0.1", 0)
            running = asyncio.get_running_loop()

            def plain(protocol):
                return running.create_connection(protocol, host, port)

            secret, without = (tls_connector(client_context(one))(host, port) for one in (mine, TlsSettings()))
            channels = [Channel(connect, random.Random(1)) for connect in (plain, secret)]
            for channel in channels:
                offset = {"topic": "t", "queueId": 200_000}
                calls = [channel.call(30, offset, running.time() + 10) for _ in range(20)]
                assert [len(answer.body) for answer in await asyncio.gather(*calls)] == [200_000] * 20
            other = Channel(without, random.Random(1))
            with pytest.raises(ConnectionError):
                await other.call(30, {"topic": "t", "queueId": 1}, running.time() + 2)
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"\x16\x03")
            began = time.monotonic()
            assert await reader.read() == b"" and 0.2 < time.monotonic() - began < 5
            writer.close()
            for channel in (*channels, other):
                channel.close()
            await asyncio.sleep(0.05)

    with caplog.at_level(logging.INFO):
        on(loop, main)
    assert "Traceback" not in caplog.text
