"""Clients that are slow, half gone or rude, on real sockets: each pays for itself, and the next one is served."""

import contextlib
import json
import resource
import socket
import struct
import time

import pytest
from net.broker_process import broker_process

from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.command import Command, Form

IDLE_BYTES, HEARTBEAT_BYTES = 2048, 4096  # of a connection
CONNECTIONS = 10_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with broker_process(tmp_path_factory.mktemp("broker")) as running:
        yield running
        assert running.errors() == []


class Client:
    """A connection that blocks; each answer must come within 20 s."""

    def __init__(self, broker, **options):
        self.socket = socket.create_connection(("127.0.0.1", broker.port), timeout=20)
        self._decoder, self._frames = FrameDecoder(), []

    def send(self, *commands):
        self.socket.sendall(b"".join(command.encode() for command in commands))

    def answer(self):
        while not self._frames:
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionResetError("closed")
            self._frames += self._decoder.receive(data)
        return Command.decode(*self._frames.pop(0))

    def call(self, code, body=b"", **fields):
        self.send(Command(code, {name: str(value) for name, value in fields.items()}, body, opaque=7))
        return self.answer()

    def reset(self):
        """End the connection with a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.socket.close()


def send_fields(topic="orders", queue_id=0):
    return {
        "a": "shop", "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": 0, "g": 1, "h": 0, "i": "UNIQ_KEY\1K\2",
    }  # fmt: skip


def pull_fields(offset=0, wait=0, count=32):
    return {
        "consumerGroup": "audit", "topic": "orders", "queueId": 0, "queueOffset": offset, "maxMsgNums": count,
        "sysFlag": 6 if wait else 4, "commitOffset": 0, "suspendTimeoutMillis": wait, "subscription": "*",
        "subVersion": 1,
    }  # fmt: skip


def assert_serves(broker):
    """The next client is served at once."""
    began = time.monotonic()
    with Client(broker) as client:
        sent = client.call(310, b"hello", **send_fields())
        assert sent.code == 0
        offset = int(sent.fields["queueOffset"])
        deadline = time.monotonic() + 10
        while (pulled := client.call(11, **pull_fields(offset))).code != 0:
            assert time.monotonic() < deadline, pulled
    assert time.monotonic() - began < 10


def is_closed(client):
    try:
        return client.socket.recv(1 << 20) == b""
    except ConnectionError:
        return True


def test_clients_that_send_one_byte_at_a_time(broker):
    """Slowloris: half frames of many clients do not slow down other clients."""
    frame = Command(310, {k: str(v) for k, v in send_fields().items()}, b"slow").encode()
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(Client(broker)) for _ in range(200)]
        for at in range(10):
            for client in slow:
                client.socket.send(frame[at : at + 1])
        assert_serves(broker)
        for client in slow:
            client.socket.sendall(frame[10:])
        assert {client.answer().code for client in slow} == {0}


def test_clients_that_end_their_side_or_reset(broker):
    for n in range(60):
        client = Client(broker)
        client.send(Command(310, {k: str(v) for k, v in send_fields().items()}, b"x", opaque=n))
        client.send(Command(11, {k: str(v) for k, v in pull_fields(1 << 40, 15_000).items()}, opaque=n))
        if n % 3 == 0:
            client.socket.shutdown(socket.SHUT_WR)
        if n % 3 == 1:
            client.socket.sendall(b"\0\0")
        client.reset() if n % 2 else client.socket.close()
    assert_serves(broker)


def test_a_client_that_never_reads(broker):
    """Its requests wait in its own socket, and its answers are limited."""
    with Client(broker) as client:
        for _ in range(4):
            assert client.call(310, bytes(60_000), **send_fields("orders")).code == 0
        before = broker.anonymous_kib()
        greedy = Client(broker)
        greedy.socket.settimeout(1.0)
        frame = Command(11, {k: str(v) for k, v in pull_fields(0).items()}).encode()
        sent = 0
        with contextlib.suppress(TimeoutError, ConnectionError):
            while sent < 200_000 * len(frame):
                sent += greedy.socket.send(frame * 100)
        assert sent < 100_000 * len(frame)
        assert broker.anonymous_kib() - before < 150 << 10
        assert_serves(broker)
        greedy.reset()
    assert_serves(broker)


@pytest.mark.parametrize(
    "junk",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="tls", marks=pytest.mark.long),  # takes 10 s
        pytest.param(b"\xff" * 100, id="ones"),
        pytest.param(bytes(100), id="zeros"),
    ],
)
def test_other_protocols(broker, junk):
    with Client(broker) as client:
        client.socket.sendall(junk)
        assert is_closed(client)
    assert_serves(broker)


def test_a_frame_that_is_announced_and_never_sent(broker):
    """A length is a claim: nothing is allocated for it."""
    before = broker.anonymous_kib()
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            client = stack.enter_context(Client(broker))
            client.socket.sendall(struct.pack(">II", (16 << 20) - 1, 20) + b"x" * 100)
        assert_serves(broker)
        assert broker.anonymous_kib() - before < 20 << 10


def heartbeat(number):
    subscription = {
        "topic": "orders", "subString": "*", "tagsSet": [], "subVersion": 1, "expressionType": "TAG", "codeSet": [],
    }  # fmt: skip
    consumer = {
        "groupName": f"group-{number % 100}", "consumeType": "CONSUME_PASSIVELY", "messageModel": "BROADCASTING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [subscription],
    }  # fmt: skip
    data = {
        "clientID": f"10.0.0.1@{number}", "consumerDataSet": [consumer],
        "producerDataSet": [{"groupName": "CLIENT_INNER_PRODUCER"}],
    }  # fmt: skip
    return Command(34, {}, json.dumps(data).encode(), number)


@pytest.mark.long
@pytest.mark.measure
def test_ten_thousand_idle_connections(tmp_path):
    """Their memory in the broker, without and with heartbeats; more of them later use the same memory."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(CONNECTIONS, hard - 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 500), hard))
    try:
        with broker_process(tmp_path) as broker:
            assert_serves(broker)
            first = broker.anonymous_kib()
            for turn in range(2):
                with contextlib.ExitStack() as stack:
                    clients = [stack.enter_context(Client(broker)) for _ in range(count)]
                    assert clients[-1].call(99).code == 3
                    idle = (broker.anonymous_kib() - first) * 1024 / count
                    for n, client in enumerate(clients):
                        client.send(heartbeat(n))
                    assert {client.answer().code for client in clients} == {0}
                    beating = (broker.anonymous_kib() - first) * 1024 / count
                    assert_serves(broker)
                print(f"turn {turn}: {count} connections, {idle:.0f} bytes each, {beating:.0f} with heartbeats")
                if turn == 0:
                    assert idle <= IDLE_BYTES and beating <= HEARTBEAT_BYTES
                else:
                    assert beating <= 1.1 * HEARTBEAT_BYTES
            assert broker.errors() == []
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_both_forms_of_a_header(broker):
    with Client(broker) as client:
        command = Command(30, {"topic": "orders", "queueId": "0"}, opaque=3)
        client.socket.sendall(command.encode(Form.ROCKETMQ) + command.encode(Form.JSON))
        assert [client.answer().opaque for _ in range(2)] == [3, 3]
