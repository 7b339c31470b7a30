"""More requests than a server can process: turns are short, and each connection gets its share. On virtual time."""

import asyncio
import itertools
import random

import pytest
from simulation import virtual
from simulation.brokers import scene

from rocketc.remoting._fair_queue import FairQueue
from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command
from rocketc.remoting.connection import Limits
from rocketc.remoting.server import Answer, Server

COST = 0.0005  # seconds that a request takes
LONGEST = 0.0125  # of a turn: those that do not wait and those that wait, 4 ms each, and a quantum after both
SEND = {
    "a": "g", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": "UNIQ_KEY\1K1\2",
}  # fmt: skip


def request(opaque):
    return Command(30, {"topic": "orders", "queueId": "0"}, opaque=opaque).encode()


class Slow:
    """Answers each request after COST, in which the loop does nothing else."""

    codes = (30,)

    def process(self, call):
        asyncio.get_running_loop().now += COST
        return Answer(values={"offset": 1})


class Creating(Slow):
    """At first its requests do work that happens once."""

    is_first = True

    def __init__(self, queue):
        self.queue = queue

    def process(self, call):
        if self.is_first:
            self.queue.excuse()
        return super().process(call)


class Ticking(virtual.VirtualLoop):
    """Its time moves with each look at the clock. So the work of a fast path takes time, too."""

    def time(self):
        self.now += 0.0001
        return self.now


class Client(asyncio.Protocol):
    """Keeps a number of requests in flight until a time, and notes how long each answer took, by code."""

    def __init__(self, window, until, make=request):
        self.window, self.until, self.make = window, until, make
        self.sent_at, self.took, self.codes = {}, [], {}
        self._opaque, self._decoder, self._loop = 0, FrameDecoder(), asyncio.get_running_loop()

    def connection_made(self, transport):
        self.transport = transport

    def send(self, count):
        frames = []
        for _ in range(count):
            self._opaque += 1
            self.sent_at[self._opaque] = self._loop.now
            frames.append(self.make(self._opaque))
        self.transport.write(b"".join(frames))

    def data_received(self, data):
        answers = [Command.decode(*frame) for frame in self._decoder.receive(data)]
        for answer in answers:
            self.took.append(self._loop.now - self.sent_at.pop(answer.opaque))
            self.codes[answer.code] = self.codes.get(answer.code, 0) + 1
        if self._loop.now < self.until:
            self.send(len(answers))


async def longest_turn(seconds):
    """Return the longest time in which the loop did not call a callback that was ready."""
    loop, longest = asyncio.get_running_loop(), 0.0
    end = last = loop.now
    end += seconds
    while loop.now < end:
        await asyncio.sleep(0)
        longest, last = max(longest, loop.now - last), loop.now
        loop.now += 0.000001  # time passes even if there is nothing to do
    return longest


def crowd(count, window, *, seconds=0.5, patience=None, others=0):
    """Run a crowd of clients beside one that has one request in flight; return them and the longest turn."""

    async def main():
        async with Server([Slow()], patience=patience) as server:
            until = asyncio.get_running_loop().now + seconds
            clients = [Client(window, until) for _ in range(count)]
            quiet = [Client(1, until) for _ in range(1 + others)]
            for client in (*clients, *quiet):
                virtual.link(client, server.connection(), random.Random(1), (0.0, 0.0))
            for client in (*clients, *quiet):
                client.send(client.window)
            turn = await longest_turn(seconds)
            for client in (*clients, *quiet):
                client.in_time = len(client.took)
            while any(client.sent_at for client in (*clients, *quiet)):
                await asyncio.sleep(0.001)
            assert len(server.queue) == 0
            return clients, quiet, turn

    return virtual.run(main())


@pytest.mark.parametrize(("count", "window"), [(4, 300), (40, 30), (120, 10)])
def test_a_client_with_one_request_in_flight_does_not_wait_for_a_crowd(count, window):
    clients, [quiet], turn = crowd(count, window)
    assert turn <= LONGEST
    assert max(quiet.took) <= 2 * LONGEST and len(quiet.took) > 0.5 / LONGEST / 2
    answered = sorted(client.in_time for client in clients)
    assert answered[-1] <= 2 * answered[0] + 2


