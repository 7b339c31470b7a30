"""rocketc top of a broker: its answers as tables and JSON, and errors for other servers."""

import asyncio
import json
import signal
import socket
import threading
import time

import pytest
from unit.cli.scripted_server import TABLE, table

import rocketc
from rocketc.cli import top_broker
from rocketc.cli.top_broker import BrokerReader, broker_address
from rocketc.cli.top_screen import Top
from rocketc.errors import StoreIOError
from rocketc.remoting.command import Command
from rocketc.report.broker_rates import BrokerRates, BrokerSnapshot, draw_broker
from rocketc.report.tables import render


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
        assert f"it is a name server; give the address of a broker: {broker.address} (broker-a); or add /TOPIC\n" in err


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
    with pytest.raises(StoreIOError, match=r"INFO was answered with 1 \(SYSTEM_ERROR\): no permission"):
        BrokerReader(url).read()


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b'{"table":7}', b'{"table":null}', b"\xff\xfe", b"[" * 99_999]
)
def test_an_answer_that_is_not_a_table(serve, body):
    with pytest.raises(StoreIOError, match=r"the answer .*(cannot be read|is not a table of a broker)"):
        BrokerReader(serve(lambda code: Command(0, body=body))).read()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "the server closed it without any answer; it may accept only TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the server on this port speaks HTTP, and not RocketMQ's protocol"),
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
                                 "rocketmq://a:0", "rocketmq://a:65536"])  # fmt: skip
def test_wrong_addresses(url, run_here):
    with pytest.raises(ValueError, match="give the address of a broker"):
        broker_address(url)
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


def test_a_read_in_a_program_with_a_loop(serve):
    """The screen of top runs one."""

    async def main():
        reader = BrokerReader(serve(lambda code: table()))
        try:
            return reader.read().table
        finally:
            reader.close()

    before = threading.active_count()
    assert asyncio.run(main()) == TABLE
    assert threading.active_count() <= before + 2  # those of the test's server


def test_ctrl_c_during_a_wait(serve, monkeypatch):
    """It does not wait for the answer."""
    asked = threading.Event()
    reader = BrokerReader(serve(lambda code: asked.set() or time.sleep(2)))

    def interrupt():
        asked.wait()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        reader.read()
    reader.close()
    assert time.monotonic() - started < 1.5


def test_the_screen_of_a_broker(serve):
    url = serve(lambda code: table())

    async def look():
        app = Top(url, BrokerReader(url), 0.1, "messages", "topics", between=BrokerRates.between, draw=draw_broker)
        async with app.run_test(size=(100, 24)) as pilot:
            while "V5_3_3" not in app.export_screenshot():
                await pilot.pause(0.05)
            await pilot.press("q")
        app._watch.close()
        assert app.return_code == 0

    asyncio.run(asyncio.wait_for(look(), 20))
