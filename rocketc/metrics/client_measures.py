"""The metrics of producers and consumers. Names are those of RocketMQ's clients where RocketMQ has the metric.

Source: RocketMQ's documentation, Observability, Metrics, of producers and consumers; ConsumeStatus.
"""

from __future__ import annotations

from collections.abc import Iterable

from rocketc.client.async_consumer import AsyncConsumer
from rocketc.client.async_producer import AsyncProducer
from rocketc.client.async_pull_consumer import AsyncPullConsumer
from rocketc.client.counts import Key, ProducerCounts, Times
from rocketc.client.producer import Producer
from rocketc.client.pull_consumer import PullConsumer
from rocketc.client.push_consumer import PushConsumer
from rocketc.errors import ClosedError
from rocketc.metrics.measures import Histogram, Measure

Client = Producer | AsyncProducer | PushConsumer | AsyncConsumer | PullConsumer | AsyncPullConsumer

_OF_PRODUCER = "client_id", "producer_group"
_OF_CONSUMER = "client_id", "consumer_group"


def client_measures(*clients: Client) -> list[Measure]:
    """Return the metrics of open producers and consumers; those that are closed or not started are left out.

    Nothing is measured for it on the way of a message: clients count in any case. Any thread may call it.

    >>> import rocketc
    >>> from rocketc.metrics import exposition
    >>> with rocketc.Broker() as broker, rocketc.client.Producer("shop", broker.name_server) as producer:
    ...     _ = producer.send("orders", b"one")
    ...     text = exposition(client_measures(producer))
    >>> 'invocation_status="success"' in text and text.splitlines()[1]
    '# TYPE rocketmq_send_cost_time histogram'
    """
    sends = _histogram("rocketmq_send_cost_time", "Time of sends, all attempts included", _OF_PRODUCER)
    retries = Measure("rocketc_send_retries_total", "counter", "", "Attempts after the first one", _OF_PRODUCER)
    flying = Measure("rocketc_send_in_flight_messages", "gauge", "", "Messages sent and not answered", _OF_PRODUCER)
    flying_bytes = Measure("rocketc_send_in_flight_bytes", "gauge", "bytes", "Bytes of their bodies", _OF_PRODUCER)
    process = _histogram("rocketmq_process_time", "Time of listeners, counted by messages", _OF_CONSUMER)
    names = "topic", *_OF_CONSUMER
    waits = Measure("rocketmq_await_time", "histogram", "ms", "Time of messages from pulls to listeners", names)
    pulls = _histogram("rocketc_pull_time", "Time of pulls that returned messages, with the wait", _OF_CONSUMER)
    pulled = Measure("rocketc_pulled_messages_total", "counter", "", "Messages that were pulled", names)
    returned = Measure("rocketc_returned_messages_total", "counter", "", "Messages that failed and were sent back",
                       _OF_CONSUMER)  # fmt: skip
    cached = Measure("rocketmq_consumer_cached_messages", "gauge", "", "Messages pulled and not consumed", names)
    cached_bytes = Measure("rocketmq_consumer_cached_bytes", "gauge", "bytes", "Bytes of their bodies", names)
    queues = Measure("rocketc_consumer_queues", "gauge", "", "Queues of this member of the group", _OF_CONSUMER)
    for client in clients:
        try:
            counts = client.counts()
        except ClosedError:
            continue
        who = counts.client_id, counts.group
        if isinstance(counts, ProducerCounts):
            _add(sends, counts.sends, who)
            retries.add(counts.retries, *who)
            flying.add(counts.messages, *who)
            flying_bytes.add(counts.bytes, *who)
            continue
        _add(process, counts.processed, who)
        for (topic, _), times in sorted(counts.awaits, key=lambda one: one[0]):
            waits.add(Histogram(tuple(times.below()), times.count, times.total), topic, *who)
        _add(pulls, counts.pulls, who)
        for topic, count in sorted(counts.pulled.items()):
            pulled.add(count, topic, *who)
        returned.add(counts.returned, *who)
        for topic, (messages, size) in sorted(counts.cached.items()):
            cached.add(messages, topic, *who)
            cached_bytes.add(size, topic, *who)
        queues.add(counts.queues, *who)
    return [
        sends, retries, flying, flying_bytes, process, waits, pulls, pulled, returned, cached, cached_bytes, queues,
    ]  # fmt: skip


def _histogram(name: str, help: str, who: tuple[str, ...]) -> Measure:
    return Measure(name, "histogram", "ms", help, ("topic", *who, "invocation_status"))


def _add(measure: Measure, found: Iterable[tuple[Key, Times]], who: tuple[str, str]) -> None:
    for (topic, is_ok), times in sorted(found, key=lambda one: one[0]):
        value = Histogram(tuple(times.below()), times.count, times.total)
        measure.add(value, topic, *who, "success" if is_ok else "failure")
