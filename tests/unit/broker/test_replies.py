"""Replies to request messages. The expected frames and remarks are those of a RocketMQ 5.3.3 broker."""

import asyncio
import json
import random

import pytest
from simulation import virtual

import rocketc
from rocketc.broker.config import BrokerConfig
from rocketc.broker.controller import BrokerController
from rocketc.broker.send import decode_properties
from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command, Flag
from rocketc.remoting.requests import REQUESTS

NOW = 1_795_646_318_329
TOPIC = "DefaultCluster_REPLY_TOPIC"
REPLY = {
    "producerGroup": "answers",
    "topic": TOPIC,
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 4,
    "queueId": 0,
    "sysFlag": 0,
    "bornTimestamp": 1_795_515_937_571,
    "flag": 0,
    "reconsumeTimes": 0,
    "unitMode": False,
    "batch": False,
}
PROPERTIES = {
    "CORRELATION_ID": "c-1",
    "REPLY_TO_CLIENT": "asker@1",
    "TTL": "3000",
    "MSG_TYPE": "reply",
    "UNIQ_KEY": "U1",
}
TOLD = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
NOT_FOUND = "push reply message fail, channel of <asker@1> not found."
FAILED = "push reply message to asker@1fail."


class Client(asyncio.Protocol):
    """A client that notes what it gets, and answers what is pushed with `code`; None: not at all."""

    def __init__(self, code=Code.SUCCESS):
        self.code, self.answers, self.pushed, self.lost = code, [], [], False
        self._decoder = FrameDecoder()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        for frame in self._decoder.receive(data):
            command = Command.decode(*frame)
            if command.is_answer:
                self.answers.append(command)
                continue
            self.pushed.append(command)
            if self.code is not None:
                self.transport.write(Command(self.code, opaque=command.opaque, flag=Flag.ANSWER).encode())

    def connection_lost(self, error):
        self.lost = True

    def register(self, client_id="asker@1"):
        beat = {"clientID": client_id, "producerDataSet": [{"groupName": "asker"}], "consumerDataSet": []}
        self.transport.write(Command(34, body=json.dumps(beat).encode(), opaque=999).encode())

    def reply(self, properties=PROPERTIES, body=b"the answer", code=325, opaque=1, bits=0, **values):
        text = None if properties is None else "".join(f"{name}\1{value}\2" for name, value in properties.items())
        fields = REQUESTS[code].encode({**REPLY, "properties": text, **values})
        self.transport.write(Command(code, fields, body, opaque, bits).encode())


class Scene:
    """A broker, a client that asked, and one that replies."""

    def __init__(self, broker, asker, servant, connect):
        self.broker, self.asker, self.servant, self.connect = broker, asker, servant, connect

    async def answer(self, **reply):
        """Send a reply, and return the answer to it."""
        many = len(self.servant.answers)
        self.servant.reply(opaque=many + 1, **reply)
        for _ in range(2000):
            if len(self.servant.answers) > many:
                break
            await asyncio.sleep(0.01)
        return self.servant.answers[-1]

    def stored(self, topic=TOPIC, queue_id=0):
        while self.broker.store.step():
            pass
        return self.broker.store.get(topic, queue_id, 0, 32).messages


@pytest.fixture
def play(tmp_path):
    """Run a coroutine function with a Scene, on virtual time."""

    def run(main, *, sync=False, **config):
        async def whole():
            chance = random.Random(1)
            loop = asyncio.get_running_loop()
            store = rocketc.open(
                tmp_path / "store",
                mapped_file_size_commit_log=1 << 20,
                max_message_size=100_000,
                flush="sync" if sync else "async",
                store_host=("127.0.0.1", 10911),
                background=False,
                clock=lambda: NOW,
            )
            broker = BrokerController(
                store,
                BrokerConfig(**config),
                ("127.0.0.1", 10911),
                clock=lambda: NOW + int(1000 * loop.time()),
                chance=chance,
            )

            def connect(client, server=broker.server):
                virtual.link(client, server.connection(), chance, (0.0, 0.0))
                return client

            try:
                asker, servant = connect(Client()), connect(Client())
                asker.register()
                await asyncio.sleep(0.1)
                await main(Scene(broker, asker, servant, connect))
            finally:
                await broker.close()
                store.close()

        virtual.run(whole())

    return run