def test_clients_with_one_request_in_flight_leave_half_of_the_time_to_a_crowd():
    clients, quiet, turn = crowd(2, 300, others=50)
    assert turn <= LONGEST
    share = [sum(client.in_time for client in some) for some in (clients, quiet)]
    assert 0.3 < share[0] / sum(share) < 0.7
    assert max(max(one.took) for one in quiet) < 0.1


def test_requests_that_have_waited_for_their_turn_are_refused():
    """The answers of a crowd come soon after the patience, and a request that did not wait is never refused."""
    clients, [quiet], turn = crowd(40, 50, patience={30: 0.2})
    codes = [sum(client.codes.get(code, 0) for client in clients) for code in (Code.SUCCESS, Code.SYSTEM_BUSY)]
    assert turn <= LONGEST and codes[1] > 500
    assert codes[0] > 0.9 * 0.5 / COST  # the time is used for requests that are answered
    assert max(max(client.took) for client in clients) < 0.5
    assert quiet.codes == {Code.SUCCESS: len(quiet.took)}


@pytest.mark.parametrize(("count", "window"), [(1000, 1), (200, 5), (1, 1000)])
def test_requests_behind_creations_are_not_refused(count, window):
    """They wait for 0.5 s, which is longer than the patience. Later the same clients wait as long, and are refused."""

    async def main():
        queue, loop = FairQueue(), asyncio.get_running_loop()
        processor = Creating(queue)
        async with Server([processor], patience={30: 0.2}, queue=queue) as server:
            clients = [Client(window, loop.now) for _ in range(count)]
            for client in clients:
                virtual.link(client, server.connection(), random.Random(1), (0.0, 0.0))
            found = []
            for processor.is_first in (True, False):
                for client in clients:
                    client.codes = {}
                    client.send(window)
                await asyncio.sleep(2.0)
                found.append([sum(client.codes.get(code, 0) for client in clients) for code in (Code.SUCCESS, 2)])
            return found

    creations, others = virtual.run(main())
    assert creations == [1000, 0] and sum(others) == 1000 and 500 < others[1] < 700


def test_sends_on_the_fast_path(tmp_path):
    """The time moves with each look at the clock. The broker reads the clock after 16 sends, so 4 ms are 640 sends."""
    most = 2 * 640 + 2 * 160 + 64

    async def main():
        async with scene(tmp_path) as stage:
            await stage.client().send()
            path, until = stage.broker.path, asyncio.get_running_loop().now + 60.0
            clients = [Client(n, until, lambda n: Command(310, SEND, b"x", n).encode()) for n in (3000, 3000, 1)]
            for client in clients:
                virtual.link(client, stage.broker.server.connection(), random.Random(1), (0.0, 0.0))
                client.send(client.window)
            counts = [path.sent]
            while path.sent < 12_000:
                await asyncio.sleep(0)
                counts.append(path.sent)
            return counts, [len(client.took) for client in clients]

    counts, (first, second, quiet) = virtual.run(main(), Ticking)
    assert max(after - before for before, after in itertools.pairwise(counts)) <= most
    assert 0.5 < first / second < 2 and quiet > 12_000 / (2 * most)


def test_the_servers_of_a_loop_share_their_turns():
    async def main():
        main = Server([Slow()])
        async with main, Server([Slow()], queue=main.queue) as other:
            until = asyncio.get_running_loop().now + 0.5
            for server in (main, other):
                client = Client(1000, until)
                virtual.link(client, server.connection(), random.Random(1), (0.0, 0.0))
                client.send(1000)
            assert await longest_turn(0.5) <= LONGEST

    virtual.run(main())


def test_a_peer_whose_requests_wait_is_not_read_without_limit():
    """At most what one read brings, and 64 KiB."""

    async def main():
        async with Server([Slow()], limits=Limits(in_flight=10)) as server:
            loop = asyncio.get_running_loop()
            greedy, other = Client(3000, loop.now), Client(300, loop.now)
            for client in (other, greedy):
                virtual.link(client, server.connection(), random.Random(1), (0.0, 0.0))
            other.send(300)
            for _ in range(30):
                greedy.send(100)
            await asyncio.sleep(0.1)
            assert not greedy.transport.other.reading and greedy.transport.get_write_buffer_size() > 100_000
            while greedy.sent_at:
                await asyncio.sleep(0.1)
            assert greedy.codes == {0: 3000} and greedy.transport.other.reading

    virtual.run(main())
