"""Broadcasting consumers: every queue, a file of offsets, and failures that are not repeated; on virtual time."""

import asyncio
import json
import logging
import os
from pathlib import Path

import pytest
from simulation.virtual import VirtualLoop
from unit.client.scripted import NAME_SERVER, play
from unit.client.scripted_push import GROUP, PushCluster

from rocketc.client import AsyncConsumer, PushConsumer, RetryLater
from rocketc.client.orderly_service import OrderlyService
from rocketc.client.subscriptions import subscribe
from rocketc.errors import ConfigTableError, StoreIOError, StoreLockedError
from rocketc.remoting.requests import CODES
from rocketc.tables.fastjson import parse

pytestmark = pytest.mark.usefixtures("no_threads")

CLIENT = "10.0.9.9@DEFAULT"


@pytest.fixture
def no_threads(monkeypatch):
    """Work of threads is done at once: virtual time does not pass."""

    def now(loop, executor, work, *arguments):
        done = loop.create_future()
        try:
            done.set_result(work(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done

    monkeypatch.setattr(VirtualLoop, "run_in_executor", now)


@pytest.fixture
def file(tmp_path):
    return tmp_path / CLIENT / GROUP / "offsets.json"


def offsets(path):
    """The offsets in a file by (broker, topic, queue id)."""
    table = parse(path.read_bytes(), object_names=True)["offsetTable"]
    return {(dict(key)["brokerName"], dict(key)["topic"], dict(key)["queueId"]): value for key, value in table.items()}


def broadcast(stage, tmp_path, **options):
    return stage.consumer(message_model="BROADCASTING", local_offset_store_dir=str(tmp_path), **options)


async def consume(stage, listener, tmp_path, seconds=10, **options):
    core = broadcast(stage, tmp_path, **options)
    await core.subscribe(subscribe("orders"), listener)
    await core.start()
    await asyncio.sleep(seconds)
    await core.close()
    return core


def asked(stage, name, broker="a"):
    return [call for call in stage.brokers[broker].asked if call.command.code == CODES[name]]


def test_each_member_gets_all_messages_and_keeps_its_own_offsets(tmp_path):
    async def main():
        stage, got = PushCluster("a", "b"), {"one": [], "two": []}
        stage.put(3)
        stage.put(2, broker="b")
        cores = []
        for name, found in got.items():
            core = broadcast(stage, tmp_path, instance_name=name)
            cores.append(core)

            async def listener(message, found=found):
                found.append(message.body)

            await core.subscribe(subscribe("orders"), listener)
            await core.start()
        await asyncio.sleep(5)
        for core in cores:
            await core.close()
        for name, found in got.items():
            assert sorted(found) == [b"0", b"0", b"1", b"1", b"2"]
            kept = offsets(tmp_path / f"10.0.9.9@{name}" / GROUP / "offsets.json")
            assert (kept["a", "orders", 0], kept["b", "orders", 0]) == (3, 2)
        for name in ("QUERY_CONSUMER_OFFSET", "UPDATE_CONSUMER_OFFSET", "GET_CONSUMER_LIST_BY_GROUP"):
            assert not asked(stage, name) and not asked(stage, name, "b")
        assert stage.committed == {}

    play(main())


def test_a_new_process_continues_where_the_file_says(tmp_path, file):
    async def main():
        stage, got = PushCluster("a"), []
        stage.put(3)

        async def listener(message):
            got.append(message.body)

        first = await consume(stage, listener, tmp_path)
        stage.put(2)
        second = await consume(stage, listener, tmp_path)
        assert first.client_id == second.client_id == CLIENT
        assert got == [b"0", b"1", b"2", b"0", b"1"] and offsets(file)["a", "orders", 0] == 5

    play(main())


def test_what_brokers_see(tmp_path):
    async def main():
        stage = PushCluster("a")
        stage.put(3)

        async def listener(message):
            pass

        await consume(stage, listener, tmp_path)
        [group] = json.loads(asked(stage, "HEART_BEAT")[-1].command.body)["consumerDataSet"]
        assert group["messageModel"] == "BROADCASTING"
        assert [one["topic"] for one in group["subscriptionDataSet"]] == ["orders"]
        pulls = [call.values for call in asked(stage, "PULL_MESSAGE")]
        assert {pull["topic"] for pull in pulls} == {"orders"}
        assert {(pull["sysFlag"], pull["commitOffset"]) for pull in pulls} == {(2, 0)}  # held, nothing is committed

    play(main())


@pytest.mark.parametrize("error", [ValueError("no amount"), RetryLater("10s")])
def test_a_failed_message_is_dropped(tmp_path, file, caplog, error):
    async def main():
        stage, got = PushCluster("a"), []
        stage.put(3)

        async def listener(message):
            got.append(message.body)
            if message.body == b"1":
                raise error

        await consume(stage, listener, tmp_path, seconds=60)
        assert got == [b"0", b"1", b"2"] and stage.returned == []
        assert not asked(stage, "SEND_MESSAGE_V2") and offsets(file)["a", "orders", 0] == 3

    caplog.set_level(logging.WARNING, "rocketc.client")
    play(main())
    [line] = [one.getMessage() for one in caplog.records if "dropped" in one.getMessage()]
    assert line.endswith("is dropped, because broadcasting consumers get each message only once")
    said = [one.getMessage() for one in caplog.records if "no amount" in one.getMessage()]
    assert all("no amount; the message does not come again" in one for one in said)
    assert len(said) == isinstance(error, ValueError)


def test_a_listener_that_takes_longer_than_consume_timeout_keeps_its_message(tmp_path, file):
    async def main():
        stage, got = PushCluster("a"), []
        stage.put(1)

        async def listener(message):
            await asyncio.sleep(125)
            got.append(message.body)

        await consume(stage, listener, tmp_path, seconds=130, consume_timeout=1)
        assert got == [b"0"] and stage.returned == [] and offsets(file)["a", "orders", 0] == 1

    play(main())


def test_orderly_without_locks(tmp_path, file, caplog):
    """Each queue in order; a failed message holds its queue up, and is dropped after max_reconsume_times."""

    async def main():
        stage, got = PushCluster("a"), []
        stage.put(3)

        async def listener(message):
            got.append(message.body)
            if message.body == b"1":
                raise ValueError("no amount")

        await consume(stage, listener, tmp_path, seconds=100, kind=OrderlyService, max_reconsume_times=2)
        assert got == [b"0", b"1", b"1", b"1", b"2"] and offsets(file)["a", "orders", 0] == 3
        assert not asked(stage, "LOCK_BATCH_MQ") and not asked(stage, "UNLOCK_BATCH_MQ")
        assert not asked(stage, "SEND_MESSAGE_V2") and stage.returned == []

    caplog.set_level(logging.WARNING, "rocketc.client")
    play(main())
    assert "is dropped after 3 attempts, because dead letters need the model CLUSTERING" in caplog.text


def test_an_orderly_queue_that_is_reset_waits_for_the_listener(tmp_path):
    async def main():
        stage, running, most, got = PushCluster("a"), [0], [0], []
        stage.put(4)

        async def listener(message):
            running[0] += 1
            most[0] = max(most[0], running[0])
            await asyncio.sleep(3)
            got.append(message.body)
            running[0] -= 1

        core = broadcast(stage, tmp_path, kind=OrderlyService)
        await core.subscribe(subscribe("orders"), listener)
        await core.start()
        await asyncio.sleep(4)
        await core._member.reset(dict.fromkeys(core._member.owned, 0))
        await asyncio.sleep(60)
        await core.close()
        assert most == [1] and got == [b"0", b"1", b"0", b"1", b"2", b"3"]

    play(main())


def test_offsets_are_written_while_the_consumer_runs(tmp_path, file):
    async def main():
        stage = PushCluster("a")
        stage.put(3)

        async def listener(message):
            pass

        core = broadcast(stage, tmp_path)
        await core.subscribe(subscribe("orders"), listener)
        await core.start()
        await asyncio.sleep(6)
        assert offsets(file)["a", "orders", 0] == 3
        await core.unsubscribe("orders")
        assert not core._member.owned and offsets(file)["a", "orders", 0] == 3
        await core.close()

    play(main())


def test_a_group_that_begins_at_the_end_keeps_its_place(tmp_path, file):
    """A queue that nothing came into while the first process ran: the next process must not begin later."""

    async def main():
        stage, got = PushCluster("a"), []
        stage.put(3)

        async def listener(message):
            got.append(message.body)

        where = {"consume_from_where": "CONSUME_FROM_LAST_OFFSET"}
        await consume(stage, listener, tmp_path, **where)
        assert got == [] and offsets(file)["a", "orders", 0] == 3
        stage.put(2)
        await consume(stage, listener, tmp_path, **where)
        assert got == [b"0", b"1"]

    play(main())


# files that cannot be used


async def start(stage, tmp_path, **options):
    core = broadcast(stage, tmp_path, **options)
    await core.subscribe(subscribe("orders"), print)
    try:
        await core.start()
    finally:
        await core.close()


def test_two_damaged_files_end_the_start(tmp_path, file):
    file.parent.mkdir(parents=True)
    file.write_text("{")
    (file.parent / "offsets.json.bak").write_text("[]")
    with pytest.raises(ConfigTableError) as caught:
        play(start(PushCluster("a"), tmp_path))
    text = str(caught.value)
    assert str(file) in text and f"{file}.bak" in text and text.endswith("consume_from_where says where to begin")
    assert (file.read_text(), (file.parent / "offsets.json.bak").read_text()) == ("{", "[]")


def test_a_damaged_file_with_its_copy(tmp_path, file, caplog):
    async def main():
        stage, got = PushCluster("a"), []
        stage.put(3)

        async def listener(message):
            got.append(message.body)

        await consume(stage, listener, tmp_path)
        (file.parent / "offsets.json.bak").write_text(
            '{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"orders"}:2}}'
        )
        file.write_text("{")
        await consume(stage, listener, tmp_path)
        assert got == [b"0", b"1", b"2", b"2"] and offsets(file)["a", "orders", 0] == 3

    caplog.set_level(logging.WARNING, "rocketc.client")
    play(main())
    assert "its .bak is read instead" in caplog.text


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / CLIENT).write_text("not a folder")
    with pytest.raises(StoreIOError) as caught:
        play(start(PushCluster("a"), tmp_path))
    assert "make it readable and writable, or set local_offset_store_dir" in str(caught.value)
    assert str(tmp_path / CLIENT) in str(caught.value)


def test_a_folder_that_cannot_be_written(tmp_path, file, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(StoreIOError) as caught:
        play(start(PushCluster("a"), tmp_path))
    assert str(caught.value) == (
        "[Errno 13] Permission denied; make it readable and writable, or set local_offset_store_dir: "
        f"{str(file.parent)!r}"
    )


def test_a_file_that_cannot_be_read(tmp_path, file):
    file.mkdir(parents=True)
    with pytest.raises(StoreIOError, match=r"local_offset_store_dir: .*offsets\.json'"):
        play(start(PushCluster("a"), tmp_path))


def test_one_process_a_file(tmp_path):
    async def main():
        stage = PushCluster("a")
        core = broadcast(stage, tmp_path)
        await core.subscribe(subscribe("orders"), print)
        await core.start()
        pid = os.fork()
        if not pid:  # the child has the descriptor, too; it must not keep the lock
            os._exit(0)
        os.waitpid(pid, 0)
        holder = core._member._kept.table
        with pytest.raises(StoreLockedError) as caught:
            type(holder)(tmp_path, core.client_id, GROUP).open()
        assert str(caught.value) == (
            f"{holder.path}: another process keeps its offsets in this file; "
            "give each broadcasting consumer of this computer another instance_name"
        )
        await core.close()
        await start(stage, tmp_path)

    play(main())


def test_a_start_that_fails_gives_the_file_back(tmp_path):
    async def main():
        stage = PushCluster("a")
        server = stage.servers.pop(NAME_SERVER)
        with pytest.raises(ConnectionError):
            await start(stage, tmp_path)
        stage.servers[NAME_SERVER] = server
        await start(stage, tmp_path)

    play(main())


def test_a_file_that_cannot_be_written_any_more(tmp_path, file, monkeypatch, caplog):
    async def main():
        stage = PushCluster("a")
        stage.put(3)

        async def listener(message):
            pass

        def full(path, data):
            raise StoreIOError(28, "No space left on device", path)

        with monkeypatch.context() as patch:
            patch.setattr("rocketc.client.offset_stores.write_table", full)
            await consume(stage, listener, tmp_path)
        assert not file.exists()
        await consume(stage, listener, tmp_path)
        assert offsets(file)["a", "orders", 0] == 3

    caplog.set_level(logging.WARNING, "rocketc.client")
    play(main())
    text = f"{GROUP}: the write of the file of offsets failed; it is tried again: [Errno 28] No space left on device"
    assert text in caplog.text


def test_damage_while_the_consumer_runs_does_not_stop_it(tmp_path, file, caplog):
    """A queue is not taken while its offset cannot be read; the next write repairs the file."""

    async def main():
        stage, got = PushCluster("a"), []
        stage.put(3)

        async def listener(message):
            got.append(message.body)

        core = broadcast(stage, tmp_path)
        await core.subscribe(subscribe("orders"), listener)
        await core.start()
        await asyncio.sleep(6)
        for name in ("offsets.json", "offsets.json.bak"):
            (file.parent / name).write_text("{")
        await core.subscribe(subscribe("parcels"), listener)
        assert {queue.topic for queue in core._member.owned} == {"orders"}
        await asyncio.sleep(60)
        assert {queue.topic for queue in core._member.owned} == {"orders", "parcels"}
        await core.close()
        assert offsets(file)["a", "orders", 0] == 3

    caplog.set_level(logging.WARNING, "rocketc.client")
    play(main())
    assert "the offset of a queue cannot be read" in caplog.text


def test_two_consumers_of_one_process_need_names(tmp_path):
    async def main():
        stage = PushCluster("a")
        one = broadcast(stage, tmp_path)
        await one.start()
        with pytest.raises(ValueError, match="give each another instance_name"):
            await start(stage, tmp_path)
        await one.close()

    play(main())


# with a broker of this project


def test_push_and_async_consumer(broker, producer, tmp_path, monkeypatch):
    """The same file for both kinds of consumers; by default in the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    options = {"message_model": "BROADCASTING", "consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}
    for i in range(3):
        producer.send("news", b"%d" % i, shard="one")

    async def read(count):
        async with AsyncConsumer("readers", broker.name_server, topics=["news"], **options) as consumer:
            found = []
            while len(found) < count:
                found += [one.body for one in await consumer.getmany(count - len(found))]
            await consumer.commit()
            return consumer.client_id, found

    client_id, first = asyncio.run(read(2))
    assert sorted(Path(tmp_path).rglob("offsets.json")) == [
        tmp_path / ".rocketmq_offsets" / client_id / "readers" / "offsets.json"
    ]
    assert client_id.endswith("@DEFAULT")
    assert first + asyncio.run(read(1))[1] == [b"0", b"1", b"2"]
    producer.send("news", b"3", shard="one")
    got = []
    with PushConsumer("readers", broker.name_server, **options) as consumer:
        consumer.subscribe("news", listener=lambda message: (got.append(message.body), consumer.close()))
        assert consumer.wait(10)
    assert got == [b"3"]


def test_a_wrong_model():
    with pytest.raises(ValueError, match="message_model is 'SHARED'; allowed are BROADCASTING, CLUSTERING"):
        PushConsumer("g", message_model="SHARED")
