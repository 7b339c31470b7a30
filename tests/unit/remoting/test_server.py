"""The server on virtual time and on a network in memory that delays and splits."""

import asyncio
import logging
import random
import struct

import pytest
from simulation import virtual

from rocketc.errors import ConnectionLostError, NoAnswerError, NotSentError
from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command, Flag, Form
from rocketc.remoting.connection import Limits
from rocketc.remoting.server import Answer, Server

MAX_OFFSET = {"topic": "orders", "queueId": "3"}


class Client(asyncio.Protocol):
    """A peer that collects answers."""

    def __init__(self):
        self.answers, self.lost, self.paused = [], False, False
        self._decoder = FrameDecoder()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.answers += [Command.decode(*frame) for frame in self._decoder.receive(data)]

    def connection_lost(self, error):
        self.lost = True

    def pause_writing(self):
        self.paused = True

    def resume_writing(self):
        self.paused = False

    def send(self, *commands, form=Form.JSON):
        self.transport.write(b"".join(command.encode(form) for command in commands))

    def codes(self):
        return [answer.code for answer in self.answers]


class Offsets:
    """Answers GET_MAX_OFFSET with the queue id, fails for topic `bad`, holds requests of topics `held` and `long`."""

    codes = (30,)

    def __init__(self):
        self.held, self.processed = [], 0

    def process(self, call):
        self.processed += 1
        if call.values["topic"] == "bad":
            raise RuntimeError("x" * 5000)
        if call.values["topic"] == "held":
            self.held.append(call)
            return None
        if call.values["topic"] == "long":
            self.held.append(call)
            call.hold()
            return None
        if call.values["topic"] in ("large", "huge"):
            return Answer(body=bytes(8000 if call.values["topic"] == "large" else 16 << 20))
        return Answer(values={"offset": call.values["queueId"]}, fields={"MSG_REGION": "here"})


def scene(main, *, seed=1, delay=(0.0, 0.01), **limits):
    """Run main(server, connect, processor) on virtual time; connect() makes a client."""

    async def whole():
        chance, offsets = random.Random(seed), Offsets()
        server = Server([offsets], limits=Limits(**limits), grace=2.0)

        def connect():
            client = Client()
            virtual.link(client, server.connection(), chance, delay)
            return client

        async with server:
            await main(server, connect, offsets)

    virtual.run(whole())


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("form", Form)
def test_pipelined_requests_are_answered(seed, form):
    async def main(server, connect, offsets):
        client = connect()
        client.send(*[Command(30, {"topic": "orders", "queueId": str(n)}, opaque=n) for n in range(50)], form=form)
        await asyncio.sleep(5)
        assert [(a.opaque, a.fields["offset"], a.flag) for a in client.answers] == [
            (n, str(n), Flag.ANSWER) for n in range(50)
        ]
        assert client.answers[0].fields["MSG_REGION"] == "here"

    scene(main, seed=seed)


def test_errors_are_answers(caplog):
    async def main(server, connect, offsets):
        client = connect()
        client.send(
            Command(30, {**MAX_OFFSET, "topic": "bad"}, opaque=1),
            Command(30, {"topic": "orders"}, opaque=2),
            Command(30, {**MAX_OFFSET, "queueId": "x"}, opaque=3),
            Command(9999, opaque=4),
            Command(30, MAX_OFFSET, opaque=5),
        )
        await asyncio.sleep(1)
        assert [(a.opaque, a.code) for a in client.answers] == [(1, 1), (2, 1), (3, 1), (4, 3), (5, 0)]
        remarks = [a.remark for a in client.answers]
        assert remarks[0].startswith("RuntimeError: xxx") and len(remarks[0]) == 1000
        assert remarks[1] == "GET_MAX_OFFSET lacks the field queueId"
        assert "queueId is 'x'" in remarks[2]
        assert remarks[3] == " request type 9999 not supported"

    scene(main)
    assert [r.message.split(": ", 1)[1] for r in caplog.records if r.levelno >= logging.ERROR] == ["request 30 failed"]


