"""Each pause, each answer and each limit of the pull loop, with RocketMQ's numbers."""

import logging
from types import SimpleNamespace

import pytest

from rocketc.client.process_queue import ProcessQueue
from rocketc.client.pull_decisions import (
    PULL_CODES,
    AfterPull,
    PullGate,
    PullLimits,
    PullRequest,
    PullStatus,
    Step,
    after_pull,
    delay_after_error,
    pull_fields,
    read_address,
)
from rocketc.client.routes import BrokerData, MessageQueue
from rocketc.client.subscriptions import subscribe
from rocketc.errors import AnswerError, NoAnswerError
from rocketc.remoting.requests import REQUESTS
from rocketc.remoting.subscribing import MessageModel

QUEUE = MessageQueue("orders", "broker-a", 3)
PULL, FORGET = (Step.PULL, 0), (Step.FORGET, 0)


def request(*offsets, size=0):
    found = PullRequest(QUEUE, ProcessQueue(), next_offset=7)
    body = bytes(size)
    found.process_queue.put([SimpleNamespace(queue_offset=offset, body=body) for offset in offsets], now=0)
    return found


@pytest.fixture
def gate():
    return PullGate(PullLimits(), is_orderly=False)


# ------------------------------------------------------------------------------------------ before a pull


def test_a_pull(gate):
    one = request()
    assert gate.step(one, now=55) == PULL
    assert one.process_queue.last_pull == 55


def test_a_dropped_queue(gate):
    one = request()
    one.process_queue.is_dropped = True
    assert gate.step(one, now=55, is_paused=True) == FORGET
    assert one.process_queue.last_pull == 0


@pytest.mark.parametrize("state", [{"is_running": False}, {"is_paused": True}, {"is_subscribed": False}])
def test_pauses_of_a_second(gate, state):
    one = request()
    assert gate.step(one, now=55, **state) == (Step.PAUSE, 1000)
    assert one.process_queue.last_pull == 55


def test_too_many_messages(gate):
    assert gate.step(request(*range(1000)), now=0) == PULL
    assert gate.step(request(*range(1001)), now=0) == (Step.PAUSE, 50)
    assert gate.pauses == 1


def test_messages_in_hand_count(gate):
    one = request(*range(1001))
    one.process_queue.take(1000, now=0)
    assert gate.step(one, now=0) == (Step.PAUSE, 50)


def test_too_many_bytes(gate):
    mib = 1 << 20
    assert gate.step(request(*range(101), size=mib - 1), now=0) == PULL  # 100 whole MiB
    assert gate.step(request(*range(101), size=mib), now=0) == (Step.PAUSE, 50)


def test_too_wide(gate):
    assert gate.step(request(5, 2005), now=0) == PULL
    assert gate.step(request(5, 2006), now=0) == (Step.PAUSE, 50)
    one = request(5, 2006)
    one.process_queue.is_locked = one.is_previously_locked = True
    assert PullGate(PullLimits(), is_orderly=True).step(one, now=0) == PULL


def test_orderly_needs_the_lock_and_computes_its_offset_once():
    gate, one = PullGate(PullLimits(), is_orderly=True), request()
    assert gate.step(one, now=0) == (Step.PAUSE, 1000)
    one.process_queue.set_locked(now=0)
    assert gate.step(one, now=0) == (Step.RECOMPUTE, 0)
    assert gate.step(one, now=0) == (Step.RECOMPUTE, 0)
    one.begin_at(40)
    assert gate.step(one, now=0) == PULL
    assert one.next_offset == 40
    one.process_queue.is_locked = False
    assert gate.step(one, now=0) == (Step.PAUSE, 1000)


def test_limits_come_before_the_lock():
    assert PullGate(PullLimits(), is_orderly=True).step(request(*range(1001)), now=0) == (Step.PAUSE, 50)


def test_each_thousandth_pause_is_logged(gate, caplog):
    one = request(*range(4, 1005), size=1100)
    with caplog.at_level(logging.WARNING, "rocketc.client"):
        for _ in range(1001):
            gate.step(one, now=0)
    where = "orders, broker-a, queue 3: pulls wait for the listener: 1001 messages, offsets 4 to 1004, 1 MiB"
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"{where}; 0 pauses before this one", f"{where}; 1000 pauses before this one"]


def test_other_limits(gate):
    gate.limits = PullLimits(pull_threshold_for_queue=2)
    assert gate.step(request(0, 1), now=0) == PULL
    assert gate.step(request(0, 1, 2), now=0) == (Step.PAUSE, 50)
    gate.limits = PullLimits(consume_concurrently_max_span=1)
    assert gate.step(request(0, 2), now=0) == (Step.PAUSE, 50)
    gate.limits = PullLimits(pull_threshold_size_for_queue=1)
    assert gate.step(request(0, size=2 << 20), now=0) == (Step.PAUSE, 50)


# ------------------------------------------------------------------------------------------ limits


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("pull_threshold_for_queue", 1, 65535),
        ("pull_threshold_size_for_queue", 1, 1024),
        ("pull_threshold_for_topic", 1, 6553500),
        ("pull_threshold_size_for_topic", 1, 102400),
        ("consume_concurrently_max_span", 1, 65535),
    ],
)
def test_ranges(name, least, most):
    for value in (least, most):
        assert getattr(PullLimits(**{name: value}), name) == value
    for value in (least - 1, most + 1, -2):
        with pytest.raises(ValueError, match=f"{name} is {value}; allowed are {least} to {most}"):
            PullLimits(**{name: value})
    if name.endswith("_queue"):
        with pytest.raises(ValueError, match=name):
            PullLimits(**{name: -1})


