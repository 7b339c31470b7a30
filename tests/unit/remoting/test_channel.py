"""Calls of a client on virtual time: deadlines, canceled calls, lost connections, and pauses between attempts."""

import asyncio
import contextlib
import itertools
import random
import time

import pytest
from simulation import virtual

from rocketc.errors import ConnectionLostError, NoAnswerError, NotSentError
from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.channel import RECONNECT_SECONDS, Channel
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command, Flag
from rocketc.remoting.server import Answer, Server
from rocketc.remoting.services import Services

OFFSET = {"topic": "t", "queueId": 0}


class Delayed:
    """Answers GET_MAX_OFFSET after as many ms as the queue id says, and GET_MIN_OFFSET not at all."""

    codes = (30, 31)

    def __init__(self):
        self.done = []

    def process(self, call):
        self.done.append(call.values["queueId"])
        if call.command.code == 30:
            answer = Answer(values={"offset": call.values["queueId"]})
            asyncio.get_running_loop().call_later(call.values["queueId"] / 1000, call.later, answer)


class Scene:
    """A channel to a server over a network in memory."""

    def __init__(self, seed, refuse=0, on_request=lambda command: None):
        self.chance, self.refuse, self.tries = random.Random(seed), refuse, []
        self.processor = Delayed()
        self.server = Server([self.processor])
        self.channel = Channel(self.connect, self.chance, on_request)

    async def connect(self, factory):
        self.tries.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.01)
        if self.refuse:
            self.refuse -= 1
            raise ConnectionRefusedError("refused")
        self.transport, _ = virtual.link(self.server.connection(), factory(), self.chance)

    async def call(self, ms, seconds):
        deadline = asyncio.get_running_loop().time() + seconds
        answer = await self.channel.call(30, {**OFFSET, "queueId": ms}, deadline)
        return int(answer.fields["offset"])


def test_deadlines_canceled_calls_and_lost_connections():
    async def main():
        scene = Scene(3)
        assert await scene.call(500, 3) == 500
        with pytest.raises(NoAnswerError):
            await scene.call(10_000, 3)
        canceled = asyncio.ensure_future(scene.call(20_000, 99))
        await asyncio.sleep(1)
        canceled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await canceled
        assert not scene.channel._waiting
        await asyncio.sleep(60)
        assert scene.channel.late_answers == 2
        cut = asyncio.ensure_future(scene.call(20_000, 99))
        await asyncio.sleep(1)
        scene.transport.cut()
        with pytest.raises(ConnectionLostError):
            await cut
        assert await scene.call(500, 3) == 500 and len(scene.tries) == 2

    began = time.perf_counter()
    virtual.run(main())
    assert time.perf_counter() - began < 5


def test_pauses_between_attempts_and_one_connection_for_all_callers():
    async def main():
        scene = Scene(3, refuse=6)
        for _ in range(6):
            with pytest.raises(NotSentError):
                await scene.call(0, 60)
        assert await scene.call(0, 60) == 0
        for n, (a, b) in enumerate(itertools.pairwise(scene.tries)):
            pause = min(0.1 * 2**n, RECONNECT_SECONDS)
            assert pause / 2 <= b - a <= pause + 0.02
        scene.transport.cut()
        before = len(scene.tries)
        many = [asyncio.ensure_future(scene.call(n, 60)) for n in range(100)]
        assert await asyncio.gather(*many) == list(range(100)) and len(scene.tries) == before + 1

    virtual.run(main())


def test_a_deadline_includes_connecting():
    async def main():
        scene = Scene(1, refuse=99)
        with contextlib.suppress(NotSentError):
            await scene.call(0, 60)
        with pytest.raises(NotSentError, match="in time"):
            await scene.call(0, 0.001)

    virtual.run(main())


def test_a_closed_channel():
    async def main():
        scene = Scene(1)
        waiting = asyncio.ensure_future(scene.call(20_000, 99))
        await asyncio.sleep(1)
        scene.channel.close()
        with pytest.raises(ConnectionLostError, match="it was closed"):
            await waiting
        with pytest.raises(NotSentError, match="the channel is closed"):
            await scene.call(0, 5)

    virtual.run(main())