def test_oneway_requests_and_answers_are_not_answered():
    async def main(server, connect, offsets):
        client = connect()
        client.send(
            Command(30, MAX_OFFSET, flag=Flag.ONEWAY),
            Command(30, {}, flag=Flag.ONEWAY),
            Command(9999, flag=Flag.ONEWAY),
            Command(0, flag=Flag.ANSWER, opaque=77),
        )
        await asyncio.sleep(1)
        assert client.answers == [] and not client.lost and offsets.processed == 1

    scene(main)


def test_a_request_is_answered_later_and_once():
    async def main(server, connect, offsets):
        client = connect()
        client.send(Command(30, {**MAX_OFFSET, "topic": "held"}, opaque=1), Command(30, MAX_OFFSET, opaque=2))
        await asyncio.sleep(10)
        assert [a.opaque for a in client.answers] == [2]
        [call] = offsets.held
        for offset in (7, 8):
            call.later(Answer(values={"offset": offset}))
        await asyncio.sleep(1)
        assert [(a.opaque, a.fields["offset"]) for a in client.answers[1:]] == [(1, "7")]
        assert {c.in_flight for c in server.connections} == {0}

    scene(main)


def test_a_peer_with_too_many_requests_waits_and_others_do_not():
    async def main(server, connect, offsets):
        greedy, other = connect(), connect()
        greedy.send(*[Command(30, {**MAX_OFFSET, "topic": "held"}, opaque=n) for n in range(50)])
        await asyncio.sleep(1)
        assert len(offsets.held) == 8
        other.send(Command(30, MAX_OFFSET))
        await asyncio.sleep(1)
        assert other.codes() == [0]
        while len(greedy.answers) < 50:
            offsets.held.pop(0).later(Answer())
            await asyncio.sleep(0.1)
            assert len(offsets.held) <= 8
        assert [a.opaque for a in greedy.answers] == list(range(50))

    scene(main, in_flight=8)


def test_the_bytes_of_all_requests_are_limited():
    async def main(server, connect, offsets):
        clients = [connect() for _ in range(5)]
        for client in clients:
            client.send(Command(30, {**MAX_OFFSET, "topic": "held"}, bytes(4000)))
        await asyncio.sleep(1)
        assert len(offsets.held) == 2
        clients[4].transport.cut()  # one that waits goes away
        while offsets.held:
            offsets.held.pop(0).later(Answer())
            await asyncio.sleep(0.1)
            assert len(offsets.held) <= 2
        assert [len(client.answers) for client in clients] == [1, 1, 1, 1, 0]

    scene(main, bytes_in_flight=9000)


def test_a_lost_connection_returns_its_room():
    async def main(server, connect, offsets):
        first, second = connect(), connect()
        first.send(Command(30, {**MAX_OFFSET, "topic": "held"}, bytes(8000)))
        await asyncio.sleep(1)
        second.send(Command(30, MAX_OFFSET, bytes(8000)))
        await asyncio.sleep(1)
        assert second.answers == []
        first.transport.cut()
        await asyncio.sleep(1)
        assert second.codes() == [0] and len(server.connections) == 1
        offsets.held[0].later(Answer())  # too late, and harmless
        await asyncio.sleep(1)
        second.send(Command(30, MAX_OFFSET, bytes(8000)))
        await asyncio.sleep(1)
        assert second.codes() == [0, 0]

    scene(main, bytes_in_flight=9000)


def test_one_request_may_be_larger_than_the_limit_of_all():
    async def main(server, connect, offsets):
        client = connect()
        client.send(Command(30, MAX_OFFSET, bytes(1 << 20)))
        await asyncio.sleep(1)
        assert client.codes() == [0]

    scene(main, bytes_in_flight=9000)