@pytest.mark.parametrize(("owned", "share"), [(1, 1024), (2, 512), (3, 341), (2000, 1)])
def test_limits_of_a_topic_are_divided(owned, share):
    limits = PullLimits(pull_threshold_for_topic=1024, pull_threshold_size_for_topic=1024)
    found = limits.shared(owned)
    assert (found.pull_threshold_for_queue, found.pull_threshold_size_for_queue) == (share, share)
    assert found.pull_threshold_for_topic == 1024


def test_without_limits_of_a_topic_those_of_the_queue_stay():
    limits = PullLimits(pull_threshold_for_queue=1024)
    assert limits.shared(3) == limits
    assert PullLimits(pull_threshold_for_topic=10).shared(0).pull_threshold_for_queue == 1000
    assert PullLimits(pull_threshold_for_topic=6553500).shared(1).pull_threshold_for_queue == 65535


# ------------------------------------------------------------------------------------------ fields


def test_fields_are_those_of_the_table():
    fields = pull_fields("audit", request(), subscribe("orders", "A"), 5, post_subscription_when_pull=True)
    table = {field.name: field.required for field in REQUESTS[11].fields}
    assert {name for name, required in table.items() if required} <= fields.keys() <= table.keys()
    assert (fields["suspendTimeoutMillis"], fields["maxMsgNums"], fields["maxMsgBytes"]) == (15000, 32, 262144)
    assert (fields["topic"], fields["queueId"], fields["queueOffset"]) == ("orders", 3, 7)


@pytest.mark.parametrize(
    ("memory", "options", "flags", "commits"),
    [
        (5, {}, 3, 5),
        (0, {}, 2, 0),
        (-1, {}, 2, 0),
        (5, {"is_slave": True}, 2, 0),
        (5, {"model": MessageModel.BROADCASTING}, 2, 0),
        (5, {"post_subscription_when_pull": True}, 7, 5),
    ],
)
def test_flags(memory, options, flags, commits):
    fields = pull_fields("audit", request(), subscribe("orders", "A || B", sub_version=9), memory, **options)
    assert (fields["sysFlag"], fields["commitOffset"]) == (flags, commits)
    assert fields.get("subscription") == ("A || B" if flags & 4 else None)
    assert (fields["subVersion"], fields["expressionType"]) == (9, "TAG")


@pytest.mark.parametrize(
    ("ids", "wanted", "found"),
    [
        ((0, 1), 0, ("h0", False)),
        ((0, 1), 1, ("h1", True)),
        ((0, 2, 3), 1, ("h2", True)),
        ((0, 3), 1, ("h0", False)),
        ((0,), 1, ("h0", False)),
        ((1, 2), 0, ("h1", True)),
        ((), 0, None),
    ],
)
def test_addresses(ids, wanted, found):
    broker = BrokerData("a", "C", {id: f"h{id}" for id in ids})
    assert read_address(broker, wanted) == found


def test_only_this_address():
    broker = BrokerData("a", "C", {0: "h0", 2: "h2"})
    assert read_address(broker, 1, only_this=True) == ("h2", True)
    assert read_address(broker, 3, only_this=True) is None
    assert read_address(BrokerData("a", "C", {1: "h1"}), 0, only_this=True) is None


# ------------------------------------------------------------------------------------------ after a pull


def test_codes():
    assert {code: PullStatus(code).name for code in PULL_CODES} == {
        0: "FOUND",
        19: "NO_NEW_MSG",
        20: "NO_MATCHED_MSG",
        21: "OFFSET_ILLEGAL",
    }


@pytest.mark.parametrize(
    ("held", "status", "wanted", "after"),
    [
        ([], PullStatus.FOUND, 5, AfterPull(9, 70, submits=True)),
        ([1], PullStatus.FOUND, 5, AfterPull(9, 70, submits=True)),
        ([], PullStatus.FOUND, 0, AfterPull(9, 0, saves_offset=True)),
        ([1], PullStatus.FOUND, 0, AfterPull(9, 0)),
        ([], PullStatus.NO_NEW_MSG, 0, AfterPull(9, 0, saves_offset=True)),
        ([1], PullStatus.NO_NEW_MSG, 0, AfterPull(9, 0)),
        ([], PullStatus.NO_MATCHED_MSG, 0, AfterPull(9, 0, saves_offset=True)),
        ([1], PullStatus.NO_MATCHED_MSG, 0, AfterPull(9, 0)),
        ([1], PullStatus.OFFSET_ILLEGAL, 0, AfterPull(9, None, is_reset=True)),
    ],
)
def test_answers(held, status, wanted, after):
    assert after_pull(request(*held), status, 9, wanted, pull_interval=70) == after


@pytest.mark.parametrize(
    ("error", "delay"),
    [(AnswerError("a:1", "busy", 215), 20), (AnswerError("a:1", "failed", 1), 1000), (NoAnswerError("late"), 1000)],
)
def test_errors(error, delay):
    assert delay_after_error(error) == delay
