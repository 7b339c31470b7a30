"""What an operator does with `rocketc admin`, from a new topic to its end. The same at our broker and at RocketMQ's."""

import json
import time
from collections.abc import Callable
from typing import Any

from interop.asking import Asking

from rocketc.remoting.versions import version_name

TOPIC, GROUP = "story-orders", "story-billing"


class Operator:
    """Types commands. Each must end with the expected code, and have nothing on stderr if that is 0."""

    def __init__(self, run: Callable[..., tuple[int, str, str]], name_server: str) -> None:
        self._run, self._name_server = run, name_server

    def says(self, *args: object, code: int = 0) -> str:
        ended, out, err = self._run("admin", *args, "-n", self._name_server)
        assert ended == code and (code != 0 or err == ""), (args, ended, out, err)
        return out or err

    def code(self, *args: object) -> int:
        return self._run("admin", *args, "-n", self._name_server)[0]

    def json(self, *args: object, code: int = 0) -> Any:
        return json.loads(self.says(*args, "--json", code=code))

    def until(self, look: Callable[[], Any], wanted: Any, seconds: float = 15.0) -> None:
        """Brokers tell the name server of changes a moment later."""
        end = time.monotonic() + seconds
        while (found := look()) != wanted:
            assert time.monotonic() < end, (found, wanted)
            time.sleep(0.05)


def heartbeat(topic: str) -> dict[str, Any]:
    """A push consumer, as Java's client describes itself."""
    subscription = {
        "classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": "*", "subVersion": 1,
        "tagsSet": [], "topic": topic,
    }  # fmt: skip
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "consumeType": "CONSUME_PASSIVELY", "groupName": GROUP,
        "messageModel": "CLUSTERING", "subscriptionDataSet": [subscription], "unitMode": False,
    }  # fmt: skip
    return {"clientID": "10.0.0.9@7", "consumerDataSet": [consumer], "producerDataSet": [{"groupName": "story-shop"}]}


def play(operator: Operator, broker: str, *, is_reset_at_once: bool) -> None:
    """Play the story.

    broker            address of the only broker
    is_reset_at_once  brokers before 5.2 refuse to reset a group whose consumers do not answer
    """
    operator.until(lambda: operator.code("brokers"), 0)  # RocketMQ's fail until they have taken samples, for a second
    [found] = operator.json("brokers")["brokers"]
    assert (found["address"], found["brokerId"], found["fault"]) == (broker, 0, None)
    assert operator.says("brokers").splitlines()[0].split()[:4] == ["cluster", "broker", "id", "address"]

    # a topic, and three messages in its first queue
    name = found["broker"]
    assert operator.says("create-topic", TOPIC, "--queues", 2) == f"{TOPIC}: 2 queues on {name}\n"
    operator.until(lambda: _topic(operator), (2, [6], 0))
    client = Asking(broker)
    send = {
        "a": "story-shop", "b": TOPIC, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "j": 0,
        "k": False, "l": 0, "m": False,
    }  # fmt: skip
    for _ in range(3):
        answer = client.ask("SEND_MESSAGE_V2", b"an order", **send)
        assert answer[0] == 0, answer
    operator.until(lambda: _topic(operator), (2, [6], 3))
    queues = operator.json("topics", TOPIC)["queues"]
    assert [(one["queueId"], one["minOffset"], one["maxOffset"]) for one in queues] == [(0, 0, 3), (1, 0, 0)]
    assert operator.says("topics", "story-none", code=1) == "rocketc: there is no topic 'story-none'\n"

    # a consumer that has consumed one of them
    assert operator.says("lag", GROUP, code=1) == f"rocketc: the group {GROUP!r} has consumed nothing\n"
    answer = client.ask("HEART_BEAT", heartbeat(TOPIC))
    assert answer[0] == 0, answer
    commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 1}
    assert client.ask("UPDATE_CONSUMER_OFFSET", **commit)[0] == 0
    state = operator.json("connections", GROUP)
    assert [one["clientId"] for one in state["clients"]] == ["10.0.0.9@7"] and state["subscriptions"][TOPIC] == "*"
    assert [one["versionName"] for one in state["clients"]] == [
        version_name(one["version"]) for one in state["clients"]
    ]
    assert operator.says("connections", "story-shop", "--producers").splitlines()[1].split()[0] == "10.0.0.9@7"
    [group] = [one for one in operator.json("groups")["groups"] if one["group"] == GROUP]
    assert (group["consumers"], group["messageModel"], group["topics"]) == (1, "CLUSTERING", [TOPIC])
    assert _lags(operator)[0] == (0, 3, 1, 2)
    assert [one["lag"] for one in operator.json("lag")["groups"] if one["group"] == GROUP] == [2]

    # it continues elsewhere
    plan = operator.json("reset-offset", GROUP, TOPIC, "--to", "earliest", "--dry-run")["queues"]
    assert next((one["queueId"], one["oldOffset"], one["newOffset"]) for one in plan) == (0, 1, 0)
    assert "give --yes" in operator.says("reset-offset", GROUP, TOPIC, "--to", "earliest", code=2)
    assert operator.says("reset-offset", GROUP, "story-none", "--to", "earliest", "--yes", code=1)
    if not is_reset_at_once:
        client.close()
        operator.until(lambda: operator.says("connections", GROUP, code=1)[:19], "rocketc: no consume")
    for where, offset in (("latest", 3), ("earliest", 0)):
        changed = operator.json("reset-offset", GROUP, TOPIC, "--to", where, "--yes")["queues"]
        assert changed[0]["newOffset"] == offset
        assert _lags(operator)[0] == (0, 3, offset, 3 - offset)
    client.close()
    operator.until(lambda: operator.says("connections", GROUP, code=1)[:19], "rocketc: no consume")

    # permissions
    assert operator.says("permissions", TOPIC, "--set", "r").split() == ["broker", "permission", name, "r"]
    operator.until(lambda: _topic(operator), (2, [4], 3))
    assert operator.json("permissions", TOPIC)["permissions"] == {name: 4}
    assert operator.json("permissions", TOPIC, "--set", "rw", "-b", name)["permissions"] == {name: 6}
    operator.until(lambda: _topic(operator), (2, [6], 3))
    assert " topics changed in the name server" in operator.says("permissions", "-b", name, "--set", "r")
    assert _topic(operator) == (2, [4], 3)
    assert " topics changed in the name server" in operator.says("permissions", "-b", name, "--set", "rw")
    assert _topic(operator) == (2, [6], 3)

    # its end
    assert "give --yes" in operator.says("delete-topic", TOPIC, code=2)
    assert operator.says("delete-topic", TOPIC, "--yes") == f"{TOPIC}: deleted on {name}\n"
    operator.until(lambda: _topic(operator), None)
    assert operator.says("delete-topic", TOPIC, "--yes", code=1).startswith("rocketc: ")


def _topic(operator: Operator) -> tuple[int, list[int], int] | None:
    """Queues, permissions and messages of the topic."""
    for one in operator.json("topics")["topics"]:
        if one["topic"] == TOPIC:
            return one["queues"], one["permissions"], one["messages"]
    return None


def _lags(operator: Operator) -> list[tuple[int, int, int, int]]:
    """Of each queue of the topic: id, broker offset, consumer offset, lag."""
    names = ("queueId", "brokerOffset", "consumerOffset", "lag")
    found = [one for one in operator.json("lag", GROUP)["queues"] if one["topic"] == TOPIC]
    return [tuple(one[name] for name in names) for one in found]
