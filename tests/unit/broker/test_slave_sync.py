"""A slave asks its master for tables, on virtual time: periods, offsets that wait for the log, faults, a new master."""

import asyncio
import json
import logging
import random

import pytest
from simulation import virtual

from rocketc.broker.slave_sync import SlaveSynchronize
from rocketc.broker.slave_tables import DELAYS, GROUPS, OFFSETS, TIMER_CHECK, TIMER_COUNTS, TOPICS
from rocketc.errors import BadRequestError, StoreFullError
from rocketc.remoting.server import Answer, Server

RUNTIME = 28
A, B = "10.0.0.1:10911", "10.0.0.2:10911"


class Master:
    """A broker that answers what the test says."""

    def __init__(self):
        self.answers = {code: Answer(body=str(code).encode()) for code in (21, 201, 43, 45, 60, 61)}
        self.end = 0
        self.asked = []  # (time, code)
        self.is_silent = False
        self.codes = (*self.answers, RUNTIME)
        self.server = Server([self])

    def process(self, call):
        code = call.command.code
        self.asked.append((round(asyncio.get_running_loop().time(), 1), code))
        if self.is_silent:
            return None
        if code == RUNTIME and code not in self.answers:
            return Answer(body=json.dumps({"table": {"commitLogMaxOffset": str(self.end)}}).encode())
        return self.answers[code]

    def times(self, code):
        return [time for time, asked in self.asked if asked == code]


class Story:
    def __init__(self, **how):
        self.masters = {A: Master(), B: Master()}
        self.taken = []  # (time, code, body)
        self.faults = {}  # what take() raises, by code
        self.end = 0
        self.is_down = False
        self.links = []
        self.sync = SlaveSynchronize(self, lambda: self.end, random.Random(1), self.connector, in_thread=False, **how)
        self.running = asyncio.ensure_future(self.sync.run())

    def take(self, code, body):
        if code in self.faults:
            raise self.faults[code]
        self.taken.append((round(asyncio.get_running_loop().time(), 1), code, body))
        return True

    def connector(self, host, port):
        async def connect(factory):
            if self.is_down:
                raise ConnectionRefusedError(111, "Connection refused")
            server = self.masters[f"{host}:{port}"].server
            self.links.append(virtual.link(factory(), server.connection(), random.Random(1))[0])

        return connect

    def codes(self, since=0.0):
        return [code for time, code, _ in self.taken if time >= since]

    def times(self, code):
        return [time for time, taken, _ in self.taken if taken == code]


def play(test, **how):
    async def whole():
        story = Story(**how)
        try:
            await test(story, story.masters[A])
        finally:
            story.running.cancel()
            await asyncio.gather(story.running, return_exceptions=True)
            story.sync.close()

    virtual.run(whole())


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_tables_are_taken_at_once_and_every_ten_seconds():
    async def test(story, master):
        await asyncio.sleep(5)
        assert story.taken == [] and master.asked == []  # no master is known
        story.sync.change_master(A)
        await asyncio.sleep(25)
        assert sorted(story.codes())[:2] == [TOPICS, TOPICS]
        for code in (TOPICS, GROUPS, OFFSETS, DELAYS, TIMER_COUNTS):
            assert [round(time) for time in story.times(code)] == [5, 15, 25]
        assert len(story.times(TIMER_CHECK)) in (24, 25, 26)  # every second
        assert {body for _, code, body in story.taken if code == DELAYS} == {b"45"}
        assert story.sync.synced.keys() == {21, 201, 43, 45, 60, 61}

    play(test)


def test_a_new_master_is_not_blamed_for_the_former_one(caplog):
    """The connection to the former one is closed while it is asked."""

    async def test(story, master):
        master.is_silent = True
        story.sync.change_master(A)
        await asyncio.sleep(5)
        story.sync.change_master(B)
        await asyncio.sleep(3)
        assert story.times(TOPICS) == [5.0] and warnings(caplog) == []

    play(test)


