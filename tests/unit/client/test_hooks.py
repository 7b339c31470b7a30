"""Hooks of sends, of listeners, and of requests: what they see, what they may change, and what their faults do."""

import asyncio
import queue
import random

import pytest
from unit.client.scripted import Cluster, play, stored
from unit.client.scripted_pull import OTHER, PullCluster
from unit.client.scripted_push import PushCluster

from rocketc.client import (
    AsyncConsumer,
    AsyncPullConsumer,
    MessageQueue,
    NewMessage,
    OrderlyContext,
    Producer,
    PullConsumer,
    PushConsumer,
    RetryLater,
)
from rocketc.client.access import Access
from rocketc.client.connections import Connections
from rocketc.client.consume_results import ConsumeOrderlyStatus
from rocketc.client.hook_contexts import hooked_listener
from rocketc.client.hooks import Hooks
from rocketc.client.orderly_service import OrderlyService
from rocketc.client.push_core import PushCore
from rocketc.client.send_results import SendStatus
from rocketc.client.subscriptions import subscribe
from rocketc.errors import AnswerError, ClosedError, NoAnswerError
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer


def with_hooks(work, before=None, after=None, brokers=None, **options):
    """Run work(producer, cluster) with a send hook."""

    async def main():
        stage = Cluster(brokers or {"a": stored})
        producer = stage.producer(**options)
        producer.add_send_hook(before, after)
        async with producer:
            return await work(producer, stage)

    return play(main())


def test_what_a_send_hook_sees():
    seen = []

    def before(context):
        assert context.result is None and context.error is None
        context.state["mine"] = context.began

    async def work(producer, stage):
        return await producer.send("orders", b"one", tags="web"), stage.address("a")

    sent, address = with_hooks(work, before, seen.append)
    [context] = seen
    assert (context.group, context.message.topic, context.message.body) == ("shop", "orders", b"one")
    assert (context.address, context.queue, context.is_oneway, context.error) == (address, sent.queue, False, None)
    assert context.result == sent and context.message.key == sent.msg_id and "msgId" in context.answer
    assert context.state["mine"] == context.began < context.ended < context.began + 1_000


def test_each_attempt_and_its_error():
    seen = []

    async def work(producer, stage):
        with pytest.raises(AnswerError):
            await producer.send("orders", b"one")

    with_hooks(work, None, seen.append, {"a": Answer(Code.SYSTEM_BUSY)})
    assert [(type(one.error), one.result) for one in seen] == [(AnswerError, None)] * 3 and seen[0].ended
    seen.clear()

    async def silent(producer, stage):
        with pytest.raises(NoAnswerError):
            await producer.send("orders", b"one", timeout=100)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(producer.send("orders", b"one"), 0.1)

    with_hooks(silent, None, seen.append, {"a": None})
    assert [type(one.error) for one in seen] == [NoAnswerError, asyncio.CancelledError]


def test_oneway_and_batches():
    seen = []

    def answer(call):
        return Answer(values=stored(call).values | {"msgId": "A,B"})

    async def work(producer, stage):
        await producer.send_oneway("orders", b"one")
        await producer.send_many("orders", [b"1", NewMessage(b"2")])

    with_hooks(work, lambda context: context.properties.update(own="x"), seen.append, {"a": answer})
    one, many = seen
    assert one.is_oneway and one.result is None and one.error is None
    assert many.message.properties == "" and many.result.status is SendStatus.SEND_OK


def test_a_hook_adds_properties():
    async def work(producer, stage):
        await producer.send("orders", b"one", tags="web")
        await producer.send_oneway("orders", b"one")
        await asyncio.sleep(1)
        return [call.values["properties"] for call in stage.brokers["a"].asked if call.command.code == 310]

    texts = with_hooks(work, lambda context: context.properties.update(own="x"))
    assert [text.startswith("own\x01x\x02") for text in texts] == [True, True]


@pytest.mark.parametrize("wrong", [{"TAGS": "x"}, {"own": ""}, {"own": 5}])
def test_properties_that_are_wrong_are_left_out(wrong, caplog):
    async def work(producer, stage):
        await producer.send("orders", b"one")
        return [call.values["properties"] for call in stage.brokers["a"].asked if call.command.code == 310]

    [text] = with_hooks(work, lambda context: context.properties.update(wrong))
    assert text.startswith("UNIQ_KEY") and "the properties of a send hook are left out" in caplog.text