def test_a_reply_is_pushed_and_stored(play):
    async def main(scene):
        now = NOW + 100
        answer = await scene.answer()
        assert (answer.code, answer.remark) == (0, None)
        assert answer.fields == {
            **TOLD,
            "queueId": "0",
            "queueOffset": "0",
            "msgId": "7F00000100002A9F0000000000000000",
        }
        [pushed] = scene.asker.pushed
        assert (pushed.code, pushed.flag, pushed.body) == (326, 0, b"the answer")
        properties = decode_properties(pushed.fields.pop("properties"))
        assert properties == {**PROPERTIES, **TOLD, "PUSH_REPLY_TIME": str(now)}
        host, port = pushed.fields.pop("bornHost").split(":")
        assert (host, port.isdigit()) == ("two", True)
        assert pushed.fields == {
            "producerGroup": "answers",
            "topic": TOPIC,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": "1795515937571",
            "flag": "0",
            "reconsumeTimes": "0",
            "unitMode": "false",
            "storeHost": "127.0.0.1:10911",
            "storeTimestamp": str(now),
        }
        [stored] = scene.stored()
        assert (stored.body, stored.properties) == (b"the answer", {**PROPERTIES, **TOLD})
        assert stored.born_timestamp == 1_795_515_937_571

    play(main)


def test_both_codes_and_all_values_are_pushed(play):
    async def main(scene):
        how = {"flag": 7, "reconsumeTimes": 3, "unitMode": True, "sysFlag": 256}
        assert (await scene.answer(code=324, **how)).code == 0
        [pushed] = scene.asker.pushed
        assert {name: pushed.fields[name] for name in how} == {
            "flag": "7",
            "reconsumeTimes": "3",
            "unitMode": "true",
            "sysFlag": "256",
        }
        [stored] = scene.stored()
        assert (stored.flag, stored.reconsume_times, stored.sys_flag) == (7, 3, 256)

    play(main)


def test_a_push_time_of_the_sender_is_replaced(play):
    async def main(scene):
        await scene.answer(properties={**PROPERTIES, "PUSH_REPLY_TIME": "7", "MSG_REGION": "r", "CLUSTER": "x"})
        properties = decode_properties(scene.asker.pushed[0].fields["properties"])
        assert properties["PUSH_REPLY_TIME"] == str(NOW + 100)
        assert (properties["MSG_REGION"], properties["CLUSTER"]) == ("DefaultRegion", "x")

    play(main)


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ({**PROPERTIES, "REPLY_TO_CLIENT": "no client"}, "push reply message fail, channel of <no client> not found."),
        ({"UNIQ_KEY": "U1"}, "reply message properties[REPLY_TO_CLIENT] is null"),
        ({"REPLY_TO_CLIENT": ""}, "reply message properties[REPLY_TO_CLIENT] is null"),
        ({}, "reply message properties[REPLY_TO_CLIENT] is null"),
        (None, "reply message properties[REPLY_TO_CLIENT] is null"),
    ],
)
def test_a_reply_to_an_unknown_client_is_an_error_and_stored(play, properties, remark):
    async def main(scene):
        answer = await scene.answer(properties=properties)
        assert (answer.code, answer.remark) == (Code.SYSTEM_ERROR, remark)
        assert answer.fields["msgId"] == "7F00000100002A9F0000000000000000" and answer.fields["queueOffset"] == "0"
        assert scene.asker.pushed == [] and len(scene.stored()) == 1

    play(main)


def test_a_client_that_refuses_a_reply(play):
    async def main(scene):
        scene.asker.code = Code.SYSTEM_ERROR
        answer = await scene.answer()
        assert (answer.code, answer.remark) == (Code.SYSTEM_ERROR, FAILED)
        assert "msgId" in answer.fields and len(scene.stored()) == 1

    play(main)


def test_a_silent_client_is_waited_for(play):
    async def main(scene):
        scene.asker.code = None
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await scene.answer()
        assert 10.0 <= loop.time() - began < 10.3
        assert (answer.code, answer.remark) == (Code.SYSTEM_ERROR, FAILED)
        assert len(scene.stored()) == 1

    play(main)


def test_a_client_that_goes_away_while_it_is_asked(play):
    async def main(scene):
        scene.asker.code = None
        scene.servant.reply()
        await asyncio.sleep(1)
        scene.asker.transport.cut()
        await asyncio.sleep(0.1)
        assert [(a.code, a.remark) for a in scene.servant.answers] == [(Code.SYSTEM_ERROR, FAILED)]
        assert (await scene.answer()).remark == NOT_FOUND

    play(main)


def test_the_latest_connection_of_a_client_gets_the_reply(play):
    async def main(scene):
        later = scene.connect(Client())
        later.register()
        await asyncio.sleep(0.1)
        await scene.answer()
        assert (len(scene.asker.pushed), len(later.pushed)) == (0, 1)
        later.transport.cut()
        await asyncio.sleep(0.1)
        assert (await scene.answer()).code == 0 and len(scene.asker.pushed) == 1

    play(main)


def test_replies_over_the_vip_port(play):
    """The client may have registered there, or the reply come from there."""

    async def main(scene):
        vip = scene.broker.vip_server
        asker = scene.connect(Client(), vip)
        asker.register("asker@2")
        scene.servant = scene.connect(Client(), vip)
        await asyncio.sleep(0.1)
        assert (await scene.answer()).code == 0 and len(scene.asker.pushed) == 1
        answer = await scene.answer(properties={**PROPERTIES, "REPLY_TO_CLIENT": "asker@2"})
        assert answer.code == 0 and len(asker.pushed) == 1

    play(main)


