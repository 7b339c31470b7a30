"""The consumer behind PushConsumer at brokers that answer as a test says, on virtual time."""

import asyncio
import contextlib
import itertools
import json
import sys
import time

import pytest
from unit.client.scripted import play
from unit.client.scripted_push import GROUP, PushCluster

from rocketc.client.orderly_service import OrderlyService
from rocketc.client.subscriptions import subscribe
from rocketc.errors import AnswerError, NoAnswerError
from rocketc.remoting.codes import Code
from rocketc.remoting.requests import CODES
from rocketc.remoting.server import Answer, Server


async def canceled():
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


def test_a_coroutine_that_raises_a_base_exception_fails_like_others():
    async def main():
        stage, got = PushCluster("a"), []
        stage.put(40)

        async def listener(message):
            got.append(message.body)
            if len(got) <= 20:
                await canceled()
            elif len(got) <= 30:
                raise SystemExit(3)

        await stage.consume(listener, 60)
        assert len(got) == 40 and len(stage.returned) == 30
        assert stage.committed["a", "orders", 0] == 40

    play(main())


def test_retried_messages_go_to_the_listeners_of_their_topics():
    async def main():
        stage, got = PushCluster("a"), []
        for topic in ("orders", "audit", "orders"):
            stage.put(2, f"%RETRY%{GROUP}", properties={"RETRY_TOPIC": topic})

        async def orders(message):
            got.append(("orders", message.topic))

        core = stage.consumer()
        await core.subscribe(subscribe("orders"), orders)
        await core.subscribe(subscribe("audit"), lambda message: got.append(("audit", message.topic)))
        await core.start()
        for _ in range(200):
            await asyncio.sleep(0.1)
            time.sleep(0.001)  # the threads run in real time
        await core.close()
        assert sorted(got) == [("audit", "audit")] * 2 + [("orders", "orders")] * 4 and not stage.returned

    play(main())


def test_a_function_that_raises_system_exit_fails_like_others():
    async def main():
        stage, got = PushCluster("a"), []
        stage.put(10)

        def listener(message):
            got.append(message.body)
            raise SystemExit(3)

        core = asyncio.create_task(stage.consume(listener, 60, consume_thread_max=2))
        while not core.done():
            await asyncio.sleep(1)
            time.sleep(0.001)  # the threads run in real time
        await core
        assert len(got) == len(stage.returned) == stage.committed["a", "orders", 0] == 10

    play(main())


class WithoutText(Exception):
    """An exception of a program whose __str__() is wrong."""

    def __str__(self):
        return 7


@pytest.mark.parametrize("is_coroutine", [True, False])
def test_an_exception_that_cannot_make_its_text_fails_like_others(is_coroutine):
    async def main():
        stage, got = PushCluster("a"), []
        stage.put(40)

        def listener(message):
            got.append(message.body)
            raise WithoutText

        async def coroutine(message):
            listener(message)

        core = asyncio.create_task(stage.consume(coroutine if is_coroutine else listener, 60, consume_thread_max=2))
        while not core.done():
            await asyncio.sleep(1)
            time.sleep(0.001)  # the threads run in real time
        await core
        assert len(got) == len(stage.returned) == stage.committed["a", "orders", 0] == 40

    play(main())


def test_an_exception_without_a_text_in_an_orderly_consumer():
    async def main():
        stage, got = PushCluster("a"), []
        stage.put(2)

        async def listener(message):
            got.append(message.body)
            if len(got) == 1:
                raise WithoutText

        core = await orderly(stage, listener)
        await asyncio.sleep(10)
        await core.close()
        assert got == [b"0", b"0", b"1"] and stage.committed["a", "orders", 0] == 2

    play(main())


