"""Requests that have waited for too long: they are recognized without being parsed, and answered busy."""

import asyncio
import json
import socket
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketc.broker.config import BrokerConfig
from rocketc.broker.fast_failure import patience
from rocketc.remoting._busy import BusyAnswers, outline
from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command, Flag, Form
from rocketc.remoting.server import Answer, Server

USUAL = (
    b'{"code":310,"extFields":{"i":"TAGS\\u0001A"},"flag":0,"language":"JAVA","opaque":12,'
    b'"serializeTypeCurrentRPC":"JSON","version":479}'
)


def test_a_header_as_rocketmq_writes_it():
    assert outline(USUAL, usual=True) == outline(USUAL) == (310, 12, 0)


@given(
    code=st.integers(0, (1 << 31) - 1),
    fields=st.dictionaries(st.text(), st.text() | st.sampled_from(["}", '},"flag":9', '"}']), min_size=1),
    opaque=st.integers(0, (1 << 31) - 1),
    flag=st.integers(0, 3),
)
def test_it_has_the_numbers_that_the_parser_finds(code, fields, opaque, flag):
    header = Command(code, fields, opaque=opaque, flag=flag).encode()[8:]
    assert outline(header, usual=True) == outline(header) == (code, opaque, flag)


@given(
    code=st.integers(-(1 << 15), (1 << 15) - 1),
    opaque=st.integers(-(1 << 31), (1 << 31) - 1),
    flag=st.integers(0, 3),
    form=st.sampled_from(Form),
)
def test_it_has_the_numbers_of_each_form(code, opaque, flag, form):
    header = Command(code, {"a": "1"}, opaque=opaque, flag=flag, remark="x").encode(form)[8:]
    assert outline(header, form) == (code, opaque, flag)


@pytest.mark.parametrize("size", range(21))
def test_a_header_in_the_rocketmq_form_that_is_too_short(size):
    assert outline(bytes(size), Form.ROCKETMQ) is None and outline(bytes(21), Form.ROCKETMQ) == (0, 0, 0)


@pytest.mark.parametrize("header", [b'{"x":1,"code":310}', b'{"code":310', b"", b"[]", b'{"c\\u006fde":310}'])
def test_what_only_json_may_decode(header):
    assert outline(header) is None


@given(st.data())
def test_a_header_with_changed_bytes_is_never_misread(data):
    """Either it is left to the parser, or the parser finds the same numbers."""
    changed = bytearray(USUAL)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"}", b'"'])
        )
    found = outline(bytes(changed), usual=True)
    if found is not None:
        try:
            told = json.loads(bytes(changed))
        except ValueError:
            return  # it is refused in any case
        assert found == (told["code"], told["opaque"], told["flag"])


@pytest.mark.parametrize("cut", range(len(USUAL)))
def test_a_header_that_ends_too_early(cut):
    assert outline(USUAL[:cut], usual=True) is None and outline(USUAL[:cut]) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"opaque":12', b'"opaque":2147483648'),
        (b'"opaque":12', b'"opaque":-1'),
        (b'"opaque":12', b'"opaque": 12'),
        (b'"flag":0', b'"flag":x'),
        (b'"JAVA"', b'"Java"'),
        (b'"JAVA"', b'"' + b"J" * 17 + b'"'),
        (b'"JSON"', b'"JSN"'),
        (b'"version":479', b'"version":'),
        (b'"code":310', b'"code":99999999999'),
        (b'"version":479}', b'"version":479} '),
    ],
)
def test_other_headers_are_left_to_the_parser(old, new):
    assert outline(USUAL.replace(old, new), usual=True) is None


def test_the_answers():
    opaques = [0, 7, 12_345, (1 << 31) - 1, -1, -12_345, -(1 << 31)] * 100
    decoder = FrameDecoder()
    found = [Command.decode(*frame) for frame in decoder.receive(BusyAnswers({}, 0.203).answers(*opaques))]
    assert [one.opaque for one in found] == opaques
    assert {(one.code, one.flag) for one in found} == {(Code.SYSTEM_BUSY, Flag.ANSWER)}
    assert found[0].remark.startswith("[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in")