def test_without_timed_messages_only_the_other_tables():
    async def test(story, master):
        story.sync.change_master(A)
        await asyncio.sleep(15)
        assert set(story.codes()) == {TOPICS, GROUPS, OFFSETS, DELAYS}

    play(test, has_timers=False)


def test_offsets_wait_until_the_log_is_as_long():
    """What the offsets say is delivered must be in the slave's log."""

    async def test(story, master):
        master.end = 1000
        story.sync.change_master(A)
        await asyncio.sleep(45)
        assert set(story.codes()) == {TOPICS, GROUPS}  # settings do not wait
        assert len(story.times(TOPICS)) == 5
        assert master.times(OFFSETS) == [0.0] or len(master.times(OFFSETS)) == 1  # the first answer is kept
        master.answers[OFFSETS], master.end = Answer(body=b"later"), 2000
        story.end = 1000
        await asyncio.sleep(1)
        assert [body for _, code, body in story.taken if code == OFFSETS] == [b"43"]
        await asyncio.sleep(20)
        assert len(story.times(OFFSETS)) == 1
        story.end = 2000
        await asyncio.sleep(1)
        assert [body for _, code, body in story.taken if code == OFFSETS][:2] == [b"43", b"later"]

    play(test)


def test_a_master_of_rocketmq_4_does_not_know_timed_messages(caplog):
    async def test(story, master):
        for code in (TIMER_CHECK, TIMER_COUNTS):
            master.answers[code] = Answer(3, remark="request type 60 not supported")
        story.sync.change_master(A)
        await asyncio.sleep(25)
        assert len(story.times(OFFSETS)) == len(story.times(DELAYS)) == 3 and TIMER_CHECK not in story.codes()
        assert warnings(caplog) == []

    play(test)


@pytest.mark.parametrize("code", [TOPICS, GROUPS, OFFSETS, DELAYS, TIMER_CHECK, TIMER_COUNTS, RUNTIME])
def test_an_answer_with_an_error_is_logged_once_and_the_others_are_taken(caplog, code):
    async def test(story, master):
        good = master.answers.get(code)
        master.answers[code] = Answer(16, remark="No permission" * 100)
        story.sync.change_master(A)
        await asyncio.sleep(15)
        lost = {OFFSETS, DELAYS, TIMER_CHECK, TIMER_COUNTS} if code == RUNTIME else {code}
        assert set(story.codes()) == {21, 201, 43, 45, 60, 61} - lost
        [line] = warnings(caplog)
        assert A in line and "code 16: No permission" in line and line.endswith("; it is tried again")
        assert len(line) < 500
        if good is None:
            del master.answers[code]
        else:
            master.answers[code] = good
        await asyncio.sleep(11)
        assert set(story.codes()) == {21, 201, 43, 45, 60, 61}

    play(test)


@pytest.mark.parametrize("error", [BadRequestError("not JSON"), StoreFullError(28, "full", "topics.json"), KeyError()])
@pytest.mark.parametrize("code", [TOPICS, OFFSETS, TIMER_CHECK])
def test_a_table_that_cannot_be_taken(caplog, code, error):
    caplog.set_level(logging.INFO, "rocketc.broker")

    async def test(story, master):
        story.faults[code] = error
        story.sync.change_master(A)
        await asyncio.sleep(15)
        assert set(story.codes()) == {21, 201, 43, 45, 60, 61} - {code}
        assert len(warnings(caplog)) == 1
        story.faults.clear()
        await asyncio.sleep(11)
        assert code in story.codes() and caplog.records[-1].getMessage().endswith("are taken over again")

    play(test)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"table":5}', b'{"table":{}}', b'{"table":{"commitLogMaxOffset":"x"}}', b"\xff" * 99]
)
def test_a_master_that_does_not_tell_the_end_of_its_log(caplog, body):
    async def test(story, master):
        master.answers[RUNTIME] = Answer(body=body)
        story.sync.change_master(A)
        await asyncio.sleep(15)
        assert set(story.codes()) == {TOPICS, GROUPS}
        assert len(warnings(caplog)) == 1

    play(test)