def test_a_fault_of_a_hook_changes_nothing(caplog):
    def fails(context):
        raise ValueError("no")

    async def work(producer, stage):
        return await producer.send("orders", b"one")

    assert with_hooks(work, fails, fails).status is SendStatus.SEND_OK
    assert caplog.text.count("a send hook failed: no") == 2


def test_functions_that_are_not_hooks():
    async def coroutine(context):
        pass

    producer, consumers = Producer("shop"), (PushConsumer("billing"), AsyncConsumer("billing", topics=["orders"]),
                                             PullConsumer("billing"), AsyncPullConsumer("billing"))  # fmt: skip
    methods = [method for one in consumers for method in (one.add_consume_hook, one.add_rpc_hook)]
    for add in (producer.add_send_hook, producer.add_rpc_hook, *methods):
        for arguments in ((5,), (None, "x"), (coroutine,)):
            with pytest.raises(TypeError, match="expected a plain function, got"):
                add(*arguments)
        with pytest.raises(TypeError, match="a hook needs before, after or both"):
            add()


def test_hooks_come_before_the_start(broker):
    pull, where = PullConsumer("hooked"), broker.name_server
    pull.close()
    with Producer("shop", where) as producer, PushConsumer("hooked", where) as push, PullConsumer("g", where) as other:
        adds = [producer.add_send_hook, producer.add_rpc_hook]
        for one in (push, pull, other):
            adds += [one.add_consume_hook, one.add_rpc_hook]
        for add in adds:
            with pytest.raises(ClosedError, match="hooks are added before a client starts"):
                add(print)
    assert pull.dropped_traces == 0 and not pull._hooks.all

    async def main():
        async with (
            AsyncConsumer("hooked", where, topics=["orders"]) as one, AsyncPullConsumer("g", where) as two
        ):  # fmt: skip
            for add in (one.add_consume_hook, one.add_rpc_hook, two.add_consume_hook, two.add_rpc_hook):
                with pytest.raises(ClosedError, match="hooks are added before a client starts"):
                    add(print)

    asyncio.run(main())


# listeners


def consumed(listener, *, is_orderly=False, argument="m"):
    """What hooks see of one call of a listener."""
    hooks, seen, times = Hooks("consume"), [], iter(range(100))
    hooks.add(lambda context: context.state.update(began=context.began), seen.append)
    hooked = hooked_listener(listener, hooks, "billing", lambda: next(times), is_orderly=is_orderly)

    async def main():
        try:
            returned = hooked(argument)
            return await returned if asyncio.iscoroutine(returned) else returned
        except Exception as error:
            return error

    returned = asyncio.run(main())
    [context] = seen
    assert context.group == "billing" and context.state["began"] == context.began == 0 and context.ended == 1
    return context, returned


async def coroutine(message):
    return 5


async def failing(message):
    raise ValueError("no")


def test_listeners_that_succeed():
    for listener in (lambda message: 5, coroutine, lambda message: coroutine(message)):
        context, returned = consumed(listener)
        assert (context.status, context.success, context.error, returned) == ("CONSUME_SUCCESS", True, None, 5)
        assert context.messages == ["m"]
    assert consumed(lambda message: None, argument=["a", "b"])[0].messages == ["a", "b"]
    assert consumed(lambda message: None, is_orderly=True)[0].status == "SUCCESS"


def test_listeners_that_fail():
    def later(message):
        raise RetryLater("10s")

    for listener in (failing, lambda message: failing(message), later):
        context, returned = consumed(listener)
        assert (context.status, context.success) == ("RECONSUME_LATER", False) and context.error is returned
    context, _ = consumed(failing, is_orderly=True)
    assert (context.status, context.success) == ("SUSPEND_CURRENT_QUEUE_A_MOMENT", False)
    wrong = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
    assert consumed(lambda message: wrong)[0].status == "RECONSUME_LATER"
    assert consumed(lambda message: wrong, is_orderly=True)[0].status == wrong.name