@pytest.mark.parametrize("fault", [canceled, lambda: sys.exit(3)])
def test_a_coroutine_of_an_orderly_consumer_that_raises_a_base_exception(fault):
    async def main():
        stage, got = PushCluster("a"), []
        stage.put(3)

        async def listener(message):
            got.append(message.body)
            if len(got) == 2 and (waiting := fault()):
                await waiting

        core = await orderly(stage, listener)
        await asyncio.sleep(10)
        await core.close()
        assert got == [b"0", b"1", b"1", b"2"] and stage.committed["a", "orders", 0] == 3
        assert counted(core) == {True: 3, False: 1}

    play(main())


@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize("auto_commit", [False, True])
def test_a_coroutine_that_the_end_cancels_has_not_consumed_its_message(swallows, auto_commit):
    """Of an orderly consumer; see below for the other kind."""

    async def main():
        stage, ended = PushCluster("a"), []
        stage.put(2)

        async def listener(message, *contexts):
            if message.body == b"1":
                try:
                    await asyncio.sleep(1000)
                except asyncio.CancelledError as error:
                    ended.append(error)
                    if not swallows:
                        raise
            for context in contexts:
                context.commit()

        core = await orderly(stage, listener, auto_commit=auto_commit, await_termination_millis_when_shutdown=100)
        await asyncio.sleep(10)
        await core.close()
        assert ended and stage.committed["a", "orders", 0] == 1 and counted(core) == {True: 1, False: 1}

    play(main())


async def orderly(stage, listener, *, auto_commit=True, **options):
    core = stage.consumer(OrderlyService, **options)
    await core.subscribe(subscribe("orders"), listener, auto_commit=auto_commit)
    await core.start()
    return core


def counted(core):
    """The messages of listeners by success."""
    return {is_ok: times.count for (_, is_ok), times in core._member.counts.processed()}


def test_the_end_does_not_wait_for_a_coroutine_that_cannot_be_canceled():
    async def main():
        stage = PushCluster("a")
        stage.put(1)

        async def listener(message):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1000)

        await asyncio.wait_for(stage.consume(listener, 60), 100)
        assert stage.committed.get(("a", "orders", 0), 0) == 0

    play(main())


def test_an_object_whose_call_is_a_coroutine():
    class Listener:
        def __init__(self):
            self.got = []

        async def __call__(self, message):
            await asyncio.sleep(0.1)
            self.got.append(message.body)

    async def main():
        stage, listener = PushCluster("a"), Listener()
        stage.put(4)
        await stage.consume(listener, 10)
        assert len(listener.got) == 4 and stage.returned == []

    play(main())


def test_messages_in_hand_are_not_returned_when_their_topic_is_unsubscribed():
    async def main():
        stage, got = PushCluster("a"), []
        stage.put(40)

        async def listener(message):
            await asyncio.sleep(1)
            got.append(message.body)

        core = stage.consumer(consume_thread_max=2)
        await core.subscribe(subscribe("orders"), listener)
        await core.start()
        await asyncio.sleep(3.5)
        core.suspend()
        await core.unsubscribe("orders")
        await asyncio.sleep(10)
        assert len(got) == 8 and stage.returned == []  # two were with the listener
        assert stage.committed["a", "orders", 0] == 6
        assert {queue.topic for queue in core._member.owned} == {f"%RETRY%{GROUP}"}
        await core.close()

    play(main())


def test_what_is_kept_for_messages_that_are_not_returned_ends_with_them():
    async def main():
        stage, times = PushCluster("a"), {}
        stage.put(40)
        stage.brokers["a"].answers[36] = Answer(Code.SYSTEM_ERROR)
        stage.brokers["a"].answers[310] = Answer(Code.MESSAGE_ILLEGAL)

        async def listener(message):
            times[message.body] = times.get(message.body, 0) + 1
            if times[message.body] <= 2:
                raise ValueError("no amount")

        core = stage.consumer()
        await core.subscribe(subscribe("orders"), listener)
        await core.start()
        await asyncio.sleep(60)
        assert set(times.values()) == {3}
        assert [len(one.retries) for one in core._member.owned.values()] == [0] * 4
        await core.close()
        assert stage.committed["a", "orders", 0] == 40

    play(main())


