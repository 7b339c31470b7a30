"""The compiled way of sends: it does the same as the general way, and takes what it should."""

import asyncio
import concurrent.futures
import itertools
import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import virtual
from unit.client.scripted import Cluster, play
from unit.client.scripted import stored as stored_one

from rocketc.client.batching import NewMessage
from rocketc.client.routes import MessageQueue
from rocketc.client.send_results import SendStatus
from rocketc.client.waiters import FutureEnd, Waiter
from rocketc.errors import AnswerError, ConnectionLostError
from rocketc.format._encoding import decode_batch
from rocketc.remoting.channel import _Link
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer

KEY = "0A0000010A3C18B4AAC22D1F876C0003"


class Even(random.Random):
    """Delays and pieces that do not depend on the calls before."""

    def randint(self, a, b):
        return b

    def uniform(self, a, b):
        return 0.004


def later(seconds, answer):
    def process(call):
        asyncio.get_running_loop().call_later(seconds, call.later, answer(call))

    return process


def stored(call):
    """What a broker answers to a send or a batch: with an id for each message."""
    answer = stored_one(call)
    if call.command.code != 320:
        return answer
    ids = [f"{answer.values['msgId']}.{n}" for n in range(len(decode_batch(call.command.body)))]
    return Answer(values={**answer.values, "msgId": ",".join(ids)})


def with_fields(**fields):
    def process(call):
        answer = stored(call)
        values = {**answer.values, **fields}
        return Answer(values={name: value for name, value in values.items() if value is not None})

    return process


def other_status(call):
    answer = stored(call)
    return Answer(Code.FLUSH_DISK_TIMEOUT, values=answer.values)


def own_transaction(call):
    bodies = [call.values["properties"].encode()]
    if call.command.code == 320:
        bodies = [properties for *_, properties in decode_batch(call.command.body)]
    ids = [dict(pair.split(b"\1") for pair in one.split(b"\2") if pair)[b"UNIQ_KEY"] for one in bodies]
    return with_fields(transactionId=b",".join(ids).decode())(call)


ANSWERS = {
    "ok": stored,
    "slow": later(0.05, stored),
    "later": later(0.2, stored),
    "too late": later(4.0, stored),
    "none": lambda call: None,
    "busy": lambda call: Answer(Code.SYSTEM_BUSY, remark="busy\nvery"),
    "refused": lambda call: Answer(Code.MESSAGE_ILLEGAL, remark="not so"),
    "slow and refused": later(0.3, lambda call: Answer(Code.SYSTEM_ERROR, remark="no disk")),
    "away": lambda call: Answer(Code.GO_AWAY, remark="the server ends"),
    "flush": other_status,
    "queue": with_fields(queueId=7),
    "no id": with_fields(msgId=None),
    "bad number": with_fields(queueOffset="1_0"),
    "no number": with_fields(queueOffset="x"),
    "large number": with_fields(queueOffset=1 << 70),
    "transaction": own_transaction,
    "other transaction": with_fields(transactionId="A"),
    "escaped": with_fields(msgId='7F"\\\n', recallHandle="\u00e9\1"),
    "handle": with_fields(recallHandle="djEgYS"),
    "one id": with_fields(msgId="7F"),
}
TOPICS = ("orders", "prices", "gone")
TEXTS = (None, None, "web", 'a "b"\\ \n\t\x1f\x7f', "d\u00e9j\u00e0 vu \U0001f6b2", "", "x\1", "\ud800", "x" * 3000, 7)
OPTIONS = {
    "tags": st.sampled_from(TEXTS),
    "keys": st.sampled_from([*TEXTS, ["a", "b"]]),
    "flag": st.sampled_from([0, 0, -5, (1 << 31) - 1, 1 << 31, True, "1"]),
    "timeout": st.sampled_from([None, None, None, 1, 30, 300, 0, -1, True, 1 << 40]),
    "delay_level": st.sampled_from([0, 0, 0, 3, "10s", False, -1]),
    "shard": st.sampled_from([None, None, None, "c-7"]),
    "properties": st.sampled_from([None, None, {"own": "x"}, {}]),
    "queue": st.sampled_from([None, None, None, MessageQueue("orders", "a", 1), 3]),
    "selector": st.sampled_from([None, None, None, lambda queues: queues[0]]),
}
SENDS = st.tuples(
    st.just("send"),
    st.sampled_from(TOPICS),
    st.sampled_from([b"one", b"x" * 100, b"", b"y" * 5000, b"z" * 40_000, bytearray(b"array"), "text"]),
    st.one_of(st.just({}), st.fixed_dictionaries({"tags": st.sampled_from(TEXTS)}), st.fixed_dictionaries(OPTIONS)),
)
PLAIN = st.tuples(
    st.just("send"), st.sampled_from(TOPICS[:2]), st.sampled_from([b"one", b"x" * 100]),
    st.fixed_dictionaries({"tags": st.sampled_from([None, "web"]), "timeout": st.sampled_from([None, 30, 300])}),
)  # fmt: skip
ONE_OF_BATCH = st.one_of(
    st.sampled_from([b"one", b"x" * 60]),
    st.builds(NewMessage, st.sampled_from([b"one", b"", "text"]), tags=st.sampled_from(TEXTS)),
)
BATCHES = st.tuples(
    st.just("batch"), st.sampled_from(TOPICS), st.lists(ONE_OF_BATCH, max_size=4),
    st.fixed_dictionaries({"timeout": OPTIONS["timeout"], "queue": OPTIONS["queue"]}),
)  # fmt: skip
STEPS = st.one_of(
    PLAIN,
    PLAIN,
    SENDS,
    BATCHES,
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.001, 0.01, 0.1, 1.0, 31.0])),
    st.tuples(st.just("answers"), st.sampled_from("ab"), st.lists(st.sampled_from(sorted(ANSWERS)), min_size=1)),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("cut"), st.sampled_from("ab")),
    st.tuples(st.just("heartbeats"), st.sampled_from("ab"), st.booleans()),
    st.tuples(st.just("perm"), st.sampled_from([6, 4])),
    st.tuples(st.just("creates"), st.booleans()),
)