def test_without_hooks_nothing_is_called_besides():
    assert hooked_listener(print, Hooks("consume"), "billing", lambda: 0, is_orderly=False) is print


def test_a_consumer_calls_hooks():
    async def main():
        cluster, seen = PushCluster("a"), []
        cluster.put(3)
        hooks = Hooks("consume")
        hooks.add(None, lambda context: seen.append((context.messages[0].body, context.success)))
        plain = cluster.consumer()
        core = cluster.core = PushCore(plain._access, "billing", plain._settings, type(plain.service), hooks)
        await plain.close()

        async def listener(message):
            if message.body == b"1":
                raise ValueError("no")

        await core.subscribe(subscribe("orders"), listener)
        await core.start()
        await asyncio.sleep(10)
        await core.close()
        return sorted(seen)

    assert play(main()) == [(b"0", True), (b"1", False), (b"2", True)]


# consumers without listeners


def shown(context):
    return [message.body for message in context.messages], context.status, context.success


def test_hooks_of_messages_that_are_read_and_committed():
    async def main():
        cluster, seen = PushCluster("a"), []
        cluster.put(3)
        consumer = cluster.reader()
        consumer.add_consume_hook(lambda context: seen.append(shown(context)), lambda context: seen.append(context))
        codes = set()
        consumer.add_rpc_hook(after=lambda address, request, answer: codes.add(request.code))
        async with consumer:
            assert [(await consumer.getone()).body, (await consumer.getone()).body] == [b"0", b"1"]
            assert seen == [([b"0"], "", False), ([b"1"], "", False)]
            await asyncio.sleep(2)
            seen.clear()
            await consumer.commit()
            assert [shown(one) for one in seen] == [
                ([b"0"], "CONSUME_SUCCESS", True),
                ([b"1"], "CONSUME_SUCCESS", True),
            ]
            assert seen[0].group == "billing" and 2_000 <= seen[0].ended - seen[0].began < 3_000
            await consumer.commit()
            await consumer.getone()  # not committed
        assert len(seen) == 3 and {11, 34, 105} <= codes

    play(main())


def test_hooks_of_messages_that_are_polled():
    async def main():
        cluster, seen = PullCluster("a"), []
        cluster.fill(2)
        cluster.fill(1, OTHER)
        consumer = cluster.puller(pull_batch_size=32)
        consumer.add_consume_hook(lambda context: seen.append(shown(context)), lambda context: seen.append(context))
        codes = set()
        consumer.add_rpc_hook(after=lambda address, request, answer: codes.add(request.code))
        async with consumer:
            await asyncio.sleep(3)
            assert seen == []  # what is pulled ahead is not consumed
            assert len(await consumer.poll()) == 3
        befores, afters = seen[::2], seen[1::2]
        assert sorted(befores) == [([b"0"], "", False), ([b"0", b"1"], "", False)]
        assert sorted(shown(one)[0] for one in afters) == [[b"0"], [b"0", b"1"]]
        assert all((one.status, one.success, one.group) == ("CONSUME_SUCCESS", True, "billing") for one in afters)
        assert {11, 34, 105} <= codes

    play(main())


def test_faults_of_hooks_of_consumers_without_listeners(caplog):
    async def main():
        read, polled = PushCluster("a"), PullCluster("a")
        read.put(1)
        polled.fill(1)
        for consumer in (read.reader(), polled.puller(instance_name="two")):
            consumer.add_consume_hook(lambda context: 1 / 0, lambda context: 1 / 0)
            async with consumer:
                if isinstance(consumer, AsyncPullConsumer):
                    assert len(await consumer.poll()) == 1
                    continue
                await consumer.getone()
                await consumer.commit()

    play(main())
    assert caplog.text.count("a consume hook failed: division by zero") == 4