def test_a_broker_that_is_gone_does_not_hold_up_the_offsets_of_others():
    async def main():
        stage, loop, persisted = PushCluster("a", "b"), asyncio.get_running_loop(), []
        topics = [f"orders-{i}" for i in range(6)]
        core = stage.consumer()

        async def listener(message):
            pass

        for topic in topics:
            stage.put(4, topic, "a")
            stage.put(4, topic, "b")
            await core.subscribe(subscribe(topic), listener)
        await core.start()
        await asyncio.sleep(1)
        stage.servers.pop(stage.address("a"))
        stage.cut(stage.address("a"))
        update = stage.brokers["b"].answers[15]
        stage.brokers["b"].answers[15] = lambda call: persisted.append(loop.time()) or update(call)
        await asyncio.sleep(120)
        began = loop.time()
        await core.close()
        assert loop.time() - began < 5
        assert max(second - first for first, second in itertools.pairwise(persisted)) < 9

    play(main())


def test_the_master_serves_a_queue_whose_slave_is_gone():
    async def main():
        stage, got = PushCluster("a"), []
        stage.put(8)
        route = stage.name_server.answers[105]

        def with_slave(call):
            answer = json.loads(route(call).body)
            for broker in answer["brokerDatas"]:
                broker["brokerAddrs"]["1"] = "10.0.7.7:10911"
            return Answer(body=json.dumps(answer).encode())

        def suggests_slave(call):
            answer = stage.pull("a", call)
            return answer and Answer(answer.code, body=answer.body, values=answer.values | {"suggestWhichBrokerId": 1})

        stage.name_server.answers[105] = with_slave
        stage.brokers["a"].answers[11] = suggests_slave

        async def listener(message):
            got.append(message.body)

        await stage.consume(listener, 60, pull_batch_size=1)
        assert len(got) == 8

    play(main())


@pytest.mark.parametrize("lacks", ["nextBeginOffset", "suggestWhichBrokerId", "minOffset", "maxOffset"])
def test_an_answer_that_lacks_a_field_is_asked_for_again(lacks):
    async def main():
        stage, got, answers = PushCluster("a"), [], [0]
        stage.put(4)

        def pull(call):
            answer = stage.pull("a", call)
            if answer is None or answers[0] >= 3:
                return answer
            answers[0] += 1
            values = {name: value for name, value in answer.values.items() if name != lacks}
            return Answer(answer.code, body=answer.body, values=values)

        stage.brokers["a"].answers[11] = pull

        async def listener(message):
            got.append(message.body)

        await stage.consume(listener, 30)
        assert got == [b"0", b"1", b"2", b"3"] and stage.committed["a", "orders", 0] == 4

    play(main())


def test_messages_after_one_that_cannot_be_read_are_not_lost():
    """A record with an impossible length hides the rest of its answer: they are pulled again, without it."""

    async def main():
        stage, got = PushCluster("a"), []
        stage.put(8)
        records = stage._records["a", "orders", 0]
        records[3] = b"\xff" * len(records[3])

        async def listener(message):
            got.append(int(message.body))

        await stage.consume(listener, 60)
        assert got == [0, 1, 2, 4, 5, 6, 7] and stage.committed["a", "orders", 0] == 8

    play(main())