def test_a_peer_that_does_not_read_is_not_read_and_then_closed():
    async def main(server, connect, offsets):
        lazy, other = connect(), connect()
        lazy.transport.pause_reading()
        for n in range(20_000):
            lazy.send(Command(30, MAX_OFFSET, opaque=n))
            if n % 100 == 0:
                await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        assert 0 < offsets.processed < 2000 and not lazy.lost  # its requests wait, and cost nothing more
        other.send(Command(30, MAX_OFFSET))
        await asyncio.sleep(1)
        assert other.codes() == [0]
        lazy.transport.resume_reading()
        await asyncio.sleep(60)
        assert len(lazy.answers) == 20_000

    scene(main, unread=50_000)


def test_a_peer_with_too_many_unread_answers_is_closed(caplog):
    async def main(server, connect, offsets):
        lazy = connect()
        lazy.transport.pause_reading()
        lazy.send(*[Command(30, {**MAX_OFFSET, "topic": "held"}, opaque=n) for n in range(100)])
        await asyncio.sleep(1)
        for call in offsets.held:
            call.later(Answer(body=bytes(1000)))
        await asyncio.sleep(1)
        assert lazy.lost and not server.connections

    scene(main, unread=10_000, unread_most=50_000)
    assert "bytes of answers are unread" in caplog.text


@pytest.mark.parametrize("closes", [False, True])
def test_views_of_mapped_files_wait_until_the_peer_reads(closes):
    """A burst of answers to held pulls: it does not take memory, and does not end the connection."""

    async def main(server, connect, offsets):
        lazy, other = connect(), connect()
        lazy.transport.pause_reading()
        lazy.send(*[Command(30, {**MAX_OFFSET, "topic": "held"}, opaque=n) for n in range(200)])
        await asyncio.sleep(1)
        for call in offsets.held:
            call.later(Answer(body=[memoryview(bytes(1000)), memoryview(bytes([len(offsets.held)]))]))
        await asyncio.sleep(1)
        assert not lazy.lost
        [connection] = [one for one in server.connections if one.in_flight == 0 and one._unsent() > 100_000]
        other.send(Command(30, MAX_OFFSET))
        await asyncio.sleep(1)
        assert other.codes() == [0]
        if closes:
            ending = asyncio.ensure_future(connection.close(2.0))
            await asyncio.sleep(1)
        lazy.transport.resume_reading()
        await asyncio.sleep(10)
        assert [answer.opaque for answer in lazy.answers] == list(range(200)) and lazy.lost == closes
        assert {len(answer.body) for answer in lazy.answers} == {1001}
        if closes:
            await ending
        else:
            lazy.send(Command(30, MAX_OFFSET, opaque=7))
            await asyncio.sleep(1)
            assert lazy.answers[-1].opaque == 7

    scene(main, unread=10_000, unread_most=50_000)


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">II", 10, 2) + b"[]1234", bytes(8)])
def test_another_protocol_closes_its_own_connection(junk, caplog):
    async def main(server, connect, offsets):
        bad, good = connect(), connect()
        bad.send(Command(30, MAX_OFFSET))
        await asyncio.sleep(1)
        bad.transport.write(junk + Command(30, MAX_OFFSET).encode())
        good.send(Command(30, MAX_OFFSET))
        await asyncio.sleep(1)
        assert bad.lost and bad.codes() == [0]
        assert good.codes() == [0] and not good.lost
        assert offsets.processed == 2

    scene(main)
    assert "the connection is closed" in caplog.text


def test_half_a_frame_and_silence_end_a_connection():
    async def main(server, connect, offsets):
        slow, silent, busy = connect(), connect(), connect()
        frame = Command(30, MAX_OFFSET, bytes(5000)).encode()
        began = asyncio.get_running_loop().time()
        for n in range(0, 300, 2):
            if not slow.lost:
                slow.transport.write(frame[n : n + 2])
            busy.send(Command(30, MAX_OFFSET))
            await asyncio.sleep(1)
            if slow.lost and not silent.lost and asyncio.get_running_loop().time() - began < 115:
                assert asyncio.get_running_loop().time() - began > 59
        assert slow.lost and silent.lost and not busy.lost
        assert len(busy.answers) == 150

    scene(main, delay=(0.0, 0.0))