def test_replies_are_not_stored_if_the_broker_does_not_want_it(play):
    async def main(scene):
        answer = await scene.answer()
        assert (answer.code, answer.fields) == (0, {**TOLD, "msgId": "0", "queueId": "0", "queueOffset": "0"})
        answer = await scene.answer(properties={})
        assert (answer.code, answer.fields) == (Code.SYSTEM_ERROR, TOLD)
        assert scene.stored() == []

    play(main, store_reply_message_enable=False)


@pytest.mark.parametrize(
    "reply",
    [
        {"properties": {**PROPERTIES, "x": "y" * 32_800}},
        {"body": bytes(200_000)},
        {"properties": {**PROPERTIES, "DELAY": "3"}},
        {"properties": {**PROPERTIES, "TIMER_DELAY_SEC": "3"}},
    ],
    ids=["properties", "body", "delay", "timer"],
)
def test_a_reply_that_cannot_be_stored_is_pushed(play, reply):
    async def main(scene):
        answer = await scene.answer(**reply)
        assert (answer.code, answer.fields) == (0, {**TOLD, "msgId": "0", "queueId": "0", "queueOffset": "0"})
        assert len(scene.asker.pushed) == 1 and scene.stored() == []

    play(main)


def test_a_reply_too_large_for_a_frame(play):
    """The request fits into a frame; pushed it has more properties."""

    async def main(scene):
        answer = await scene.answer(body=bytes((16 << 20) - 600))
        assert (answer.code, answer.remark, answer.fields) == (Code.SYSTEM_ERROR, FAILED, TOLD)
        assert scene.asker.pushed == []

    play(main)


@pytest.mark.parametrize(
    ("reply", "code", "remark"),
    [
        ({"topic": "new reply"}, Code.INVALID_PARAMETER, "illegal characters"),
        ({"topic": ""}, Code.INVALID_PARAMETER, "blank"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, Code.NO_PERMISSION, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forb"),
        (
            {"topic": "new", "defaultTopic": "unknown"},
            Code.TOPIC_NOT_EXIST,
            "topic[new] not exist, apply first please!",
        ),
        ({"queueId": 5}, Code.INVALID_PARAMETER, "request queueId[5] is illegal"),
        ({"body": b""}, Code.SYSTEM_ERROR, "the reply lacks a body"),
    ],
)
def test_refused_replies_are_neither_pushed_nor_stored(play, reply, code, remark):
    async def main(scene):
        answer = await scene.answer(**reply)
        assert answer.code == code and remark in answer.remark and answer.fields == TOLD
        assert scene.asker.pushed == [] and scene.stored() == []

    play(main)


def test_queues_and_topics_of_replies(play):
    """An unknown topic is created; a negative queue id becomes one of the queues, and is pushed as it came."""

    async def main(scene):
        answer = await scene.answer(topic="answers", queueId=-1)
        assert answer.code == 0 and int(answer.fields["queueId"]) in range(4)
        assert scene.asker.pushed[0].fields["queueId"] == "-1"
        assert len(scene.stored("answers", int(answer.fields["queueId"]))) == 1
        assert (await scene.answer(topic="%RETRY%answers")).code == 0

    play(main)


def test_a_reply_that_is_not_answered(play):
    async def main(scene):
        scene.servant.reply(bits=Flag.ONEWAY)
        await asyncio.sleep(1)
        assert scene.servant.answers == [] and len(scene.asker.pushed) == 1 and len(scene.stored()) == 1

    play(main)


def test_the_answer_waits_for_the_flush(play):
    async def main(scene):
        scene.servant.reply()
        await asyncio.sleep(1)
        assert scene.servant.answers == [] and len(scene.asker.pushed) == 1
        while scene.broker.store.step():
            pass
        for _ in range(100):
            await asyncio.sleep(0.01)
        assert [answer.code for answer in scene.servant.answers] == [0]

    play(main, sync=True)


def test_a_broker_that_does_not_serve_yet(play):
    async def main(scene):
        answer = await scene.answer()
        assert answer.code == Code.SYSTEM_ERROR
        assert answer.remark == f"broker unable to service, until {NOW + 1_000_000}"

    play(main, start_accept_send_request_time_stamp=NOW + 1_000_000)


def test_the_end_answers_replies_that_wait(play):
    async def main(scene):
        scene.asker.code = None
        scene.servant.reply()
        await asyncio.sleep(1)
        await scene.broker.close()
        await asyncio.sleep(1)
        assert [answer.remark for answer in scene.servant.answers] == [FAILED]
        assert len(scene.stored()) == 1

    play(main)