def test_pulls_use_only_subscriptions_that_brokers_know():
    """Brokers refuse a pull whose version is later than that of the last heartbeat."""

    async def main():
        cluster, known, early = PushCluster("a"), {}, []
        loop = asyncio.get_running_loop()
        broker = cluster.brokers["a"]
        pull = broker.answers[11]

        def beat(call):
            [consumer] = json.loads(call.command.body)["consumerDataSet"]
            versions = {one["topic"]: one["subVersion"] for one in consumer["subscriptionDataSet"]}

            def note():
                known.update(versions)
                call.later(Answer())

            loop.call_later(0.5, note)

        def checked(call):
            early.extend([call.values] if call.values["subVersion"] > known.get(call.values["topic"], 0) else [])
            return pull(call)

        broker.answers |= {34: beat, 11: checked}
        cluster.put(50)
        seen = []
        core = cluster.consumer(pull_batch_size=1)

        async def listener(message):
            seen.append(message)

        await core.subscribe(subscribe("orders"), listener)
        await core.start()
        for topic in ("second", "third"):
            await core.subscribe(subscribe(topic), listener)
        await asyncio.sleep(30)
        assert cluster.committed["a", "orders", 0] == 50 and early == []
        await core.close()

    play(main())


def test_the_first_offset_of_a_topic_is_written_alone():
    """A broker loses one of the first offsets of a new group if they come at the same time."""

    async def main():
        stage = PushCluster("a")
        stage.put(3)
        await stage.consume(lambda message: None, 12)
        written = [one for one in stage.brokers["a"].asked if one.command.code == CODES["UPDATE_CONSUMER_OFFSET"]]
        topics = [one.values["topic"] for one in written]
        for topic in set(topics):
            plain = [one.command.is_oneway for one in written if one.values["topic"] == topic]
            assert plain == [False] + [True] * (len(plain) - 1)
        assert len({one.values["queueId"] for one in written if one.values["topic"] == "orders"}) > 1

    play(main())


@pytest.mark.parametrize("where", ["CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_TIMESTAMP"])
def test_the_next_member_begins_where_the_group_began(where):
    async def main():
        stage = PushCluster("a")
        stage.put(8)  # three of them after the first question
        broker = stage.brokers["a"]
        broker.answers[30] = broker.answers[29] = lambda call: Answer(values={"offset": 5})
        broker.codes += (29, 30)
        stage.servers[stage.address("a")] = Server([broker])

        async def never(message):
            await asyncio.sleep(1000)

        core = stage.consumer(consume_from_where=where, await_termination_millis_when_shutdown=0)
        await core.subscribe(subscribe("orders"), never)
        await core.start()
        await asyncio.sleep(3)
        broker.answers[38] = Answer(body=b'{"consumerIdList":["another"]}')
        core._member.members_changed()
        await asyncio.sleep(2)
        assert not core._member.owned and stage.committed["a", "orders", 0] == 5
        await core.close()

    play(main())


def test_a_negative_offset_is_not_taken():
    async def main():
        stage, got = PushCluster("a"), []
        stage.put(4)
        answers = iter(range(3))

        def pull(call):
            answer = stage.pull("a", call)
            if answer is not None and next(answers, None) is not None:
                answer.values["nextBeginOffset"] = -5
            return answer

        stage.brokers["a"].answers[11] = pull

        async def listener(message):
            got.append(message.queue_offset)

        await stage.consume(listener, 30)
        assert got == [0, 1, 2, 3] and min(stage.committed.values()) >= 0

    play(main())


def test_an_expression_that_a_broker_refuses():
    async def main():
        stage = PushCluster("a")
        broker = stage.brokers["a"]
        broker.answers[46] = Answer(Code.SUBSCRIPTION_PARSE_FAILED, remark="no property filter")
        broker.codes += (46,)
        stage.servers[stage.address("a")] = Server([broker])
        core = stage.consumer()
        await core.start()
        with pytest.raises(AnswerError, match="no property filter"):
            await core.subscribe(subscribe("orders", "amount > 5", "SQL92"), print)
        assert list(core._subscriptions) == [f"%RETRY%{GROUP}"] and not core._listeners
        assert {queue.topic for queue in core._member.owned} == {f"%RETRY%{GROUP}"}
        await core.close()

    play(main())