def test_frames_one_after_the_other_are_not_half_frames():
    async def main(server, connect, offsets):
        client = connect()
        data = b"".join(Command(30, MAX_OFFSET, opaque=n).encode() for n in range(20))
        for at in range(0, len(data), 20):
            client.transport.write(data[at : at + 20])
            await asyncio.sleep(2)
        await asyncio.sleep(1)
        assert len(client.answers) == 20 and not client.lost

    scene(main, delay=(0.0, 0.0))


def test_connections_beyond_the_limit_are_refused():
    async def main(server, connect, offsets):
        clients = [connect() for _ in range(5)]
        await asyncio.sleep(1)
        assert [client.lost for client in clients] == [False] * 3 + [True] * 2
        assert server.refused == 2
        clients[0].transport.close()
        await asyncio.sleep(1)
        late = connect()
        late.send(Command(30, MAX_OFFSET))
        await asyncio.sleep(1)
        assert late.codes() == [0]

    scene(main, connections=3)


def test_the_end_answers_what_is_in_flight():
    """A request that waits gets GO_AWAY, or for old clients SYSTEM_BUSY; one in flight is answered."""

    async def main(server, connect, offsets):
        new, old = connect(), connect()
        held = {**MAX_OFFSET, "topic": "held"}
        new.send(Command(30, held, opaque=1), Command(30, MAX_OFFSET, opaque=2))
        old.send(Command(30, held, opaque=1, version=399), Command(30, MAX_OFFSET, opaque=2, version=399))
        await asyncio.sleep(1)
        asyncio.get_running_loop().call_later(1.0, lambda: [call.later(Answer()) for call in offsets.held])
        began = asyncio.get_running_loop().time()
        await server.close()
        assert 0.9 < asyncio.get_running_loop().time() - began < 1.5
        await asyncio.sleep(1)
        for client, code in ((new, Code.GO_AWAY), (old, Code.SYSTEM_BUSY)):
            assert client.lost and {a.opaque: a.code for a in client.answers} == {1: 0, 2: code}

    scene(main, in_flight=1)


def test_the_end_does_not_wait_for_ever(caplog):
    async def main(server, connect, offsets):
        client = connect()
        client.send(Command(30, {**MAX_OFFSET, "topic": "held"}))
        await asyncio.sleep(1)
        await server.close()
        await asyncio.sleep(1)
        assert client.lost and client.answers == []

    scene(main)
    assert "closed with 1 unanswered requests" in caplog.text


@pytest.mark.parametrize("peer_reads", [True, False])
def test_the_end_waits_until_answers_are_written(peer_reads, caplog):
    async def main(connection, transport, offsets):
        connection.data_received(Command(30, MAX_OFFSET).encode())
        transport.unread = 100
        end = asyncio.ensure_future(connection.close(2.0))
        await asyncio.sleep(1)
        assert transport.closing and not end.done()
        if peer_reads:
            connection.connection_lost(None)
            await asyncio.sleep(0)
        else:
            await asyncio.sleep(1.1)
        await asyncio.sleep(0)
        assert end.done() and transport.ended == (not peer_reads)

    alone(main)
    assert ("closed with 100 bytes of answers unread" in caplog.text) == (not peer_reads)


def test_a_transport_that_does_not_end_is_cut_off(caplog):
    """As one of TLS whose peer does not end its session."""

    async def main(connection, transport, offsets):
        await connection.close(2.0)
        assert transport.ended

    alone(main)
    assert caplog.text == ""


def test_the_grace_is_for_answers_and_for_their_way():
    async def main(connection, transport, offsets):
        connection.data_received(Command(30, {**MAX_OFFSET, "topic": "held"}).encode())
        end = asyncio.ensure_future(connection.close(2.0))
        await asyncio.sleep(1.5)
        offsets.held[0].later(Answer())
        transport.unread = 100
        await asyncio.sleep(0.4)
        assert not end.done()
        await asyncio.sleep(0.2)
        assert end.done()

    alone(main)


async def pushed(client):
    """The one request that a client got, once it is there."""
    while not client.answers:
        await asyncio.sleep(0.01)
    [request] = client.answers
    return request


