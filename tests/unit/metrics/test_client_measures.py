"""The metrics of clients at a broker of this project."""

import asyncio
import queue
import re
import time

import rocketc
from rocketc.client import AsyncConsumer, AsyncProducer, AsyncPullConsumer, Producer, PullConsumer, PushConsumer
from rocketc.metrics import client_measures, exposition

FIRST = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}


def value(text, pattern):
    return float(re.search(rf"^{pattern} (\S+)$", text, re.MULTILINE)[1])


def test_plain_clients():
    found = queue.Queue()

    def listener(message):
        found.put(message.body)
        if message.body == b"bad":
            raise ValueError("no")

    with rocketc.Broker() as broker, Producer("shop", broker.name_server) as producer:
        for body in (b"one", b"two", b"bad"):
            producer.send("orders", body)
        closed = Producer("never-opened", broker.name_server)
        for orderly in (False, True):
            with PushConsumer(f"g-{orderly}", broker.name_server, orderly=orderly, **FIRST) as consumer:
                consumer.subscribe("orders", listener=listener)
                for _ in range(3):
                    found.get(timeout=15)
                end = time.monotonic() + 10
                while sum(times.count for _, times in consumer.counts().processed) < 3:
                    assert time.monotonic() < end
                    time.sleep(0.01)
                text = exposition(client_measures(producer, closed, consumer))
                who = rf'client_id="{re.escape(consumer.client_id)}",consumer_group="g-{orderly}"'
            assert value(text, rf'rocketmq_process_time_count{{topic="orders",{who},invocation_status="success"}}') == 2
            assert value(text, rf'rocketmq_process_time_count{{topic="orders",{who},invocation_status="failure"}}') >= 1
            assert value(text, rf'rocketmq_await_time_count{{topic="orders",{who}}}') >= 3
            steps = re.findall(rf'^rocketmq_await_time_bucket{{topic="orders",{who},le="(.*)"}}', text, re.MULTILINE)
            assert steps == ["1", "5", "20", "100", "1000", "5000", "10000", "+Inf"]
            assert value(text, rf'rocketc_pulled_messages_total{{topic="orders",{who}}}') == 3
            assert value(text, rf'rocketmq_consumer_cached_messages{{topic="orders",{who}}}') <= 1
            assert value(text, rf"rocketc_consumer_queues{{{who}}}") >= 4
        who = rf'client_id="{re.escape(producer.client_id)}",producer_group="shop"'
        of_sends = rf'topic="orders",{who},invocation_status="success"'
        assert value(text, rf"rocketmq_send_cost_time_count{{{of_sends}}}") == 3
        assert value(text, rf'rocketmq_send_cost_time_bucket{{{of_sends},le="\+Inf"}}') == 3
        steps = re.findall(rf'^rocketmq_send_cost_time_bucket{{{of_sends},le="(.*)"}}', text, re.MULTILINE)
        assert steps == ["1", "5", "10", "20", "50", "200", "500", "+Inf"]
        assert value(text, rf"rocketc_send_retries_total{{{who}}}") == 0
        assert value(text, rf"rocketc_send_in_flight_bytes{{{who}}}") == 0
        assert "never-opened" not in text


def test_async_clients():
    async def main():
        async with AsyncProducer("shop", broker.name_server) as producer:
            await producer.send("orders", b"one")
            async with AsyncConsumer("g", broker.name_server, topics=["orders"], **FIRST) as consumer:
                await asyncio.wait_for(consumer.getone(), 15)
                before = exposition(client_measures(producer, consumer))
                await consumer.commit()
                return before, exposition(client_measures(producer, consumer))

    with rocketc.Broker() as broker:
        before, after = asyncio.run(main())
    assert re.search(r'^rocketmq_consumer_cached_bytes\{topic="orders",.*\} 3$', before, re.MULTILINE)
    assert re.search(r'^rocketmq_consumer_cached_bytes\{topic="orders",.*\} 0$', after, re.MULTILINE)
    assert "rocketmq_process_time" not in before and 'invocation_status="success"} 1' in after


def test_pull_consumers():
    async def main():
        async with AsyncPullConsumer("async", broker.name_server, topics=["orders"], **FIRST) as consumer:
            await consumer.poll(15_000)
            return exposition(client_measures(consumer))

    with rocketc.Broker() as broker, Producer("shop", broker.name_server) as producer:
        queue = producer.send("orders", b"one").queue
        for _ in range(2):
            producer.send("orders", b"more", queue=queue)
        closed = PullConsumer("never-opened", broker.name_server)
        with PullConsumer("g", broker.name_server, topics=["orders"], **FIRST) as consumer:
            assert len(consumer.poll(15_000, max_records=1)) == 1
            end = time.monotonic() + 10
            while consumer.counts().cached["orders"] != (2, 8):
                assert time.monotonic() < end
                time.sleep(0.01)
            text = exposition(client_measures(closed, consumer))
            who = rf'client_id="{re.escape(consumer.client_id)}",consumer_group="g"'
        of_async = asyncio.run(main())
    for name, count in (("rocketmq_process_time_count", 1), ("rocketmq_process_time_sum", 0)):
        assert value(text, rf'{name}{{topic="orders",{who},invocation_status="success"}}') == count
    assert value(text, rf'rocketc_pulled_messages_total{{topic="orders",{who}}}') == 3
    assert value(text, rf'rocketmq_consumer_cached_messages{{topic="orders",{who}}}') == 2
    assert value(text, rf'rocketmq_consumer_cached_bytes{{topic="orders",{who}}}') == 8
    assert value(text, rf"rocketc_consumer_queues{{{who}}}") >= 4 and "never-opened" not in text
    assert re.search(
        r'^rocketmq_process_time_count\{topic="orders",.*consumer_group="async".*\} 3$', of_async, re.MULTILINE
    )
