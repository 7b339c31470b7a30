"""rocketc top of a broker: its answers as tables and JSON, and errors for other servers."""

import json
import socket
import threading
import time

import pytest

import rocketc
from rocketc.cli import top_broker
from rocketc.cli.top_broker import BrokerReader, split_address
from rocketc.errors import StoreIOError
from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.command import Command, Flag
from rocketc.report.broker_rates import BrokerRates, BrokerSnapshot, draw_broker
from rocketc.report.tables import render

TABLE = {
    "bootTimestamp": "1", "brokerVersionDesc": "V5_3_3", "runtime": "[ 0 days, 1 hours, 2 minutes, 3 seconds ]",
    "putMessageTimesTotal": "100", "msgGetTotalTodayNow": "40", "commitLogMinOffset": "0", "commitLogMaxOffset": "9000",
    "putTps": "2.5 1234.7 ", "getTransferredTps": "0.0  ", "dispatchBehindBytes": "0", "commitLogDiskRatio": "0.18",
    "remainHowManyDataToFlush": "1.2 KiB", "putLatency99": "0.05", "putLatency999": "1.20",
    "earliestMessageTimeStamp": "-1",
}  # fmt: skip


class Server:
    """Answers each request with what `answer(code)` returns: a Command, bytes, or None for a closed connection."""

    def __init__(self, answer):
        self._answer, self.requests = answer, []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"rocketmq://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                peer, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer):
        decoder = FrameDecoder()
        with peer:
            while data := peer.recv(4096):
                for frame in decoder.receive(data):
                    request = Command.decode(*frame)
                    self.requests.append(request.code)
                    answer = self._answer(request.code)
                    if answer is None:
                        return
                    if isinstance(answer, Command):
                        answer.opaque, answer.flag = request.opaque, Flag.ANSWER
                        answer = answer.encode()
                    peer.sendall(answer)

    def close(self):
        self._listening.close()


@pytest.fixture
def serve():
    servers = []

    def start(answer):
        servers.append(Server(answer))
        return servers[-1].url

    yield start
    for server in servers:
        server.close()


def table(**changes):
    return Command(0, body=json.dumps({"table": {**TABLE, **changes}}).encode())


def test_a_broker(run):
    with rocketc.Broker() as broker:
        url = f"rocketmq://{broker.address}"
        for n in range(10):
            broker.store.put("orders", b"hello", queue_id=n % 4)
        code, out, err = run("top", url, "--json", "-n", "0.1")
        assert (code, err) == (0, "")
        found = json.loads(out)
        assert found["path"] == url and found["endOffset"] == broker.store.max_phy_offset > 0
        assert found["broker"]["brokerVersionDesc"] == "V5_3_3" and found["broker"]["putMessageTimesTotal"] == "10"
        assert abs(found["time"] - time.time() * 1000) < 60_000
        code, out, err = run("top", url, "--once", "-n", "0.1")
        assert (code, err) == (0, "") and "messages in" in out
        code, out, err = run("top", f"rocketmq://{broker.name_server}", "--once")
        assert (code, out) == (3, "")
        assert f"it is a name server; give the address of a broker: {broker.address} (broker-a)" in err


def test_the_table(serve):
    reader = BrokerReader(serve(lambda code: table()))
    before = reader.read()
    now = BrokerSnapshot(before.time + 2000, {**TABLE, "putMessageTimesTotal": "300", "commitLogMaxOffset": "13096"})
    text = render(draw_broker("rocketmq://a:1", BrokerRates.between(before, now), "messages", "topics"), color=False)
    reader.close()
    assert "rocketmq://a:1, V5_3_3, up for 0 days, 1 hours, 2 minutes, 3 seconds" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["in", "100", "messages/s,", "2.0", "KiB/s"] in lines
    assert ["out", "0", "messages/s"] in lines
    assert ["log", "0", "to", "13096", "(12.8", "KiB)"] in lines
    assert ["flush", "1.2", "KiB", "behind"] in lines and ["disk", "18%", "used"] in lines
    assert ["2.5", "1,235", "-", "messages", "in"] in lines
    assert ["-", "-", "-", "pulls", "without"] in lines