class Slow:
    """Answers GET_MAX_OFFSET. The first one stops the loop for a while."""

    codes = (30,)

    def __init__(self, seconds):
        self.seconds, self.done = seconds, 0

    def process(self, call):
        self.done += 1
        if self.done == 1:
            time.sleep(self.seconds)
        return Answer(values={"offset": 1})


class Reader(asyncio.Protocol):
    """Notes the answers by code."""

    def __init__(self):
        self.decoder, self.codes = FrameDecoder(), Counter()

    def data_received(self, data):
        for frame in self.decoder.receive(data):
            self.codes[Command.decode(*frame).code] += 1


def loops():
    yield asyncio.new_event_loop
    try:
        import uvloop
    except ImportError:
        return
    yield uvloop.new_event_loop


@pytest.mark.some(3)
@pytest.mark.parametrize("new_loop", list(loops()))
@pytest.mark.parametrize(("seconds", "is_busy", "oneway"), [(0.3, True, 0), (0.3, True, 2), (0.0, False, 0)])
def test_a_loop_that_is_late(new_loop, seconds, is_busy, oneway):
    """What had arrived before the loop stopped is refused; the requests after that are processed."""
    count = 20_000

    async def main():
        slow = Slow(seconds)
        async with Server([slow], patience={30: 0.2 if is_busy else 60}) as server:
            host, port = await server.listen("127.0.0.1", 0)
            frames = b"".join(
                Command(30, {"topic": "orders", "queueId": "0"}, opaque=i, flag=oneway).encode() for i in range(count)
            )
            transport, reader = await asyncio.get_running_loop().create_connection(Reader, host, port)
            transport.write(frames)
            transport.write(Command(30, {"topic": "orders", "queueId": "0"}, opaque=count).encode())
            expected = 1 if oneway else count + 1
            while sum(reader.codes.values()) < expected:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)  # nothing waits meanwhile
            before = reader.codes[Code.SUCCESS]
            transport.write(Command(30, {"topic": "orders", "queueId": "0"}, opaque=1).encode())
            while reader.codes[Code.SUCCESS] == before:
                await asyncio.sleep(0.01)
            transport.close()
            return slow.done, server.overdue, reader.codes

    loop = new_loop()
    try:
        done, overdue, codes = loop.run_until_complete(asyncio.wait_for(main(), 20))
    finally:
        loop.close()
    assert done + overdue == count + 2
    assert (overdue > 0) == is_busy
    if not oneway:
        assert codes == Counter({Code.SUCCESS: done, Code.SYSTEM_BUSY: overdue}) - Counter()


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="the system does not have the option")
@pytest.mark.parametrize("new_loop", list(loops()))
def test_the_kernel_does_not_hold_much_for_a_peer_that_does_not_read(new_loop):
    """1,000 such peers made it hold 2.4 GB."""

    async def main():
        async with Server([Slow(0)]) as server:
            host, port = await server.listen("127.0.0.1", 0)
            transport, _ = await asyncio.get_running_loop().create_connection(Reader, host, port)
            while not server.connections:
                await asyncio.sleep(0.01)
            [connection] = server.connections
            option = connection._socket_option(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)
            transport.close()
            return option

    loop = new_loop()
    try:
        assert loop.run_until_complete(main()) == 256 << 10
    finally:
        loop.close()


def test_the_patience_of_a_broker():
    found = patience(BrokerConfig(wait_time_mills_in_send_queue=100, wait_time_mills_in_heartbeat_queue=7000))
    assert {found[code] for code in (10, 310, 320, 36)} == {0.1} and found[34] == 7.0 and found[203] == 0.5
