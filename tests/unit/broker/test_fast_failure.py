"""Sends that have waited for too long in the socket: a busy broker refuses them, in whatever form their headers are."""

import asyncio
import json
import socket
import ssl

import pytest
from simulation import virtual
from simulation.brokers import scene

from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command, Form

pytestmark = pytest.mark.promise(14)

FIELDS = {
    "a": "g", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": "UNIQ_KEY\1K1\2",
}  # fmt: skip


class Socket(asyncio.Transport):
    """A transport whose socket has what the server has not read yet. The test says when it reads."""

    def __init__(self):
        self._far, self._near = socket.socketpair()
        super().__init__({"peername": ("127.0.0.1", 1), "socket": self._near})
        self.decoder, self.answers = FrameDecoder(), []

    def connect(self, protocol):
        self._protocol = protocol
        protocol.connection_made(self)

    def set_protocol(self, protocol):
        self._protocol = protocol

    def arrive(self, data):
        self._far.sendall(data)

    def read(self, size):
        self._protocol.data_received(self._near.recv(size))

    def write(self, data):
        self.answers += [Command.decode(*frame) for frame in self.decoder.receive(data)]

    def writelines(self, pieces):
        self.write(b"".join(pieces))

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass

    def get_write_buffer_size(self):
        return 0

    def is_closing(self):
        return False

    def end(self):
        self._far.close()
        self._near.close()


def frame(header, body=b"late"):
    size = len(header) + 4 + len(body)
    return size.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body


def rewritten(change):
    """A send whose header in JSON is another text for the same values."""

    def made(opaque):
        header = json.loads(Command(310, FIELDS, opaque=opaque).encode()[8:])
        return frame(change(header))

    return made


def go(header):
    order = ("code", "language", "version", "opaque", "flag", "remark", "extFields")
    return json.dumps({"remark": "", **{name: header.get(name, "") for name in order}}).encode()


FORMS = {
    "json": lambda opaque: Command(310, FIELDS, b"late", opaque).encode(),
    "rocketmq": lambda opaque: Command(310, FIELDS, b"late", opaque).encode(Form.ROCKETMQ),
    "negative": lambda opaque: Command(310, FIELDS, b"late", -opaque).encode(),
    "negative rocketmq": lambda opaque: Command(310, FIELDS, b"late", -opaque).encode(Form.ROCKETMQ),
    "other order and blanks": rewritten(go),
    "an unknown member": rewritten(lambda header: json.dumps({"x": 1, **header}).encode()),
    "escapes": rewritten(lambda header: json.dumps(header).replace("opaque", "op\\u0061que").encode()),
    "long names": lambda opaque: Command(
        10,
        {
            "producerGroup": "g", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
            "queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": "UNIQ_KEY\1K1\2",
        },
        b"late",
        opaque,
    ).encode(Form.ROCKETMQ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_send_that_has_waited_is_refused(tmp_path, form):
    """The broker reads, the rest of the socket waits for 0.3 s, and the broker reads again."""

    async def main():
        async with scene(tmp_path) as stage:
            client = stage.client()
            await client.send()
            before = stage.broker.path.sent + stage.store.max_phy_offset
            transport = Socket()
            transport.connect(stage.broker.server.connection())
            first = Command(310, FIELDS, bytes(20_000), 1000).encode()
            late = [FORMS[form](opaque) for opaque in range(1, 6)]
            transport.arrive(first + b"".join(late))
            transport.read(len(first))
            assert [answer.code for answer in transport.answers] == [0]
            between = stage.store.max_phy_offset
            await asyncio.sleep(0.3)
            transport.read(1 << 20)
            await asyncio.sleep(0.1)
            assert between > before and stage.store.max_phy_offset == between
            assert [answer.code for answer in transport.answers[1:]] == [Code.SYSTEM_BUSY] * 5
            assert [abs(answer.opaque) for answer in transport.answers[1:]] == [1, 2, 3, 4, 5]
            assert transport.answers[1].remark.startswith("[TIMEOUT_CLEAN_QUEUE]")
            assert stage.broker.server.overdue == 5
            transport.arrive(late[0])
            transport.read(1 << 20)
            await asyncio.sleep(0.1)
            assert transport.answers[-1].code == 0  # it has not waited
            transport.end()

    virtual.run(main())


def test_sends_that_have_waited_for_the_limits_take_the_compiled_path(tmp_path):
    """A peer that does not read its answers costs less then. Requests keep their order."""

    async def main():
        async with scene(tmp_path) as stage:
            await stage.client().send()
            transport, path = Socket(), stage.broker.path
            connection = stage.broker.server.connection()
            transport.connect(connection)
            transport.arrive(Command(310, FIELDS, b"first", 1000).encode())
            transport.read(1 << 20)
            transport._protocol.pause_writing()
            before = path.sent
            for opaque in range(1, 31):
                form = "an unknown member" if opaque % 10 == 0 else "rocketmq"
                transport.arrive(FORMS[form](opaque))
            transport.read(1 << 20)
            assert (path.sent, len(transport.answers)) == (before, 1)
            transport._protocol.resume_writing()
            await asyncio.sleep(0.1)
            assert [abs(answer.opaque) for answer in transport.answers[1:]] == list(range(1, 31))
            offsets = [int(answer.fields["queueOffset"]) for answer in transport.answers]
            assert offsets == list(range(offsets[0], offsets[0] + 31)) and path.sent == before + 27
            transport.end()

    virtual.run(main())


class TlsSocket(Socket):
    """The same with TLS: encrypted() returns what the client sends."""

    def __init__(self, context):
        super().__init__()
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls, self._is_open = context.wrap_bio(self._in, self._out), False

    def encrypted(self, data):
        self._tls.write(data)
        return self._out.read()

    def shake_hands(self):
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.arrive(self._out.read())
                self.read(1 << 20)
        self._is_open = True
        self.arrive(self._out.read())
        self.read(1 << 20)

    def write(self, data):
        self._in.write(data)
        while self._is_open:
            try:
                data = self._tls.read(1 << 20)
            except ssl.SSLError:
                return
            self._is_open = data != b""
            super().write(data)


def test_a_send_that_has_waited_in_tls_is_refused(tmp_path, certificates):
    """What has waited is encrypted; the bytes of the socket count, not those of the frames."""
    file = tmp_path / "tls.properties"
    file.write_text(
        f"tls.server.keyPath={certificates.key('server')}\ntls.server.certPath={certificates.cert('server')}\n"
    )

    async def main():
        async with scene(tmp_path / "store", tls_config_file=str(file)) as stage:
            await stage.client().send()
            transport = TlsSocket(certificates.client_context())
            transport.connect(stage.broker.server.connection())
            transport.shake_hands()
            first = transport.encrypted(Command(310, FIELDS, bytes(20_000), 1000).encode())
            late = transport.encrypted(b"".join(FORMS["json"](opaque) for opaque in range(1, 6)))
            transport.arrive(first + late)
            transport.read(len(first))
            await asyncio.sleep(0.3)
            transport.read(1 << 20)
            await asyncio.sleep(0.1)
            assert [answer.code for answer in transport.answers] == [0] + [Code.SYSTEM_BUSY] * 5
            transport.arrive(transport.encrypted(FORMS["json"](7)))
            transport.read(1 << 20)
            await asyncio.sleep(0.1)
            assert transport.answers[-1].code == 0
            transport.end()

    virtual.run(main())