def test_a_peer_answers_a_request_of_the_server():
    async def main(server, connect, offsets):
        client = connect()
        await asyncio.sleep(1)
        [connection] = server.connections
        answer = server.call(connection, 40, {"consumerGroup": "billing"}, b"half", 3.0)
        request = await pushed(client)
        assert (request.code, request.body, request.flag) == (40, b"half", 0)
        assert request.fields == {"consumerGroup": "billing"}
        client.send(Command(1, {"a": "b"}, b"body", request.opaque, Flag.ANSWER, "a remark"))
        found = await answer
        assert (found.code, found.remark, found.body, found.fields) == (1, "a remark", b"body", {"a": "b"})
        assert len(server._calls) == 0

    scene(main)


def test_answers_are_matched_by_number_and_peer():
    async def main(server, connect, offsets):
        target = connect()
        await asyncio.sleep(1)
        [connection] = server.connections
        other = connect()
        answers = [server.call(connection, 40, {}, bytes([n]), 5.0) for n in range(20)]
        await asyncio.sleep(1)
        asked = target.answers
        assert len({one.opaque for one in asked}) == 20 and other.answers == []
        other.send(*[Command(2, {}, b"", one.opaque, Flag.ANSWER) for one in asked])  # not asked, so not heard
        target.send(*[Command(0, {}, one.body, one.opaque, Flag.ANSWER) for one in reversed(asked)])
        assert [(a.code, a.body) for a in await asyncio.gather(*answers)] == [(0, bytes([n])) for n in range(20)]
        target.send(Command(0, {}, b"", asked[0].opaque, Flag.ANSWER))  # a second answer does nothing
        await asyncio.sleep(1)
        assert len(server._calls) == 0 and not target.lost

    scene(main)


def test_a_call_ends_in_time_and_a_late_answer_does_nothing():
    async def main(server, connect, offsets):
        client = connect()
        await asyncio.sleep(1)
        [connection] = server.connections
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(NoAnswerError, match="may have been carried out"):
            await server.call(connection, 40, {}, b"", 3.0)
        assert 3.0 <= loop.time() - began < 3.2
        client.send(Command(0, {}, b"", (await pushed(client)).opaque, Flag.ANSWER), Command(30, MAX_OFFSET))
        await asyncio.sleep(1)
        assert client.codes() == [40, 0] and len(server._calls) == 0

    scene(main)


def test_calls_end_with_their_connection():
    async def main(server, connect, offsets):
        client = connect()
        await asyncio.sleep(1)
        [connection] = server.connections
        connect()
        await asyncio.sleep(1)
        calls = [server.call(connection, 40, {}, b"", 60.0) for _ in range(3)]
        [beside] = [server.call(one, 40, {}, b"", 60.0) for one in server.connections if one is not connection]
        client.transport.cut()
        await asyncio.sleep(1)
        assert [type(call.exception()) for call in calls] == [ConnectionLostError] * 3
        assert not beside.done() and len(server._calls) == 1
        with pytest.raises(NotSentError, match="the connection ended"):
            await server.call(connection, 40, {}, b"", 60.0)
        await server.close()
        assert isinstance(beside.exception(), ConnectionLostError)

    scene(main)


def test_a_call_that_its_caller_cancels_is_forgotten():
    async def main(server, connect, offsets):
        client = connect()
        await asyncio.sleep(1)
        [connection] = server.connections
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(server.call(connection, 40, {}, b"", 60.0), 1.0)
        assert len(server._calls) == 0
        client.send(Command(0, {}, b"", (await pushed(client)).opaque, Flag.ANSWER))
        await asyncio.sleep(1)
        assert not client.lost

    scene(main)


def test_a_call_too_large_for_a_frame_is_not_sent():
    async def main(server, connect, offsets):
        client = connect()
        await asyncio.sleep(1)
        [connection] = server.connections
        with pytest.raises(ValueError, match="a frame of"):
            server.call(connection, 40, {}, bytes(16 << 20), 3.0)
        await asyncio.sleep(1)
        assert client.answers == [] and len(server._calls) == 0

    scene(main)


