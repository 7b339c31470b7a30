"""Results of concurrent and orderly listeners: each cell of RocketMQ's tables."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketc.client.consume_results import (
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    batches,
    concurrent_result,
    concurrently_status,
    directly_result,
    finish,
    orderly_status,
)
from rocketc.client.offset_stores import NOT_FOUND, OffsetTable
from rocketc.client.orderly_results import OrderlyQueue, OrderlyStep, Turn, check_times, turn
from rocketc.client.process_queue import ProcessQueue
from rocketc.client.routes import MessageQueue
from rocketc.client.send_backs import LocalRetries, most_times
from rocketc.remoting.subscribing import MessageModel

QUEUE = MessageQueue("orders", "broker-a", 0)
SUCCESS, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER
CLUSTERING, BROADCASTING = MessageModel.CLUSTERING, MessageModel.BROADCASTING
Orderly = ConsumeOrderlyStatus
SUSPEND = Orderly.SUSPEND_CURRENT_QUEUE_A_MOMENT


@dataclass(frozen=True)
class Pulled:
    queue_offset: int
    reconsume_times: int = 0
    body: bytes = b"x"


def pulled(*found):
    return [Pulled(offset) for offset in found]


def held_of(*found):
    held = ProcessQueue()
    held.put(pulled(*found), now=0)
    return held


def offsets(messages):
    return [message.queue_offset for message in messages]


# ------------------------------------------------------------------------------------------ what a listener means


def test_statuses():
    assert concurrently_status(None) is SUCCESS and concurrently_status(LATER) is LATER
    assert orderly_status(None) is Orderly.SUCCESS and orderly_status(SUSPEND) is SUSPEND


@pytest.mark.parametrize("returned", [True, False, 0, "text", object()])
def test_other_values_are_success(returned):
    assert concurrently_status(returned) is SUCCESS and orderly_status(returned) is Orderly.SUCCESS


def test_a_status_of_the_other_kind():
    with pytest.raises(TypeError, match=r"a listener returned .* expected a ConsumeConcurrentlyStatus"):
        concurrently_status(SUSPEND)
    with pytest.raises(TypeError, match=r"a listener returned .* expected a ConsumeOrderlyStatus"):
        orderly_status(LATER)


@pytest.mark.parametrize(("count", "size", "sizes"), [(0, 1, []), (3, 1, [1, 1, 1]), (5, 2, [2, 2, 1]), (5, 9, [5])])
def test_batches(count, size, sizes):
    assert [len(batch) for batch in batches(range(count), size)] == sizes


# ------------------------------------------------------------------------------------------ concurrent


@pytest.mark.parametrize(
    ("status", "ack_index", "failed"),
    [
        (SUCCESS, None, []),
        (SUCCESS, 0, [2, 3]),
        (SUCCESS, 1, [3]),
        (SUCCESS, 2, []),
        (SUCCESS, 99, []),
        (SUCCESS, -1, [1, 2, 3]),
        (SUCCESS, -2, [1, 2, 3]),
        (LATER, None, [1, 2, 3]),
        (LATER, 1, [1, 2, 3]),
    ],
)
def test_failed_messages(status, ack_index, failed):
    options = {} if ack_index is None else {"ack_index": ack_index}
    clustering = concurrent_result(pulled(1, 2, 3), status, held_of(1, 2, 3), CLUSTERING, **options)
    assert (offsets(clustering.failed), offsets(clustering.ignored)) == (failed, [])
    broadcasting = concurrent_result(pulled(1, 2, 3), status, held_of(1, 2, 3), BROADCASTING, **options)
    assert (offsets(broadcasting.failed), offsets(broadcasting.ignored)) == ([], failed)


def test_a_message_that_expired_is_not_sent_back_again():
    result = concurrent_result(pulled(1, 2, 3), LATER, held_of(1, 3), CLUSTERING)
    assert offsets(result.failed) == [1, 3]


def test_nothing_follows_for_a_dropped_queue():
    held = held_of(1)
    held.is_dropped = True
    assert concurrent_result(pulled(1), LATER, held, CLUSTERING) is None


def test_finish():
    held, store = held_of(1, 2, 3, 4, 5, 6), OffsetTable()
    assert finish(QUEUE, pulled(3, 4), held, store) == []
    assert store.get(QUEUE) == 1
    assert offsets(finish(QUEUE, pulled(1, 2), held, store, unsent=pulled(2))) == [2]
    assert (store.get(QUEUE), len(held)) == (2, 3)
    assert finish(QUEUE, pulled(2), held, store) == []
    assert store.get(QUEUE) == 5
    assert finish(QUEUE, pulled(5, 6), held, store) == []
    assert store.get(QUEUE) == 7
    store.update(QUEUE, 100, increase_only=False)
    assert finish(QUEUE, pulled(5), held, store) == []  # the queue is empty
    held.put(pulled(8), now=0)
    finish(QUEUE, pulled(8), held, store)
    assert store.get(QUEUE) == 100  # increase-only


def test_a_queue_that_is_dropped_while_failures_are_sent():
    held, store = held_of(1), OffsetTable()
    held.is_dropped = True
    finish(QUEUE, pulled(1), held, store)
    assert (store.offsets(), len(held)) == ({}, 0)


def test_an_empty_queue_stores_nothing():
    store = OffsetTable()
    assert finish(QUEUE, pulled(1), ProcessQueue(), store) == []
    assert store.offsets() == {}


# ------------------------------------------------------------------------------------------ orderly: turns


@pytest.mark.parametrize(
    ("lock", "begun", "model", "found"),
    [
        (None, None, CLUSTERING, (Turn.LOCK, 100)),
        (None, 90_000, CLUSTERING, (Turn.LOCK, 10)),
        (100_000, None, CLUSTERING, (Turn.TAKE, 0)),
        (70_000, None, CLUSTERING, (Turn.TAKE, 0)),
        (69_999, None, CLUSTERING, (Turn.LOCK, 100)),
        (69_999, 90_000, CLUSTERING, (Turn.LOCK, 10)),
        (100_000, 40_000, CLUSTERING, (Turn.TAKE, 0)),
        (100_000, 39_999, CLUSTERING, (Turn.AGAIN, 10)),
        (None, None, BROADCASTING, (Turn.TAKE, 0)),
        (None, 39_999, BROADCASTING, (Turn.AGAIN, 10)),
    ],
)
def test_turns(lock, begun, model, found):
    held = ProcessQueue()
    if lock is not None:
        held.set_locked(now=lock)
    assert turn(held, 100_000, begun, model) == found
    held.is_locked = False
    assert (turn(held, 100_000, begun, model)[0] is Turn.LOCK) is (model is CLUSTERING)
    held.is_dropped = True
    assert turn(held, 100_000, begun, model) == (Turn.END, 0)


# ------------------------------------------------------------------------------------------ orderly: results


def apply(status, *, taken=((1, 2), (3,)), **options):
    """The step, the stored offset, and what the next take() returns, after the result of the last taken messages."""
    held, store = held_of(1, 2, 3, 4), OffsetTable()
    for found in taken:
        messages = held.take(len(found), now=0)
    orderly = OrderlyQueue(QUEUE, held, store)
    step = orderly.apply(messages, status, **options)
    return step, store.get(QUEUE), offsets(held.take(9, now=0))


CONTINUES, STOPS = OrderlyStep(True), OrderlyStep(False, 1000)


@pytest.mark.parametrize(
    ("status", "auto", "suspended", "step", "stored", "left"),
    [
        (Orderly.SUCCESS, True, None, CONTINUES, 4, [4]),
        (Orderly.COMMIT, True, None, OrderlyStep(True, is_misuse=True), 4, [4]),
        (Orderly.ROLLBACK, True, None, OrderlyStep(True, is_misuse=True), 4, [4]),
        (SUSPEND, True, [Pulled(3)], STOPS, NOT_FOUND, [3, 4]),
        (SUSPEND, True, None, STOPS, NOT_FOUND, [3, 4]),
        (SUSPEND, True, [], CONTINUES, 4, [4]),
        (Orderly.SUCCESS, False, None, CONTINUES, NOT_FOUND, [4]),
        (Orderly.COMMIT, False, None, CONTINUES, 4, [4]),
        (Orderly.ROLLBACK, False, None, STOPS, NOT_FOUND, [1, 2, 3, 4]),
        (SUSPEND, False, [Pulled(3)], STOPS, NOT_FOUND, [3, 4]),
        (SUSPEND, False, [], CONTINUES, NOT_FOUND, [4]),
    ],
)
def test_results(status, auto, suspended, step, stored, left):
    assert apply(status, auto_commit=auto, suspended=suspended) == (step, stored, left)


def test_a_later_commit_includes_the_kept_messages():
    held, store = held_of(1, 2, 3), OffsetTable()
    orderly = OrderlyQueue(QUEUE, held, store)
    orderly.apply(held.take(1, now=0), Orderly.SUCCESS, auto_commit=False)
    orderly.apply(held.take(1, now=0), SUSPEND, auto_commit=False)
    assert store.get(QUEUE) == NOT_FOUND
    orderly.apply(held.take(1, now=0), Orderly.COMMIT, auto_commit=False)
    assert store.get(QUEUE) == 3
    assert offsets(held.take(9, now=0)) == [3]


@pytest.mark.parametrize(
    ("chosen", "own", "delay"),
    [
        (-1, 1000, 1000),
        (0, 1000, 10),
        (9, 1000, 10),
        (11, 1000, 11),
        (99_999, 1, 30_000),
        (-1, 5, 10),
        (-2, 1000, 10),
    ],
)
def test_pauses(chosen, own, delay):
    for status in (SUSPEND, Orderly.ROLLBACK):
        held = held_of(1)
        orderly = OrderlyQueue(QUEUE, held, OffsetTable(), own)
        step = orderly.apply(held.take(1, now=0), status, auto_commit=False, later_ms=chosen)
        assert step == OrderlyStep(False, delay)


def test_a_smaller_offset_is_stored_too():
    held, store = held_of(1), OffsetTable()
    store.update(QUEUE, 100, increase_only=False)
    OrderlyQueue(QUEUE, held, store).apply(held.take(1, now=0), Orderly.SUCCESS)
    assert store.get(QUEUE) == 2


def test_a_dropped_queue_stores_nothing():
    held, store = held_of(1), OffsetTable()
    messages = held.take(1, now=0)
    held.is_dropped = True
    OrderlyQueue(QUEUE, held, store).apply(messages, Orderly.SUCCESS)
    assert store.get(QUEUE) == NOT_FOUND


def test_a_commit_of_nothing():
    held, store = held_of(1), OffsetTable()
    messages = held.take(1, now=0)
    held.clear()
    OrderlyQueue(QUEUE, held, store).apply(messages, Orderly.SUCCESS)
    assert store.offsets() == {}


def test_times_are_counted_until_the_commit():
    held, store = held_of(1, 2, 3), OffsetTable()
    orderly = OrderlyQueue(QUEUE, held, store)
    for count in (0, 1, 2):
        messages = held.take(2, now=0)
        assert [orderly.retries.times(message) for message in messages] == [count, count]
        found = check_times(messages, orderly.retries, most=2)
        assert (offsets(found.dead), offsets(found.suspend)) == (([], [1, 2]) if count < 2 else ([1, 2], []))
        orderly.apply(messages, SUSPEND, suspended=found.suspend)
    assert store.get(QUEUE) == 3
    assert len(orderly.retries) == 0


def test_only_suspended_messages_are_counted():
    messages = [Pulled(1, reconsume_times=5), Pulled(2)]
    held = ProcessQueue()
    held.put(messages, now=0)
    orderly = OrderlyQueue(QUEUE, held, OffsetTable())
    found = check_times(held.take(2, now=0), orderly.retries, most=5)
    assert (offsets(found.dead), offsets(found.suspend)) == ([1], [2])
    orderly.apply(messages, SUSPEND, suspended=found.suspend)
    assert [orderly.retries.times(message) for message in held.take(2, now=0)] == [5, 1]  # both come again


def test_orderly_messages_are_tried_for_ever():
    most = most_times(-1, is_orderly=True)
    assert check_times([Pulled(1, reconsume_times=1_000_000)], LocalRetries(), most).dead == []


@given(st.lists(st.tuples(st.sampled_from(Orderly), st.booleans(), st.integers(1, 4), st.booleans()), max_size=30))
def test_no_commit_passes_a_message_that_was_not_consumed(calls):
    held, store = held_of(*range(10)), OffsetTable()
    orderly, consumed = OrderlyQueue(QUEUE, held, store), set()
    for status, auto, count, all_dead in calls:
        messages = held.take(count, now=0)
        if not messages:
            break
        step = orderly.apply(messages, status, auto_commit=auto, suspended=[] if all_dead else messages)
        if step.continues:
            consumed |= {message.queue_offset for message in messages}
        stored = store.get(QUEUE)
        assert stored == NOT_FOUND or set(range(stored)) <= consumed


# ------------------------------------------------------------------------------------------ an operator asks


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        (SUCCESS, "CR_SUCCESS"),
        (LATER, "CR_LATER"),
        (Orderly.SUCCESS, "CR_SUCCESS"),
        (SUSPEND, "CR_LATER"),
        (Orderly.COMMIT, "CR_COMMIT"),
        (Orderly.ROLLBACK, "CR_ROLLBACK"),
    ],
)
def test_consumed_directly(outcome, result):
    orderly = isinstance(outcome, Orderly)
    assert directly_result(outcome, 7, is_orderly=orderly, auto_commit=False) == {
        "autoCommit": False,
        "consumeResult": result,
        "order": orderly,
        "spentTimeMills": 7,
    }


def test_an_exception_of_a_listener():
    found = directly_result(KeyError("amount"), 7, is_orderly=True)
    assert (found["consumeResult"], found["remark"]) == ("CR_THROW_EXCEPTION", "KeyError: 'amount'")
    assert (found["order"], found["autoCommit"]) == (True, True)