def outcome(task):
    if not task.done():
        return "not done"
    if task.cancelled():
        return "canceled"
    return task.result() if task.exception() is None else (type(task.exception()), str(task.exception()))


def send(producer, topic, body, more, is_direct):
    """Begin a send; return its future."""
    if not is_direct:
        return asyncio.ensure_future(producer.send(topic, body, **more))
    future = concurrent.futures.Future()
    producer._begin_send(FutureEnd(future), topic, body, more)
    return asyncio.wrap_future(future)


def send_many(producer, topic, messages, more, is_direct):
    """Begin a batch; return its future."""
    if not is_direct:
        return asyncio.ensure_future(producer.send_many(topic, messages, **more))
    future = concurrent.futures.Future()
    end = FutureEnd(future)
    try:
        producer._begin_send_many(end, topic, messages, more.get("queue"), more.get("timeout"))
    except Exception as error:  # as LoopThread does
        end.set_exception(error)
    return asyncio.wrap_future(future)


async def history(steps, options, is_on, is_direct=False):
    """Take the steps, and return all that can be seen of them."""
    stage = Cluster({"a": stored, "b": stored}, missing={"gone"})
    stage.chance = Even()
    seen, ends, sends = [], {}, []
    loop = asyncio.get_running_loop()
    for name, broker in stage.brokers.items():
        turns = itertools.cycle([stored])

        def process(call, name=name, broker=broker):
            seen.append((loop.time(), name, call.command.code, call.command.fields, call.command.body))
            return next(broker.turns)(call)

        def beat(call, name=name, broker=broker):
            seen.append((loop.time(), name, call.command.code))
            return Answer() if broker.takes_heartbeats else Answer(Code.SYSTEM_ERROR, remark="no")

        broker.turns, broker.takes_heartbeats = turns, True
        broker.answers.update({310: process, 320: process, 34: beat})
    async with stage.producer(**options) as producer:
        if not is_on:
            producer._path = None
        for n, (step, *how) in enumerate(steps):
            if step in ("send", "batch"):
                topic, body, more = how
                task = (send if step == "send" else send_many)(producer, topic, body, more, is_direct)
                task.add_done_callback(lambda done, n=n: ends.setdefault(n, loop.time()))
                sends.append(task)
            elif step == "wait":
                await asyncio.sleep(how[0])
            elif step == "answers":
                stage.brokers[how[0]].turns = itertools.cycle([ANSWERS[one] for one in how[1]])
            elif step == "cancel" and sends:
                sends[-1 - how[0] % len(sends)].cancel()
            elif step == "cut":
                stage.cut(stage.address(how[0]))
            elif step == "heartbeats":
                stage.brokers[how[0]].takes_heartbeats = how[1]
            elif step == "perm":
                stage.perm = how[0]
            elif step == "creates":
                stage.creates = how[0]
        await asyncio.sleep(0.1)
        early = [outcome(task) for task in sends]
        await asyncio.wait([*sends, asyncio.ensure_future(asyncio.sleep(20))])
        counts = producer.counts()
        times = sorted((key, one.counts, round(one.total, 6)) for key, one in counts.sends)
        channels = producer._instance.connections._channels
        left = [(list(one._waiting), one.late_answers) for _, one in sorted(channels.items())]
        left += [(address, link.is_closing()) for address, link in stage.links]
        rest = counts.retries, counts.messages, counts.bytes, times, left
        used = is_on and producer._path is not None and producer._path.sent
    return (early, [outcome(task) for task in sends], ends, seen, rest), used