def test_oneway_requests_and_requests_of_the_server():
    async def main():
        got = []
        scene = Scene(1, on_request=lambda request, reply: got.append(request))
        await scene.channel.send(31, {**OFFSET, "queueId": 9}, asyncio.get_running_loop().time() + 5)
        await asyncio.sleep(1)
        assert scene.processor.done == [9]
        [connection] = scene.server.connections
        connection.write(Command(40, {"consumerGroup": "g"}, flag=Flag.ONEWAY).encode())
        await asyncio.sleep(1)
        assert [(c.code, c.fields) for c in got] == [(40, {"consumerGroup": "g"})]

    virtual.run(main())


def test_oneway_requests_wait_for_a_server_that_does_not_read():
    async def main():
        scene, loop, sent = Scene(3), asyncio.get_running_loop(), 0
        await scene.call(0, 3)
        scene.transport.pause_reading()
        with pytest.raises(NotSentError, match="the server does not read"):
            while sent < 10_000:
                await scene.channel.send(31, OFFSET, loop.time() + 3, bytes(1000))
                sent += 1
        assert scene.transport._size < 300_000 and loop.time() >= 3
        loop.call_later(1, scene.transport.resume_reading)
        for _ in range(1000):
            await scene.channel.send(31, OFFSET, loop.time() + 3, bytes(1000))
        scene.transport.pause_reading()
        loop.call_later(1, scene.transport.cut)
        for _ in range(1000):
            await scene.channel.send(31, OFFSET, loop.time() + 3, bytes(1000))
        assert len(scene.tries) == 2

    virtual.run(main())


def test_the_connection_to_a_server_that_goes_away_is_closed():
    async def main():
        scene, links = Scene(3), []
        process = scene.processor.process

        def goes_away(call):
            links.append(scene.transport)
            scene.processor.process = process
            return Answer(Code.GO_AWAY)

        slow = asyncio.ensure_future(scene.call(500, 3))
        await asyncio.sleep(0.1)
        scene.processor.process = goes_away
        assert await scene.call(5, 3) == 5 and len(scene.tries) == 2
        assert not links[0].is_closing()
        assert await slow == 500
        await asyncio.sleep(0.1)
        assert links[0].is_closing() and not scene.transport.is_closing()
        scene.processor.process = goes_away
        assert await scene.call(5, 3) == 5
        await asyncio.sleep(0.1)
        assert links[1].is_closing()
        waiting = asyncio.ensure_future(scene.call(500, 3))
        await asyncio.sleep(0.1)
        scene.processor.process = goes_away
        await scene.call(5, 3)
        scene.channel.close()
        with pytest.raises(ConnectionLostError):
            await waiting
        await asyncio.sleep(0.1)
        assert links[2].is_closing() and scene.transport.is_closing()

    virtual.run(main())


def test_an_answer_with_a_long_header():
    """The answer to a batch has the ids of its messages in its header."""
    fields = {"msgId": ",".join(["7F000001" + 24 * "0"] * 50_000)}

    class Answering:
        codes = (30,)

        def process(self, call):
            return Answer(fields=fields)

    async def main():
        scene = Scene(1)
        scene.server = Server([Answering()])
        answer = await scene.channel.call(30, OFFSET, asyncio.get_running_loop().time() + 5)
        assert answer.fields == fields

    virtual.run(main())


def test_a_server_that_sends_junk_is_left(caplog):
    async def main():
        scene = Scene(1)
        assert await scene.call(0, 5) == 0
        waiting = asyncio.ensure_future(scene.call(20_000, 99))
        await asyncio.sleep(1)
        scene.transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(ConnectionLostError):
            await waiting
        assert await scene.call(0, 5) == 0

    virtual.run(main())
    assert "the connection is closed" in caplog.text


class Leaving:
    """A server that goes away, but does not end: it answers GO_AWAY, except to requests for the queue 0."""

    def __init__(self):
        self.made, self.open = 0, {}

    async def connect(self, factory):
        connection = _Leaving(self)
        self.made += 1
        self.open[connection] = virtual.link(connection, factory(), random.Random(1))[0]