def test_a_broker_of_rocketmq_4_and_one_that_tells_nothing():
    old = BrokerSnapshot(1000, {"getTransferedTps": "1.0 2.0 3.0"})
    assert old.triple("getTransferredTps") == [1.0, 2.0, 3.0]
    nothing = BrokerRates.between(BrokerSnapshot(0, {}), BrokerSnapshot(1000, {"putTps": "x y z w"}))
    assert (nothing.messages_per_second, nothing.bytes_per_second) == (None, 0.0)
    assert "messagesPerSecond" not in nothing.to_dict()
    assert "? messages/s" in render(draw_broker("b", nothing, "", ""), color=False)


def test_a_restart_between_two_answers():
    before, now = BrokerSnapshot(0, TABLE), BrokerSnapshot(1000, {**TABLE, "bootTimestamp": "2"})
    assert BrokerRates.between(before, now).messages_per_second == 0.0
    assert BrokerRates.between(before, before).messages_per_second == 0.0


def test_a_name_server_of_java(serve):
    """fastjson writes the broker ids without quotes."""
    body = b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"b"}}}'
    url = serve(lambda code: Command(0, body=body) if code == 106 else Command(3, remark="not supported"))
    with pytest.raises(StoreIOError, match=r"name server; .*10\.0\.0\.1:10911 \(b\), 10\.0\.0\.2:10911 \(b\)"):
        BrokerReader(url).read()


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"brokerAddrTable":7}', b'{"brokerAddrTable":{"b":[]}}', b"[" * 99_999]
)
def test_a_server_that_refuses(serve, body):
    url = serve(lambda code: Command(0, body=body) if code == 106 else Command(1, remark="no permission"))
    with pytest.raises(StoreIOError, match="the answer is code 1: no permission"):
        BrokerReader(url).read()


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b'{"table":7}', b'{"table":null}', b"\xff\xfe", b"[" * 99_999]
)
def test_an_answer_that_is_not_a_table(serve, body):
    with pytest.raises(StoreIOError, match="the answer is not a table of a broker"):
        BrokerReader(serve(lambda code: Command(0, body=body))).read()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "the connection was closed"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak RocketMQ's protocol"),
        (b"\0\0\0\x08\0\0\0\x04{]{]", "the header is not JSON"),
        (Command(0).encode(), "no answer"),  # another number
    ],
)
def test_other_servers(serve, answer, text, monkeypatch):
    monkeypatch.setattr(top_broker, "SECONDS", 0.2)
    with pytest.raises(StoreIOError, match=text):
        BrokerReader(serve(lambda code: answer)).read()


def test_it_connects_again(serve):
    answers = [table(), None, table()]
    reader = BrokerReader(serve(lambda code: answers.pop(0)))
    assert reader.read().table == TABLE
    with pytest.raises(StoreIOError):
        reader.read()
    assert reader.read().table == TABLE
    reader.close()


@pytest.mark.parametrize("url", ["rocketmq://", "rocketmq://a", "rocketmq://a:", "rocketmq://:1", "rocketmq://a:x",
                                 "rocketmq://a:0", "rocketmq://a:65536", "rocketmq://a:1/orders"])  # fmt: skip
def test_wrong_addresses(url, run_here):
    with pytest.raises(ValueError, match="give the address of a broker"):
        split_address(url)
    code, _, err = run_here("top", url, "--once")
    assert code == 2 and "give the address of a broker" in err


def test_groups_are_refused(run_here):
    code, _, err = run_here("top", "rocketmq://a:1", "--once", "--groups")
    assert code == 2 and "a broker does not tell the lag of groups" in err


def test_a_port_without_a_server(run_here):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    code, _, err = run_here("top", f"rocketmq://127.0.0.1:{port}", "--json")
    assert code == 3 and "Connection refused" in err