def test_a_call_is_answered_while_the_server_ends():
    """A connection that has a request in flight stays open for the grace, and its answers count."""

    async def main(server, connect, offsets):
        client = connect()
        client.send(Command(30, {**MAX_OFFSET, "topic": "held"}, opaque=1))
        await asyncio.sleep(1)
        [connection] = server.connections
        answer = server.call(connection, 40, {}, b"", 3.0)
        request = await pushed(client)
        ending = asyncio.ensure_future(server.close())
        await asyncio.sleep(0.1)
        client.send(Command(0, {}, b"", request.opaque, Flag.ANSWER))
        assert (await answer).code == 0
        offsets.held[0].later(Answer())
        await ending

    scene(main)


def test_real_sockets():
    """The same server on a real loop; port 0 takes a free port."""

    async def main():
        async with Server([Offsets()]) as server:
            host, port = await server.listen("127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(Command(30, MAX_OFFSET, opaque=5).encode() * 3)
            decoder, answers = FrameDecoder(), []
            while len(answers) < 3:
                answers += [Command.decode(*frame) for frame in decoder.receive(await reader.read(1 << 16))]
            writer.close()
            with pytest.raises(OSError):
                await server.listen("127.0.0.1", port)
            return answers

    answers = asyncio.run(asyncio.wait_for(main(), 30))
    assert [(a.opaque, a.fields["offset"]) for a in answers] == [(5, "3")] * 3


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_peer_gets_all_of_an_answer_from_a_server_that_ends(loop):
    """close() returns when the peer has the answer, which does not fit into the buffers of the sockets."""
    runner = pytest.importorskip(loop)

    async def main():
        offsets = Offsets()
        server = Server([offsets], grace=20.0, limits=Limits(unread=64 << 20))
        host, port = await server.listen("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(host, port, limit=1 << 16)
        large = {**MAX_OFFSET, "topic": "large"}
        writer.write(b"".join(Command(30, large, opaque=n).encode() for n in range(count)))
        while offsets.processed < count:
            await asyncio.sleep(0)
        end = asyncio.ensure_future(server.close())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not end.done()
        size = 0
        while data := await reader.read(1 << 20):
            size += len(data)
        await end
        writer.close()
        await writer.wait_closed()
        assert size > count * 8000

    count = 4000
    runner.run(asyncio.wait_for(main(), 30))


def test_a_server_that_ended_accepts_no_connections():
    async def main():
        server = Server([Offsets()])
        host, port = await server.listen("127.0.0.1", 0)
        await server.close()
        with pytest.raises(OSError):
            await asyncio.open_connection(host, port)

    asyncio.run(asyncio.wait_for(main(), 30))


def test_answers_of_one_read_event_do_not_end_a_peer_that_reads():
    """Large answers are made one after the other, while the peer reads them."""

    async def main(server, connect, offsets):
        client = connect()
        client.send(*[Command(30, {**MAX_OFFSET, "topic": "large"}, opaque=n) for n in range(30)])
        await asyncio.sleep(20)
        assert [a.opaque for a in client.answers] == list(range(30)) and not client.lost

    scene(main, delay=(0.0, 0.0), unread=10_000, unread_most=50_000)


def test_requests_that_are_held_do_not_keep_others_waiting():
    async def main(server, connect, offsets):
        client = connect()
        client.send(*[Command(30, {**MAX_OFFSET, "topic": "long"}, opaque=n) for n in range(50)])
        client.send(Command(30, MAX_OFFSET, opaque=50))
        await asyncio.sleep(1)
        assert [a.opaque for a in client.answers] == [50] and len(offsets.held) == 50
        for call in offsets.held:
            call.later(Answer())
            call.hold()  # too late, and harmless
        offsets.held.clear()
        client.send(*[Command(30, {**MAX_OFFSET, "topic": "held"}, opaque=n) for n in range(50)])
        await asyncio.sleep(1)
        assert len(client.answers) == 51 and len(offsets.held) == 8

    scene(main, in_flight=8)


def test_the_requests_that_are_held_are_limited():
    async def main(server, connect, offsets):
        client = connect()
        client.send(*[Command(30, {**MAX_OFFSET, "topic": "long"}, opaque=n) for n in range(50)])
        await asyncio.sleep(1)
        assert len(offsets.held) == 8 + 10

    scene(main, in_flight=8, held=10)


def test_a_request_that_is_held_later_makes_room():
    async def main(server, connect, offsets):
        client = connect()
        client.send(*[Command(30, {**MAX_OFFSET, "topic": "held"}, opaque=n) for n in range(12)])
        await asyncio.sleep(1)
        assert len(offsets.held) == 8
        for call in offsets.held[:3]:
            call.hold()
            call.hold()
        await asyncio.sleep(1)
        assert len(offsets.held) == 11

    scene(main, in_flight=8)


def test_an_answer_that_is_too_large_is_an_error(caplog):
    async def main(server, connect, offsets):
        client = connect()
        client.send(Command(30, {**MAX_OFFSET, "topic": "huge"}, opaque=1), Command(30, MAX_OFFSET, opaque=2))
        await asyncio.sleep(1)
        assert [(a.opaque, a.code) for a in client.answers] == [(1, 1), (2, 0)] and not client.lost
        assert client.answers[0].remark.startswith("a frame of")

    scene(main)
    assert "the answer to request 30 is not sent" in caplog.text


class Transport(asyncio.Transport):
    """As that of Python 3.12.0: writelines() writes to a closing transport, and does not pause its protocol."""

    def __init__(self):
        super().__init__()
        self.written, self.limits, self.closing, self.unread, self.ended = [], [], False, 0, False

    def write(self, data):
        self.written.append(data)

    def writelines(self, pieces):
        self.written += pieces

    def is_closing(self):
        return self.closing

    def get_write_buffer_size(self):
        return self.unread

    def set_write_buffer_limits(self, high=None, low=None):
        self.limits.append(high)

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass

    def close(self):
        self.closing = True  # and it ends when its peer has read everything

    def abort(self):
        self.ended = True


def alone(main, **limits):
    """Run main(connection, transport, processor) with one connection of a server."""

    async def whole():
        offsets = Offsets()
        async with Server([offsets], limits=Limits(**limits), grace=2.0) as server:
            connection, transport = server.connection(), Transport()
            connection.connection_made(transport)
            await main(connection, transport, offsets)
            connection.connection_lost(None)

    virtual.run(whole())


def test_what_asyncios_writelines_does_not_do():
    async def main(connection, transport, offsets):
        pair = b"".join(Command(30, MAX_OFFSET, opaque=n).encode() for n in range(2))
        connection.data_received(pair)
        assert len(transport.written) == 2 and transport.limits == [1000]
        transport.unread = 1001
        connection.data_received(pair)
        assert transport.limits == [1000, 1000]  # asyncio calls pause_writing() in it
        transport.closing, transport.written = True, []
        connection.data_received(pair)
        assert transport.written == []

    alone(main, unread=1000)


def test_an_idle_peer_that_left_answers_unread_is_cut_off():
    async def main(connection, transport, offsets):
        connection.data_received(Command(30, MAX_OFFSET).encode())
        transport.unread = 100
        await asyncio.sleep(130)
        assert transport.ended and not transport.closing

    alone(main)


def test_half_a_frame_is_the_peers_fault_only_while_it_is_read():
    async def main(connection, transport, offsets):
        frames = b"".join(Command(30, {**MAX_OFFSET, "topic": "held"}, opaque=n).encode() for n in range(9))
        connection.data_received(frames[:-1])  # eight are in flight: the socket is not read
        await asyncio.sleep(90)
        assert not transport.ended
        for call in offsets.held:
            call.later(Answer())
        await asyncio.sleep(30)
        assert not transport.ended
        connection.data_received(frames[-1:])
        assert len(offsets.held) == 9
        connection.data_received(frames[:-1])
        for call in offsets.held:
            call.later(Answer())
        await asyncio.sleep(90)
        assert transport.ended

    alone(main, in_flight=8)