WINDOWS = st.sampled_from([{}, {}, {"max_in_flight": 2}, {"max_bytes_in_flight": 150}])


@settings(deadline=None, max_examples=60)
@given(st.lists(STEPS, min_size=1, max_size=25), WINDOWS, st.sampled_from([{}, {"max_message_size": 120}]))
def test_both_ways_do_the_same(steps, window, more):
    options = {**window, **more}
    on, _ = virtual.run(history(steps, options, True))
    off, _ = virtual.run(history(steps, options, False))
    assert on == off


def one_by_one(*options, answers=("ok",), wait=1.0, what=("send", "orders", b"one")):
    steps = [("answers", "a", list(answers)), ("answers", "b", list(answers))]
    for each in options:
        steps += [(*what, each), ("wait", wait)]
    return steps


def test_what_it_takes():
    options = [{}, {"tags": "web"}, {"keys": "k 1"}, {"tags": 'a "b"', "keys": "\u00e9", "flag": -5, "timeout": 700}]
    (_, ends, *_), used = virtual.run(history(one_by_one({}, {}, *options), {}, True))
    assert used == 4  # the first two make this client known to both brokers
    assert {one.status for one in ends} == {SendStatus.SEND_OK}


@pytest.mark.parametrize(
    "option",
    [
        {"shard": "c"}, {"delay_level": 3}, {"delay": 3.0}, {"deliver_at": 1}, {"properties": {"own": "x"}},
        {"queue": MessageQueue("orders", "a", 1)}, {"selector": lambda queues: queues[0]}, {"keys": ["a"]},
        {"tags": ""}, {"tags": "\1"}, {"keys": "\2"}, {"tags": "\ud800"}, {"flag": 1 << 31}, {"flag": True},
        {"timeout": 0}, {"timeout": 1 << 31}, {"delay_level": False}, {"tags": "x" * 2049},
    ],
)  # fmt: skip
def test_what_it_does_not_take(option):
    _, used = virtual.run(history(one_by_one({}, {}, option), {}, True))
    assert used == 0


BATCH = ("batch", "orders", [b"one", NewMessage(b"two", tags="web"), b"three"])


def test_the_batches_that_it_takes():
    options = [{}, {"timeout": 700}, {"queue": MessageQueue("orders", "a", 1)}, {"timeout": 0}]
    (_, ends, *_), used = virtual.run(history(one_by_one({}, {}) + one_by_one(*options, what=BATCH), {}, True))
    assert used == 2
    first = ends[2]
    assert [one.status for one in first] == [SendStatus.SEND_OK] * 3 and len({one.msg_id for one in first}) == 3
    assert [one.queue_offset - first[0].queue_offset for one in first] == [0, 1, 2]
    assert [one.offset_msg_id[-2:] for one in first] == [".0", ".1", ".2"]
    assert ends[-1][0] is ValueError


def test_an_answer_with_another_number_of_ids():
    steps = one_by_one({}, {}) + [("answers", name, ["one id"]) for name in "ab"]
    on = both([*steps, (*BATCH, {}), ("wait", 1.0)], 0)
    assert on[1][-1][0] is AnswerError and "a batch of 3 messages was answered with 1 ids" in on[1][-1][1]


