"""Requests of tools that clients answer: relayed there and back; codes and remarks were seen on a 5.3.3 broker."""

import asyncio
import json

from simulation.tools import create, heartbeat, lax, play, recorded

from rocketc.broker.admin.forms import queue_numbers
from rocketc.errors import BadRequestError
from rocketc.read._message import Message
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command, Flag


class Consumer:
    """A client that answers requests of the broker, or does not."""

    def __init__(self, client, answers):
        self.client, self.answers, self.asked = client, answers, []
        client.channel._on_request = self.on_request

    def on_request(self, command, reply):
        if command.code != 40:
            self.asked.append(command)
        answer = self.answers.get(command.code)
        if answer is not None:
            code, remark, body = answer
            data = Command(code, {}, body, command.opaque, Flag.ANSWER, remark).encode()
            self.client.transport.write(data)


async def online(stage, answers=None, client_id="c1", group="audit"):
    consumer = Consumer(stage.client(), answers or {})
    await consumer.client.call(34, heartbeat(group, client_id=client_id))
    return consumer


async def stored(stage, client):
    await create(client)
    answer = await client.send()
    await stage.settle()
    return answer.fields["msgId"]


def test_running_info_is_that_of_the_client(memory_path):
    async def main(stage, client):
        exchange = recorded(307)
        body = exchange["answerBody"].encode()
        consumer = await online(stage, {307: (0, "fine", body)})
        answer = await client.call(307, consumerGroup="audit", clientId="c1", jstackEnable=True)
        assert (answer.code, answer.remark, bytes(answer.body)) == (0, "fine", body)
        [asked] = consumer.asked
        assert asked.fields == {"consumerGroup": "audit", "clientId": "c1", "jstackEnable": "true"}

    play(memory_path, main)


def test_a_message_is_consumed_directly(memory_path):
    async def main(stage, client):
        msg_id = await stored(stage, client)
        result = b'{"order":false,"autoCommit":true,"consumeResult":"CR_SUCCESS","spentTimeMills":3}'
        consumer = await online(stage, {309: (0, None, result)})
        values = {"consumerGroup": "audit", "clientId": "c1", "msgId": msg_id}
        answer = await client.call(309, **values, topic="orders", brokerName="other")
        assert (answer.code, bytes(answer.body)) == (0, result)
        assert (await client.call(309, **values)).code == 0
        first, second = consumer.asked
        assert first.fields == {
            **values, "topic": "orders", "brokerName": "broker-a", "topicSysFlag": "0", "groupSysFlag": "0",
        }  # fmt: skip
        assert second.fields == {**values, "brokerName": "broker-a", "groupSysFlag": "0"}
        assert Message.of(bytes(first.body)).topic == "orders"
        consumer.answers[309] = (1, "bad", b"")
        answer = await client.call(309, **values)
        assert (answer.code, answer.remark, answer.body) == (1, "bad", b"")

    play(memory_path, main)


def test_requests_that_no_client_gets(memory_path):
    async def main(stage, client):
        msg_id = await stored(stage, client)
        await online(stage)
        of_group = {"consumerGroup": "audit", "clientId": "c1"}
        beyond = msg_id[:-4] + "FFFF"
        for code, values, remark in (
            (307, {"consumerGroup": "audit", "clientId": "x"}, "The Consumer <audit> <x> not online"),
            (307, {"consumerGroup": "nope", "clientId": "c1"}, "The Consumer <nope> <c1> not online"),
            (309, {"consumerGroup": "audit", "msgId": msg_id}, "The Consumer <audit> <null> not online"),
            (309, {**of_group, "msgId": beyond}, "can not find message by the offset, 65535"),
            (309, {**of_group, "msgId": msg_id[:-2] + "01"}, "can not find message by the offset, 1"),
            (309, {**of_group, "msgId": msg_id[:16] + "F" * 16}, "can not find message by the offset, -1"),
            (309, {**of_group, "msgId": "x"}, None),
            (309, {**of_group, "msgId": "x" * 10_000}, None),
            (309, of_group, None),
            (223, {"group": "nope", "topic": "orders"}, "the consumer group[nope] not online"),
        ):
            answer = await client.call(code, **values)
            assert answer.code == Code.SYSTEM_ERROR, values
            assert remark is None or answer.remark == remark
        for channel in stage.broker.consumers.group("audit").channels.values():
            channel.version = 20
        answer = await client.call(307, **of_group)
        assert answer.remark.startswith("The Consumer <c1> Version <20> too low to finish")
        answer = await client.call(223, group="audit", topic="orders")
        assert answer.remark == "the client does not support this feature. version=20"

    play(memory_path, main)


def test_a_client_that_does_not_answer(memory_path):
    async def main(stage, client):
        loop = asyncio.get_running_loop()
        await online(stage)
        began = loop.time()
        answer = await client.call(307, consumerGroup="audit", clientId="c1")
        assert answer.code == Code.CONSUME_MSG_TIMEOUT and answer.remark.startswith("consumer <audit> <c1> Timeout: ")
        assert 10 <= loop.time() - began < 10.5
        answer = await client.call(223, group="audit", topic="orders")
        assert answer.body == b'{"consumerTable":{},"messageQueueTable":{}}' and 15 <= loop.time() - began < 16

    play(memory_path, main)


def test_a_client_that_ends_before_it_answers(memory_path):
    async def main(stage, client):
        consumer = await online(stage)
        asking = asyncio.ensure_future(client.call(307, consumerGroup="audit", clientId="c1"))
        await asyncio.sleep(1)
        consumer.client.transport.abort()
        answer = await asking
        assert answer.code == Code.SYSTEM_ERROR and "<audit> <c1> Exception: " in answer.remark

    play(memory_path, main)


def test_the_status_of_all_clients(memory_path):
    async def main(stage, client):
        queue = '{"brokerName":"broker-a","queueId":0,"topic":"orders"}'
        body = f'{{"messageQueueTable":{{{queue}:3}}}}'.encode()
        await online(stage, {221: (0, None, body)})
        strict = json.dumps({"messageQueueTable": {queue: 4}}).encode()
        await online(stage, {221: (0, None, strict)}, "c2")
        await online(stage, {221: (0, None, b"{]")}, "c3")
        await online(stage, {221: (1, "no", b"")}, "c4")
        answer = await client.call(223, group="audit", topic="orders")
        assert answer.remark == "not set any response code"
        assert lax(answer.body)["consumerTable"] == {"c1": {("orders", 0): 3}, "c2": {("orders", 0): 4}}
        answer = await client.call(223, group="audit", topic="orders", clientAddr="c2")
        assert list(lax(answer.body)["consumerTable"]) == ["c2"]

    play(memory_path, main)


def test_maps_of_queues_that_are_not_valid():
    for body in (b"", b"[]", b'{"m":[1]}', b'{"m":{"x":1}}', b'{"m":{{"topic":"t"}:"x"}}', b'{"m":{{"topic":[7]}:1}}'):
        try:
            queue_numbers(body, "m")
        except BadRequestError:
            continue
        raise AssertionError(body)
    assert queue_numbers(b'{"m":null}', "m") == {}
