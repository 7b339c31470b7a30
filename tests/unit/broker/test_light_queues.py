"""Light queues (%LMQ%) at a broker: they are read as the queue of a topic, with lag, long polling and cleaning."""

import json
import threading

import pytest
from interop import light_queues
from interop.asking import Asking
from interop.light_queues import GROUP, LIGHT, SEND, at, of_group, pull

import rocketc
from rocketc.remoting.codes import Code
from rocketc.tables.fastjson import parse

ON = {"enable_lmq": True, "enable_multi_dispatch": True}


@pytest.fixture
def broker():
    with rocketc.Broker(**ON, mapped_file_size_commit_log=1 << 16) as broker:
        yield broker


@pytest.fixture
def ask(broker, request):
    """ask(name, fields, body): (code, fields, body) of an answer of the broker."""
    asking = Asking(broker.address)
    request.addfinalizer(asking.close)
    return lambda name, fields, body=None: asking.ask(name, body, **fields)


def test_pulls_and_offsets_as_in_rocketmq(broker):
    """The codes are those of RocketMQ 5.3.3: interop/test_light_queues.py compares all of each answer."""
    codes = [code for _, _, _, code, _, _ in light_queues.answers(broker.address)]
    assert codes == [
        *(0, 0, 19, 21, 19, 29, 29, 17, 0),  # pulls
        *(0, 0, 0, 0, 0, 0), *(0, 0), 0,  # ends and begins, times
        *(0, 0, 22), *(0, 0, 17), 0, *(0, 0, 0),  # offsets of the group
        0, 0,
    ]  # fmt: skip


def test_light_queues_are_off_by_default():
    with rocketc.Broker() as broker:
        codes = [code for _, _, _, code, _, _ in light_queues.answers(broker.address, is_on=False)]
    assert codes[:9] == [17] * 9


def test_a_pull_waits_for_a_message_of_another_topic(broker, ask, request):
    light_queues.answers(broker.address)
    other = Asking(broker.address)
    request.addfinalizer(other.close)
    sends = threading.Timer(0.05, lambda: other.ask("SEND_MESSAGE_V2", b"3", **SEND))
    sends.start()
    name, fields = pull(LIGHT, 3, sysFlag=6, suspendTimeoutMillis=10_000)
    code, answer, body = ask(name, fields)
    sends.join()
    assert (code, answer["nextBeginOffset"]) == (0, "4") and b"INNER_MULTI_DISPATCH" in body


def test_the_lag_of_a_group(broker, ask):
    light_queues.answers(broker.address)
    code, _, body = ask("GET_CONSUME_STATS", {"consumerGroup": GROUP})
    table = parse(body, object_names=True)["offsetTable"]
    lags = {dict(queue)["topic"]: one["brokerOffset"] - one["consumerOffset"] for queue, one in table.items()}
    assert code == 0 and lags[LIGHT] == 3 - 2
    code, _, body = ask("GET_TOPIC_CONFIG", {"topic": LIGHT})
    assert code == 0 and json.loads(body)["readQueueNums"] == 1


def test_cleaning_and_deletion(broker, ask):
    body = bytes(20_000)
    for _ in range(8):
        assert ask("SEND_MESSAGE_V2", SEND, body)[0] == 0
    broker.store.wait_dispatched()
    assert broker.store.clean(expired_ms=0).log_files == 2
    first = int(ask(*at("GET_MIN_OFFSET", LIGHT))[1]["offset"])
    assert 0 < first < 8
    code, answer, _ = ask(*pull(LIGHT, 0))
    assert (code, answer["nextBeginOffset"]) == (Code.PULL_OFFSET_MOVED, str(first))
    assert ask(*of_group("UPDATE_CONSUMER_OFFSET", LIGHT, commitOffset=5))[0] == 0
    assert ask("DELETE_TOPIC_IN_BROKER", {"topic": LIGHT})[0] == 0
    assert ask(*pull(LIGHT, 0))[0] == Code.PULL_NOT_FOUND
    assert ask(*of_group("QUERY_CONSUMER_OFFSET", LIGHT))[0] == Code.QUERY_NOT_FOUND