@pytest.mark.parametrize("answer", sorted(ANSWERS))
@pytest.mark.parametrize("options", [{}, {"timeout": 40}, {"queue": MessageQueue("orders", "a", 1)}])
@pytest.mark.parametrize("is_direct", [False, True])
def test_each_answer_to_a_batch(answer, options, is_direct):
    steps = one_by_one({}, {}) + one_by_one(options, options, answers=[answer, "ok"], wait=5.0, what=BATCH)
    on, used = virtual.run(history(steps, {}, True, is_direct=is_direct))
    off, _ = virtual.run(history(steps, {}, False))
    assert on == off and used >= (0 if "queue" in options else 2)


@pytest.mark.parametrize("answer", sorted(ANSWERS))
def test_each_answer(answer):
    steps = one_by_one({}, {}) + one_by_one({}, {}, {}, answers=[answer, "ok"], wait=5.0)
    on, used = virtual.run(history(steps, {}, True))
    off, _ = virtual.run(history(steps, {}, False))
    assert on == off and used >= 3


def test_hooks_and_settings_that_see_each_send():
    async def path_of(**options):
        async with Cluster({"a": stored}).producer(**options) as producer:
            return producer._path

    assert play(path_of()) is not None
    assert play(path_of(send_latency_fault_enable=True)) is None
    assert play(path_of(enable_msg_trace=True)) is None

    async def hooked():
        stage = Cluster({"a": stored})
        producer, seen = stage.producer(), []
        producer.add_send_hook(before=seen.append)
        async with producer:
            await producer.send("orders", b"one")
            await producer.send("orders", b"one")
            return producer._path, len(seen)

    assert play(hooked()) == (None, 2)


def test_rpc_hooks_see_each_send():
    async def main():
        stage, seen = Cluster({"a": stored}), []
        producer = stage.producer()
        producer.add_rpc_hook(before=lambda address, command: seen.append(command.code))
        async with producer:
            for _ in range(3):
                await producer.send("orders", b"one")
            return producer._path.sent, seen.count(310)

    assert play(main()) == (0, 3)


def test_many_sends_of_one_turn_leave_together():
    async def main():
        stage = Cluster({"a": stored})
        async with stage.producer() as producer:
            await producer.send("orders", b"one")
            await asyncio.sleep(1)
            [link] = [one for address, one in stage.links if address == stage.address("a")]
            written, original = [], link.other.write
            link.other.write = lambda data: (written.append(len(data)), original(data))
            sent = await asyncio.gather(*[producer.send("orders", b"x" * 100, tags="t") for _ in range(500)])
            assert producer._path.sent == 500 and [one.queue_offset for one in sent] == list(range(2, 502))
            assert sum(written) > 3 * (64 << 10) and len(written) == sum(written) // (64 << 10) + 1
            assert all(64 << 10 <= one < 66 << 10 for one in written[:-1])

    play(main())


def test_a_closed_coroutine_leaves_nothing():
    async def main():
        async with Cluster({"a": stored}).producer() as producer:
            await producer.send("orders", b"one")
            await asyncio.sleep(1)
            sending = producer.send("orders", b"one")
            sending.send(None)
            assert producer.counts().messages == 1
            sending.close()
            return producer.counts().messages, producer._path.sent

    assert play(main()) == (0, 1)


def test_a_send_that_is_canceled_with_its_result_at_hand():
    async def main():
        async with Cluster({"a": stored}).producer() as producer:
            await producer.send("orders", b"one")
            await asyncio.sleep(1)
            task = asyncio.ensure_future(producer.send("orders", b"one"))
            await asyncio.sleep(0)
            channel = next(one for one in producer._instance.connections._channels.values() if one._waiting)
            [call] = channel._waiting.values()
            received = call.link.data_received
            call.link.data_received = lambda data: (received(data), call.is_done and task.cancel())
            with pytest.raises(asyncio.CancelledError):
                await task
            return producer.counts().messages, call.is_done

    assert play(main()) == (0, True)


def test_a_lost_connection_is_an_error_of_each_send():
    async def main():
        stage = Cluster({"a": stored})
        async with stage.producer(retry_times_when_send_failed=0) as producer:
            await producer.send("orders", b"one")
            await asyncio.sleep(1)
            sending = [asyncio.ensure_future(producer.send("orders", b"one")) for _ in range(3)]
            await asyncio.sleep(0)
            stage.cut(stage.address("a"))
            for task in sending:
                with pytest.raises(
                    ConnectionLostError,
                    match=r"may be stored; 1 attempt .broker a. did not confirm it: 10\.0\.1\.0:10911",
                ):
                    await task
            return producer._path.sent, producer.counts().messages

    assert play(main()) == (3, 0)