def test_a_pull_consumer_of_a_thread_calls_hooks(broker):
    seen, codes = [], set()
    consumer = PullConsumer(
        "polled", broker.name_server, topics=["polled"], consume_from_where="CONSUME_FROM_FIRST_OFFSET"
    )
    consumer.add_consume_hook(after=lambda context: seen.append(shown(context)))
    consumer.add_rpc_hook(after=lambda address, request, answer: codes.add(request.code))
    with Producer("shop", broker.name_server) as producer:
        producer.send("polled", b"one")
    with consumer:
        assert len(consumer.poll(20_000)) == 1
    assert seen == [([b"one"], "CONSUME_SUCCESS", True)] and {11, 34, 105} <= codes


# requests


def test_rpc_hooks_see_requests_and_answers():
    async def main():
        stage, seen = Cluster({"a": stored}), []
        producer = stage.producer()
        producer.add_rpc_hook(
            lambda address, request: request.fields.update(extra="x"),
            lambda address, request, answer: seen.append((address, request.code, answer.code, request.fields["extra"])),
        )
        producer.add_rpc_hook(before=lambda address, request: 1 / 0)
        async with producer:
            await producer.send("orders", b"one")
            await producer.send_oneway("orders", b"one")
            await asyncio.sleep(1)
        return stage, seen

    stage, seen = play(main())
    asked = [call.command for call in stage.brokers["a"].asked]
    assert all(one.fields["extra"] == "x" for one in asked) and sum(one.code == 310 for one in asked) == 2
    name_server, broker = "10.0.0.5:9876", stage.address("a")
    assert {(name_server, 105, 0, "x"), (broker, 310, 0, "x"), (broker, 34, 0, "x")} <= set(seen)
    assert sum(code == 310 for _, code, _, _ in seen) == 1  # a oneway is not answered


def test_a_signature_comes_after_the_hooks():
    """A hook that changes a field must not break the signature."""
    order = []

    async def main():
        access = Access(("a:1",))
        access.rpc_hooks.add(lambda address, request: order.append("hook"), None)
        connections = Connections(
            random.Random(1), 1.0, hook=lambda request: order.append("signature"), rpc_hooks=access.rpc_hooks
        )
        connections._channel("127.0.0.1:1").command(34, {}, b"", 1)

    asyncio.run(main())
    assert order == ["hook", "signature"]


def test_hooks_at_a_broker(broker):
    found, sends, listeners, codes = queue.Queue(), [], [], set()
    producer = Producer("shop", broker.name_server)
    producer.add_send_hook(before=lambda context: context.properties.update(mark="7"), after=sends.append)
    consumer = PushConsumer("hooks", broker.name_server, consume_from_where="CONSUME_FROM_FIRST_OFFSET")
    consumer.add_consume_hook(after=listeners.append)
    consumer.add_rpc_hook(after=lambda address, request, answer: codes.add(request.code))
    with producer:
        sent = producer.send("hooked", b"one")
        with consumer:
            consumer.subscribe("hooked", listener=found.put)
            message = found.get(timeout=20)
    assert message.properties["mark"] == "7" and sends[0].result == sent
    assert listeners[0].messages[0].body == b"one" and listeners[0].success and {11, 34, 105} <= codes


def test_a_hook_sees_the_decision_of_a_listener_that_commits():
    async def main():
        stage, seen, decisions = PushCluster("a"), [], ["rollback", "suspend", "commit"]
        stage.put(2)
        core = stage.consumer(OrderlyService)
        core._hooks.add(None, lambda context: seen.append((context.status, context.success)))

        async def listener(message, context):
            if decisions:
                getattr(context, decisions.pop(0))()

        await core.subscribe(subscribe("orders"), listener, auto_commit=False)
        await core.start()
        await asyncio.sleep(10)
        await core.close()
        return seen

    suspended = ("SUSPEND_CURRENT_QUEUE_A_MOMENT", False)
    assert play(main()) == [("ROLLBACK", False), suspended, ("COMMIT", True), ("SUCCESS", True)]
    hooks, statuses = Hooks("consume"), []
    hooks.add(None, lambda context: statuses.append(context.status))
    for work in (OrderlyContext.rollback, OrderlyContext.commit):
        plain = hooked_listener(lambda message, context: work(context), hooks, "g", lambda: 0, is_orderly=True)  # noqa: B023
        plain("m", OrderlyContext(MessageQueue("orders", "a", 0)))
    assert statuses == ["ROLLBACK", "COMMIT"]