class _Leaving(asyncio.Protocol):
    def __init__(self, server):
        self.server, self.decoder, self.kept = server, FrameDecoder(), []

    def data_received(self, data):
        for frame in self.decoder.receive(data):
            command = Command.decode(*frame)
            if command.fields["queueId"] == "0":
                self.kept.append(command.opaque)
            else:
                self.server.open[self].write(Command(1500, opaque=command.opaque, flag=Flag.ANSWER).encode())

    def connection_lost(self, error):
        del self.server.open[self]


def test_connections_to_a_server_that_goes_away_are_closed():
    async def main():
        server, now = Leaving(), asyncio.get_running_loop().time
        channel = Channel(server.connect, random.Random(1))
        first = asyncio.ensure_future(channel.call(30, OFFSET, now() + 60))
        await asyncio.sleep(1)
        with pytest.raises(NotSentError):
            await channel.call(30, {**OFFSET, "queueId": 1}, now() + 4)
        await asyncio.sleep(1)
        assert server.made > 10 and len(server.open) <= 2  # that of the first call, and one for later calls
        [opaque] = next(iter(server.open)).kept
        next(iter(server.open.values())).write(Command(0, opaque=opaque, flag=Flag.ANSWER).encode())
        assert (await first).code == 0
        await asyncio.sleep(1)
        assert len(server.open) <= 1
        second = asyncio.ensure_future(channel.call(30, OFFSET, now() + 60))
        await asyncio.sleep(1)
        with pytest.raises(NotSentError):
            await channel.call(30, {**OFFSET, "queueId": 1}, now() + 1)
        assert not second.done()
        channel.close()
        await asyncio.sleep(1)
        assert not server.open and isinstance(second.exception(), ConnectionLostError)

    virtual.run(main())


@pytest.mark.parametrize("seed", range(20))
def test_the_same_seed_gives_the_same_history(seed):
    """Calls while connections are cut: each ends, and what was not sent was not carried out."""

    def once():
        history = []

        async def main():
            loop, scene = asyncio.get_running_loop(), Scene(seed, refuse=seed % 3)

            async def one(n):
                try:
                    history.append((round(loop.time(), 6), n, await scene.call(n, 3)))
                except (NotSentError, NoAnswerError, ConnectionLostError) as error:
                    history.append((round(loop.time(), 6), n, type(error).__name__))

            async def cuts():
                for _ in range(5):
                    await asyncio.sleep(scene.chance.uniform(0, 3))
                    if hasattr(scene, "transport"):
                        scene.transport.cut()

            tasks = [asyncio.ensure_future(cuts())]
            for n in range(40):
                tasks.append(asyncio.ensure_future(one(100 * n)))
                await asyncio.sleep(scene.chance.uniform(0, 0.3))
            await asyncio.gather(*tasks)
            done = set(scene.processor.done)
            assert len(history) == 40 and not scene.channel._waiting
            assert {n for _, n, result in history if result == n} <= done
            assert not {n for _, n, result in history if result == "NotSentError"} & done

        virtual.run(main())
        return history

    assert once() == once()


# ---------------------------------------------------------------- services and virtual time


def test_services(caplog):
    ended = []

    async def quiet():
        try:
            await asyncio.sleep(1e9)
        finally:
            ended.append("quiet")

    async def fails():
        await asyncio.sleep(1)
        raise ValueError("boom")

    async def broken():
        async with Services() as services:
            services.start("quiet", quiet())
            services.start("bad", fails())
            await services.run_until(asyncio.Event())

    async def good():
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(3, stop.set)
        async with Services(grace=1.0) as services:
            services.start("quiet", quiet())
            await services.run_until(stop)

    with pytest.raises(ValueError, match="boom"):
        virtual.run(broken())
    assert ended == ["quiet"] and "bad failed" in caplog.text
    virtual.run(good())
    assert ended == ["quiet", "quiet"]


def test_a_deadlock_is_reported():
    async def main():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="deadlock"):
        virtual.run(main())