# without a task


@pytest.mark.parametrize("answer", sorted(ANSWERS))
@pytest.mark.parametrize("options", [{}, {"timeout": 40}, {"tags": "web", "keys": "k", "flag": 3}, {"shard": "c"}])
def test_a_send_without_a_task_has_the_same_end(answer, options):
    steps = one_by_one({}, {}) + one_by_one(options, options, answers=[answer, "ok"], wait=5.0)
    direct, used = virtual.run(history(steps, {}, True, is_direct=True))
    off, _ = virtual.run(history(steps, {}, False))
    assert direct == off and used >= (0 if "shard" in options else 2)


async def with_begun(end, work):
    """Begin a send that is not answered, and let work(producer, stage) happen."""
    stage = Cluster({"a": stored})
    async with stage.producer(retry_times_when_send_failed=0) as producer:
        await producer.send("orders", b"one")
        await asyncio.sleep(1)
        stage.brokers["a"].answers[310] = lambda call: None
        producer._begin_send(end, "orders", b"one", {})
        await asyncio.sleep(0)
        assert producer.counts().messages == 1 and producer._path.sent == 1
        await work(producer, stage)
        return producer.counts().messages


def test_a_lost_connection_ends_a_send_without_a_task():
    async def cut(producer, stage):
        stage.cut(stage.address("a"))
        await asyncio.sleep(1)

    waiter = Waiter()
    assert play(with_begun(waiter, cut)) == 0
    with pytest.raises(ConnectionLostError, match="the message may be stored; 1 attempt"):
        waiter.wait()


def test_a_thread_that_does_not_wait_any_more():
    async def stop(producer, stage):
        waiter.stop()
        assert producer.counts().messages == 0
        stage.brokers["a"].answers[310] = stored
        assert (await producer.send("orders", b"one")).status is SendStatus.SEND_OK

    waiter = Waiter()
    assert play(with_begun(waiter, stop)) == 0 and not waiter.is_done


def test_a_thread_that_stops_to_wait_while_its_send_is_tried_again():
    async def stop(producer, stage):
        stage.cut(stage.address("a"))
        await asyncio.sleep(0)  # the task of the rest has begun
        waiter.stop()
        await asyncio.sleep(1)

    waiter = Waiter()
    assert play(with_begun(waiter, stop)) == 0
    with pytest.raises((concurrent.futures.CancelledError, ConnectionLostError)):
        waiter.wait()


class Impatient(Waiter):
    """It is stopped when a task begins for it: the answer is here, and the task has not had its first step."""

    __slots__ = ("_cancel",)

    @property
    def cancel(self):
        return self._cancel

    @cancel.setter
    def cancel(self, cancel):
        self._cancel = cancel
        if isinstance(getattr(cancel, "__self__", None), asyncio.Task):
            self.stop()


@pytest.mark.parametrize("code", [1, 10])  # slave not available: stored; flush timeout
@pytest.mark.parametrize("is_batch", [False, True])
def test_a_send_that_is_canceled_as_its_answer_comes_gives_its_room_back(code, is_batch):
    def begin(producer, end):
        if is_batch:
            producer._begin_send_many(end, "orders", [b"one", b"two"], None, None)
        else:
            producer._begin_send(end, "orders", b"one", {})

    async def main():
        stage = Cluster({"a": stored})
        async with stage.producer(max_in_flight=2, retry_times_when_send_failed=0) as producer:
            await producer.send("orders", b"one")
            await asyncio.sleep(1)
            stage.brokers["a"].answers[310] = stage.brokers["a"].answers[320] = lambda call: Answer(code, remark="no")
            for _ in range(3):  # more than there is room for
                begin(producer, waiter := Impatient())
                await asyncio.sleep(1)
                with pytest.raises(concurrent.futures.CancelledError):
                    waiter.wait()
            stage.brokers["a"].answers[310] = stored
            assert (await producer.send("orders", b"one")).status is SendStatus.SEND_OK
            return producer.counts().messages, producer.counts().bytes, producer._path.sent

    assert play(main()) == (0, 0, 4)


def test_a_send_that_was_canceled_before_it_began():
    async def main():
        async with Cluster({"a": stored}).producer() as producer:
            waiter = Waiter()
            waiter.stop()
            producer._begin_send(waiter, "orders", b"one", {})
            await asyncio.sleep(1)
            return producer.counts().sends, waiter.is_done

    assert play(main()) == ([], False)