def test_a_master_that_is_gone_and_comes_back(caplog):
    caplog.set_level(logging.INFO, "rocketc.broker")

    async def test(story, master):
        story.is_down = True
        story.sync.change_master(A)
        await asyncio.sleep(60)
        assert story.taken == []
        assert warnings(caplog) == [
            f"the master {A} does not answer: no connection: Connection refused; "
            "its tables are not taken over meanwhile"
        ]
        story.is_down = False
        await asyncio.sleep(25)
        assert set(story.codes()) == {21, 201, 43, 45, 60, 61}
        assert caplog.records[-1].getMessage() == f"the master {A} answers again"
        for link in story.links:
            link.cut()
        story.is_down, count = True, len(story.codes())
        await asyncio.sleep(30)
        assert len(story.codes()) == count and len(warnings(caplog)) == 2

    play(test)


def test_a_master_that_does_not_answer(caplog):
    async def test(story, master):
        master.is_silent = True
        story.sync.change_master(A)
        await asyncio.sleep(60)
        assert story.taken == [] and len(warnings(caplog)) == 1 and "no answer in time" in warnings(caplog)[0]
        master.is_silent = False
        await asyncio.sleep(25)
        assert set(story.codes()) == {21, 201, 43, 45, 60, 61}

    play(test)


def test_another_master_is_asked_at_once():
    async def test(story, master):
        story.sync.change_master(A)
        await asyncio.sleep(3)
        other = story.masters[B]
        story.sync.change_master(B)
        story.sync.change_master(B)
        assert story.sync.master == B
        await asyncio.sleep(1)
        assert other.times(TOPICS) == [3.0] and len(master.times(TOPICS)) == 1
        story.sync.change_master(None)
        await asyncio.sleep(1)
        count = len(other.asked)
        await asyncio.sleep(60)
        assert len(other.asked) == count
        story.sync.change_master(A)
        await asyncio.sleep(1)
        assert len(master.times(TOPICS)) == 2

    play(test)


def test_an_answer_of_the_former_master_is_not_taken():
    async def test(story, master):
        master.end = 1000
        story.sync.change_master(A)
        await asyncio.sleep(3)
        story.masters[B].answers[OFFSETS] = Answer(body=b"of the new one")
        story.sync.change_master(B)
        story.end = 1000
        await asyncio.sleep(3)
        assert [body for _, code, body in story.taken if code == OFFSETS] == [b"of the new one"]

    play(test)


def test_a_table_that_waits_for_another_one_is_not_taken_after_a_change():
    async def test(story, master):
        story.sync.change_master(A)
        await asyncio.sleep(1)
        channel, count = story.sync._channel, len(story.taken)
        async with story.sync._taking:
            waiting = asyncio.ensure_future(story.sync._take(TOPICS, b"old", channel))
            await asyncio.sleep(0)
            story.sync.change_master(B)
        await waiting
        assert b"old" not in [body for _, _, body in story.taken[count:]]

    play(test)


def test_on_threads(tmp_path):
    """With a store that has threads, tables are read and written on one; a cancellation waits for it."""
    import threading

    seen = []

    async def main():
        story = Story()
        story.sync._in_thread = True
        story.take = None
        begun, go = threading.Event(), threading.Event()

        def take(code, body):
            begun.set()
            go.wait(5)
            seen.append((code, threading.current_thread() is threading.main_thread()))
            return True

        story.take = take
        story.sync.change_master(A)
        while not begun.is_set():
            await asyncio.sleep(0.01)
        story.running.cancel()
        asyncio.get_running_loop().call_later(0.05, go.set)
        await asyncio.gather(story.running, return_exceptions=True)
        assert seen == [(TOPICS, False)] or len(seen) == 1
        story.sync.close()

    asyncio.run(main())