def test_a_subscription_that_fails_changes_nothing():
    async def main():
        stage = PushCluster("a")
        core, topics = stage.consumer(mq_client_api_timeout=500), ["orders", "invoices"]
        await core.subscribe(subscribe("orders", "web"), print)
        await core.start()
        route, stage.name_server.answers[105] = stage.name_server.answers[105], lambda call: None
        for topic in topics:
            with pytest.raises(NoAnswerError):
                await core.subscribe(subscribe(topic, "app"), repr)
        stage.name_server.answers[105] = route
        await asyncio.sleep(60)
        assert core._listeners == {"orders": print} and core._subscriptions["orders"].tags == ("web",)
        assert {queue.topic for queue in core._member.owned} == {"orders", f"%RETRY%{GROUP}"}
        await core.close()

    play(main())


def test_a_broker_that_does_not_know_the_consumer_gets_a_heartbeat():
    async def main():
        stage, got, loop = PushCluster("a"), [], asyncio.get_running_loop()
        broker = stage.brokers["a"]
        core = stage.consumer()

        async def listener(message):
            got.append(loop.time())

        await core.subscribe(subscribe("orders"), listener)
        await core.start()
        await asyncio.sleep(10)
        known = broker.count(34)
        refused = Answer(Code.SUBSCRIPTION_NOT_EXIST)
        broker.answers[11] = lambda call: refused if broker.count(34) == known else stage.pull("a", call)
        stage.cut(stage.address("a"))
        stage.put(1)
        began = loop.time()
        await asyncio.sleep(20)
        assert got and got[0] < began + 5
        assert broker.count(34) <= known + 3
        await core.close()

    play(main())


@pytest.mark.parametrize("offset", [None, "x", "9" * 5000, -7])
def test_a_broker_that_answers_nonsense_does_not_hold_up_others(offset):
    async def main():
        stage, got = PushCluster("a", "b"), []
        for name in ("a", "b"):
            stage.put(4, broker=name)
        fields = {} if offset is None else {"offset": offset}
        stage.brokers["a"].answers[14] = lambda call: Answer(values=fields)

        async def listener(message):
            got.append(message.body)

        await stage.consume(listener, 30)
        assert len(got) == 4 and stage.committed["b", "orders", 0] == 4

    play(main())


def test_the_end_forgets_messages_that_wait_for_another_delivery():
    """Neither the broker nor the retry topic took them, so the listener would get them again after 5 s."""

    async def main():
        stage, loop = PushCluster("a"), asyncio.get_running_loop()
        stage.put(3)
        broker = stage.brokers["a"].answers
        for name in ("CONSUMER_SEND_MSG_BACK", "SEND_MESSAGE_V2"):
            broker[CODES[name]] = Answer(Code.SYSTEM_ERROR)
        got = []

        async def listener(message):
            got.append(message.body)
            raise ValueError("no")

        await stage.consume(listener, 7)
        assert len(got) == 6
        left = [timer for timer in loop._scheduled if not timer.cancelled() and "ConcurrentService" in repr(timer)]
        assert left == [] and stage.committed.get(("a", "orders", 0), 0) == 0

    play(main())


def test_members_and_queues_are_sorted_before_they_are_divided():
    """Brokers and name servers list them in any order, but all members must divide the same lists."""

    async def main():
        stage = PushCluster("b", "a")
        ids = ["10.0.9.9@me", "10.0.9.8@other", "10.0.9.9@you"]
        for broker in stage.brokers.values():
            broker.answers[CODES["GET_CONSUMER_LIST_BY_GROUP"]] = Answer(
                body=json.dumps({"consumerIdList": ids}).encode()
            )
        core = stage.consumer(instance_name="me")
        await core.subscribe(subscribe("orders"), lambda message: None)
        await core.start()
        mine = [queue for queue in core._member.owned if queue.topic == "orders"]
        assert [(queue.broker_name, queue.queue_id) for queue in mine] == [("b", 0)]
        await core.close()

    play(main())
