"""Uses of the public names for the type checker. mypy reads this file (`make lint`), nothing runs it."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from typing_extensions import assert_type

import rocketc
from rocketc.client import (
    AsyncConsumer,
    AsyncPullConsumer,
    AsyncTransactionProducer,
    LocalTransactionState,
    MessageQueue,
    PullConsumer,
    PushConsumer,
    SendResult,
    TransactionProducer,
    TransactionResult,
)
from rocketc.client.telemetry import Telemetry


def scanning() -> None:
    assert_type(rocketc.scan("store"), rocketc.Scan)
    assert_type(rocketc.scan(Path("store"), topics=["a", re.compile("b.*")], queues=[0], tags=["x"]), rocketc.Scan)
    assert_type(rocketc.scan(["a", Path("b")], begin=1, end=datetime.now(timezone.utc)), rocketc.Scan)
    assert_type(
        rocketc.scan("s", where=lambda message: message.queue_id == 0, errors="report", crc="full", partial=True),
        rocketc.Scan,
    )
    assert_type(rocketc.decode(b"", base_offset=None), rocketc.Scan)
    assert_type(rocketc.decode(memoryview(b"")), rocketc.Scan)
    url = "rocketmq://127.0.0.1:9876/orders"
    account = rocketc.client.Credentials("reader", "secret")
    assert_type(rocketc.scan(url, credentials=account, tls=True, group="auditors"), rocketc.Scan)
    rocketc.scan("store", errors="ignore")  # type: ignore[arg-type]
    rocketc.scan("store", crc="half")  # type: ignore[arg-type]


def results(scan: rocketc.Scan) -> None:
    assert_type(iter(scan), Iterator[rocketc.Message])
    assert_type(scan.follow(poll=0.5), Iterator[rocketc.Message])
    assert_type(scan.count(), int)
    report = scan.report
    assert_type(report, rocketc.ScanReport)
    assert_type((report.records, report.bytes, report.blanks, report.files), tuple[int, int, int, int])
    assert_type(report.damage, list[rocketc.Damage])
    for damage in report.damage:
        assert_type((damage.file, damage.start, damage.stop, damage.reason), tuple[str | None, int, int, str])
        damage.start = 0  # type: ignore[misc]
    assert_type((report.missing, report.end), tuple[list[tuple[int, int]], int | None])


def messages(message: rocketc.Message) -> None:
    assert_type((message.topic, message.queue_id, message.queue_offset), tuple[str, int, int])
    assert_type((message.keys, message.tags), tuple[str | None, str | None])
    assert_type((message.body, message.stored_body), tuple[bytes, bytes])
    assert_type((message.store_timestamp, message.store_time), tuple[int, datetime | None])
    assert_type((message.phy_offset, message.file, message.record), tuple[int, str | None, bytes])
    assert_type(message.version, Literal[1, 2])
    assert_type((message.to_dict(), message.to_json()), tuple[dict[str, Any], str])
    assert_type(rocketc.Message.of(b""), rocketc.Message)
    rocketc.Message()  # type: ignore[call-arg]
    properties: Mapping[str, str] = message.properties
    assert_type(properties["KEYS"], str)
    message.queue_id = 1  # type: ignore[misc]


def records() -> None:
    assert_type(rocketc.encode("orders", b"", properties={"TAGS": "a"}, store_host=("::1", 10911), version=2), bytes)
    rocketc.encode("orders", "text")  # type: ignore[arg-type]
    rocketc.encode("orders", version=3)  # type: ignore[arg-type]
    batch = rocketc.encode_batch(
        [(0, b"a", {"KEYS": "k"}), (1, bytearray(b"b"), b""), (2, memoryview(b"c"), None), (3, b"", {"TAGS": None})]
    )
    assert_type(rocketc.decode_batch(batch), list[tuple[int, bytes, bytes]])
    assert_type(rocketc.encode_blank(8), bytes)
    assert_type(rocketc.COLUMN_NAMES, tuple[str, ...])


def opening(config: rocketc.StoreConfig) -> None:
    assert_type(rocketc.open("store", flush="sync", lock="spin", max_message_size="64MiB"), rocketc.MessageStore)
    assert_type(rocketc.open(Path("store"), config=config, store_path_commit_log=Path("log")), rocketc.MessageStore)
    assert_type(rocketc.Queue("jobs", flush="sync", mapped_file_size_commit_log=1 << 20), rocketc.Queue)
    assert_type(config.replace(max_message_size="1MiB").max_message_size, int)
    assert_type(rocketc.StoreConfig(recovery="java", mapped_file_size_commit_log="64MiB"), rocketc.StoreConfig)
    rocketc.open("new", flsh="sync")  # type: ignore[call-arg]
    rocketc.open("new", flush="snyc")  # type: ignore[arg-type]
    rocketc.open("new", max_message_size=1.5)  # type: ignore[arg-type]
    rocketc.open("new", transient_store_pool_size="64MiB")  # type: ignore[arg-type]
    rocketc.open("new", broker_role="SALVE")  # type: ignore[arg-type]
    assert_type(rocketc.Broker(process=True, broker_name="b", max_message_size="1MiB"), rocketc.Broker)
    rocketc.Broker(broker_nme="b")  # type: ignore[call-arg]
    rocketc.Broker(trace_on="yes")  # type: ignore[arg-type]
    rocketc.Queue("new", flsh="sync")  # type: ignore[call-arg]
    rocketc.Queue("new", read_only=True)  # type: ignore[call-arg]
    rocketc.StoreConfig(flush_disktype="SYNC_FLUSH")  # type: ignore[call-arg]
    rocketc.StoreConfig.of(flsh="sync")  # type: ignore[call-arg]
    config.replace(lock_files=True)  # type: ignore[call-arg]


async def closing() -> None:
    async with rocketc.open("store") as store, rocketc.Queue("jobs") as queue:
        assert_type((store, queue), tuple[rocketc.MessageStore, rocketc.Queue])
    async with rocketc.Broker() as broker:
        assert_type((broker.name_server, broker.path, broker.store), tuple[str, str, rocketc.MessageStore])
        assert_type(broker.topics.create("orders", queue_nums=4).perm, int)


def subscriptions(store: rocketc.MessageStore) -> None:
    with store.subscribe([("orders", 0)]) as subscription:
        assert_type(subscription, rocketc.Subscription)
        assert_type((subscription.wait(1.5), subscription.fileno(), subscription.missed), tuple[bool, int, int])
        for change in subscription.changes():
            assert_type(change, rocketc.QueueChange)
            assert_type((change.topic, change.queue_id, change.max_offset), tuple[str, int, int])
            assert_type(change.tags_codes, tuple[int, ...] | None)
    store.subscribe("orders")  # type: ignore[arg-type]


def positions(store: rocketc.MessageStore) -> None:
    store.confirm(store.flushed_phy_offset)
    assert_type((store.confirmed_phy_offset, store.wait_confirmed(0, timeout=1.5)), tuple[int, bool])


def filters(error: rocketc.SqlError) -> None:
    assert_type(rocketc.scan("store", sql="price > 10"), rocketc.Scan)
    assert_type(rocketc.decode(b"", sql="price > 10").count(), int)
    rocketc.scan("store", sql=10)  # type: ignore[arg-type]
    assert_type(error.position, int)


def errors(error: rocketc.CorruptRecordError) -> None:
    assert_type((error.file, error.offset, error.reason), tuple[str | None, int, str])
    value_error: ValueError = error
    assert value_error


def listeners(consumer: PushConsumer) -> None:
    @consumer.subscribe("orders", tags="web || app")
    def plain(message: rocketc.Message) -> None: ...

    @consumer.subscribe("orders")
    async def coroutine(message: rocketc.Message) -> None: ...

    plain_again: Callable[[rocketc.Message], None] = plain
    coroutine_again: Callable[[rocketc.Message], Awaitable[None]] = coroutine
    consumer.subscribe("orders", listener=plain_again)
    consumer.subscribe("orders", listener=coroutine_again)
    consumer.subscribe("orders", listener=lambda message: print(message.body))
    consumer.subscribe("orders", listener=7)  # type: ignore[call-overload]


def polling(queue: MessageQueue) -> None:
    with PullConsumer("g", topics={"orders": "web"}, auto_commit=False, pull_batch_size=32) as consumer:
        assert_type(consumer, PullConsumer)
        assert_type(consumer.poll(timeout=100), list[rocketc.Message])
        assert_type(consumer.assignment(), list[MessageQueue])
        assert_type(consumer.committed(queue), int | None)
        consumer.commit({queue: 1})
    PullConsumer("g", pull_batch="32")  # type: ignore[call-arg]
    PullConsumer("g", topics=["a"], auto_commit=None)  # type: ignore[arg-type]


def iterating() -> None:
    AsyncConsumer("g", topics=["orders"], pull_batch_size=64)
    AsyncConsumer("g", topics=["orders"], consume_thread_max=5)  # type: ignore[call-arg]


async def polling_async(consumer: AsyncPullConsumer) -> None:
    async for message in consumer:
        assert_type(message, rocketc.Message)


def transactions(message: rocketc.Message) -> None:
    def check(message: rocketc.Message) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW

    def named(message: rocketc.Message) -> Literal["COMMIT_MESSAGE", "ROLLBACK_MESSAGE"]:
        return "COMMIT_MESSAGE" if message.keys else "ROLLBACK_MESSAGE"

    with TransactionProducer("shop", check=check, topics=["orders"], check_request_hold_max=100) as producer:
        with producer.transaction("orders", b"one", keys="o-1", timeout=500) as transaction:
            assert_type((transaction.msg_id, transaction.transaction_id), tuple[str, str])
            assert_type(transaction.message, rocketc.Message)
            assert_type(transaction.commit(), None)
        assert_type(transaction.state, LocalTransactionState | None)
        result = producer.send_in_transaction("orders", b"one", named, shard="c-7")
        assert_type(result, TransactionResult)
        assert_type((result.state, result.msg_id), tuple[LocalTransactionState, str])
        assert_type(producer.send("orders", b"one", delay_level=1), SendResult)
        producer.transaction("orders", b"one", delay_level=1)  # type: ignore[call-arg]
        producer.send_in_transaction("orders", [b"one"], named)  # type: ignore[arg-type]
        producer.send_in_transaction("orders", b"one", lambda message: "COMMIT")  # type: ignore[arg-type,return-value]
        producer.send_in_transaction("orders", b"one", lambda message: None)  # type: ignore[arg-type,return-value]
    traced = Telemetry().producer(TransactionProducer("shop", check=check))
    assert_type(traced, TransactionProducer)
    TransactionProducer("shop")  # type: ignore[call-arg]
    TransactionProducer("shop", check=lambda message: True)  # type: ignore[arg-type,return-value]


async def transactions_of_coroutines() -> None:
    async def check(message: rocketc.Message) -> Literal["UNKNOW"]:
        return "UNKNOW"

    async with AsyncTransactionProducer("shop", check=check) as producer:
        async with producer.transaction("orders", b"one") as transaction:
            transaction.rollback()
        assert_type(await producer.send_in_transaction("orders", b"one", check), TransactionResult)
        assert_type(await producer.send_in_transaction("orders", b"one", lambda message: "UNKNOW"), TransactionResult)
