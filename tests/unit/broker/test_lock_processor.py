"""Lock and unlock requests; the answers were seen on a 5.3.3 broker."""

import json

import pytest

from rocketc.broker.lock_processor import LockProcessor
from rocketc.broker.locks import RebalanceLockManager
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command
from rocketc.remoting.server import Call

LOCK, UNLOCK = 41, 42


class Broker:
    """The processor; `ask` returns (code, body or remark)."""

    def __init__(self, **options):
        self.now = 0
        self.locks = RebalanceLockManager(lambda group: {"a", "b"}, **options)
        self.processor = LockProcessor(self.locks, clock=lambda: self.now)

    def ask(self, code, body):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        answer = self.processor.process(Call(Command(code, body=body), {}, "a", print))
        return answer.code, (answer.body.decode() if answer.remark is None else answer.remark)

    def lock(self, client, *queue_ids, group="g"):
        code, body = self.ask(LOCK, request(client, *queue_ids, group=group))
        assert code == Code.SUCCESS
        return [queue["queueId"] for queue in json.loads(body)["lockOKMQSet"]]


@pytest.fixture
def broker():
    return Broker()


def queue(queue_id, topic="orders"):
    return {"topic": topic, "brokerName": "b", "queueId": queue_id}


def request(client, *queue_ids, group="g"):
    queues = [queue(queue_id) for queue_id in queue_ids]
    return {"consumerGroup": group, "clientId": client, "onlyThisBroker": False, "mqSet": queues}


def test_the_form_of_an_answer(broker):
    found = broker.ask(LOCK, request("a", 9, "7", 9))
    assert found == (
        Code.SUCCESS,
        '{"lockOKMQSet":[{"brokerName":"b","queueId":9,"topic":"orders"},{"brokerName":"b","queueId":7,"topic":"orders"}]}',
    )
    assert broker.ask(UNLOCK, request("a", 9)) == (Code.SUCCESS, "")
    body = request("a") | {"mqSet": [queue(0, "ü")]}
    assert broker.ask(LOCK, body)[1] == '{"lockOKMQSet":[{"brokerName":"b","queueId":0,"topic":"ü"}]}'


def test_who_gets_which_queues(broker):
    assert broker.lock("a", 0, 1) == [0, 1]
    assert broker.lock("b", 1, 2) == [2]
    broker.ask(UNLOCK, request("b", 1))
    assert broker.lock("a", 1) == [1]
    broker.ask(UNLOCK, request("a", 1))
    assert broker.lock("b", 1) == [1]
    assert broker.lock("a", 1, group="h") == [1]
    broker.now = 60_000
    assert broker.lock("b", 0) == []
    broker.now = 60_001
    assert broker.lock("b", 0) == [0]


def test_unknown_topics_and_brokers_can_be_locked(broker):
    body = {"consumerGroup": "", "clientId": "", "mqSet": [queue(0, "no such"), queue(0) | {"brokerName": "other"}]}
    assert broker.ask(LOCK, body)[0] == Code.SUCCESS
    assert broker.locks.count("") == 2


@pytest.mark.parametrize("code", [LOCK, UNLOCK])
@pytest.mark.parametrize("body", [{}, {"mqSet": None, "clientId": "a"}, request("a")])
def test_requests_without_queues(broker, code, body):
    assert broker.ask(code, body) == (Code.SUCCESS, '{"lockOKMQSet":[]}' if code == LOCK else "")


@pytest.mark.parametrize("code", [LOCK, UNLOCK])
@pytest.mark.parametrize(
    "body, error",
    [
        (b"", "the body is not a JSON object"),
        (b"null", "the body is not a JSON object"),
        (b"[]", "the body is not a JSON object"),
        (b"{", "the body is not JSON"),
        (b"[" * 100_000, "nested too deep"),
        (b" " * ((1 << 20) + 1), "the body has 1048577 bytes"),
        ({"mqSet": [queue(0)], "clientId": "a"}, "lacks the member consumerGroup"),
        ({"mqSet": [queue(0)], "consumerGroup": "g"}, "lacks the member clientId"),
        (request("a") | {"mqSet": 5}, "mqSet is not a list"),
        (request("a") | {"mqSet": [queue(0), 5]}, "a queue is not a JSON object"),
        (request("a") | {"mqSet": [queue(0), None]}, "a queue is not a JSON object"),
        (request("a") | {"mqSet": [queue(0), {}]}, "a queue lacks the member topic"),
        (request("a") | {"mqSet": [queue(0), queue(1, "t" * 256)]}, "topic has 256 characters"),
        (request("a", 0, "x"), "queueId is not a whole number"),
        (request("a", 0, 1 << 31), "queueId is not a whole number"),
        (request("a" * 1025, 0), "clientId has 1025 characters"),
        (request("a", 0, group="g" * 256), "consumerGroup has 256 characters"),
        (request([5], 0), "clientId is not a text"),
        ({"mqSet": [{"topic": "t"}] * 10_001}, "mqSet has 10001 elements"),
    ],
)
def test_hostile_requests_lock_nothing(broker, code, body, error):
    found, remark = broker.ask(code, body)
    assert found == Code.SYSTEM_ERROR and error in remark
    assert broker.locks._groups == {}


def test_locks_are_limited():
    broker = Broker(most=3)
    assert broker.lock("a", 0, 1, 2, 3) == [0, 1, 2]
    assert broker.lock("b", 9, group="h") == [] and "h" not in broker.locks._groups
    assert broker.lock("a", 0) == [0]
    broker.ask(UNLOCK, request("a", 1))
    broker.now = 1000
    assert broker.lock("b", 9, group="h") == [9]
    broker.now = 60_001  # 0 and 2 of the first client are free
    assert broker.lock("b", 7, 8, 9, group="h") == [7, 8, 9]