def test_the_first_end_counts():
    waiter = Waiter()
    waiter.set_result(1)
    waiter.set_exception(ValueError("x"))
    waiter.set_result(2)
    assert waiter.wait() == 1
    future = concurrent.futures.Future()
    end = FutureEnd(future)
    end.set_exception(ValueError("x"))
    end.set_result(2)
    with pytest.raises(ValueError, match="x"):
        future.result()
    canceled = concurrent.futures.Future()
    canceled.cancel()
    FutureEnd(canceled).set_result(1)
    assert canceled.cancelled()


def test_a_broker_that_refuses_a_heartbeat_gets_the_next_one_in_its_time():
    steps = [("heartbeats", "a", False), ("heartbeats", "b", False), *one_by_one({}, {}, {}, {}, {})]
    on, used = virtual.run(history(steps, {}, True))
    off, _ = virtual.run(history(steps, {}, False))
    assert on == off and used > 0
    assert sum(code == 34 for _, _, code, *_ in on[3]) == 2


def both(steps, least):
    """Compare both ways, and return what was seen. least: sends that the compiled way takes"""
    on, used = virtual.run(history(steps, {}, True))
    off, _ = virtual.run(history(steps, {}, False))
    assert on == off and used >= least
    return on


def test_a_new_route_is_used_at_once():
    send = [("send", "orders", b"one", {}), ("wait", 1.0)]
    soon = [send[0], ("wait", 0.8)]  # less than the time after which the route is read in any case
    steps = [*send, *send, ("wait", 27.5), ("perm", 4), *soon, *soon]
    _, ends, *_ = both(steps, 1)
    assert isinstance(ends[2], tuple) and "may not be written on" in ends[-1][1]


def test_a_connection_that_was_left_is_closed_after_its_last_answer():
    plain = ("send", "orders", b"one", {})
    away = [("answers", "a", ["away", "slow", "slow"]), ("answers", "b", ["slow"])]
    *_, (_, _, _, _, left) = both([*one_by_one({}, {}, {}, {}), *away, *[plain] * 8, ("wait", 10.0)], 8)
    assert ("10.0.1.0:10911", True) in left and ("10.0.1.0:10911", False) in left


def test_a_canceled_send_is_forgotten():
    steps = [*one_by_one({}, {}), ("answers", "a", ["none"]), ("answers", "b", ["none"])]
    steps += [("send", "orders", b"one", {}), ("wait", 0.1), ("cancel", 0)]
    *_, (_, _, _, _, left) = both(steps, 1)
    assert all(not waiting for waiting, _ in left[:3])


@pytest.mark.parametrize("text", ["web", 'a "b"\\ \n\r\t\f\b\x1f\x0e\x7f/', "d\u00e9j\u00e0 \U0001f6b2\u2028"])
def test_the_frames_are_equal(text, monkeypatch):
    def frames(is_on):
        written, original = [], virtual.MemoryTransport.write
        with monkeypatch.context() as patch:
            patch.setattr(virtual.MemoryTransport, "write", lambda at, data: (written.append(data), original(at, data)))
            steps = one_by_one({}, {}, {"tags": text}, {"keys": text}, {"tags": text, "keys": text, "flag": -(1 << 31)})
            _, used = virtual.run(history(steps, {"instance_name": "one"}, is_on))
        assert used == (3 if is_on else False)
        return written

    assert frames(True) == frames(False)


def test_a_callback_of_a_future_that_ends_the_program():
    """The loop gets what it raises; the message is not in flight any more."""

    async def main():
        async with Cluster({"a": stored}).producer() as producer:
            await producer.send("orders", b"one")
            await asyncio.sleep(1)
            future = concurrent.futures.Future()
            future.add_done_callback(lambda done: sys.exit(3))
            producer._begin_send(FutureEnd(future), "orders", b"two", {})
            assert producer._path.sent == 1
            raised = []
            receive = _Link.data_received

            def received(link, data):
                try:
                    receive(link, data)
                except SystemExit as error:
                    raised.append(error)

            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(_Link, "data_received", received)
                await asyncio.sleep(1)
            counts = producer.counts()
            return len(raised), future.result().queue_offset is not None, counts.messages, counts.sends[0][1].count

    assert play(main()) == (1, True, 0, 2)
