"""Read from an open store: wait, follow, topics; in the same process and from another process."""

import asyncio
import os
import subprocess
import sys
import threading
import time

import pytest

import rocketc
from rocketc.status import GetStatus

FILE = 1 << 16


@pytest.fixture(params=["async", "sync"])
def store(tmp_path, request):
    with rocketc.open(tmp_path / "store", flush=request.param, mapped_file_size_commit_log=FILE) as store:
        yield store


def later(seconds, act):
    timer = threading.Timer(seconds, act)
    timer.start()
    return timer


# ------------------------------------------------------------------------------------------------ waiting


def test_get_returns_at_once_without_wait(store):
    assert store.get("t").status is GetStatus.NO_MESSAGE_IN_QUEUE


def test_get_waits_for_the_first_message_of_a_queue(store):
    timer = later(0.1, lambda: store.put("t", b"x"))
    assert [m.body for m in store.get("t", wait=10)] == [b"x"]
    timer.join()


def test_get_waits_at_the_end_of_a_queue(store):
    store.put("t", b"x")
    assert [m.body for m in store.get("t", 0, 0, wait=10)] == [b"x"]
    timer = later(0.1, lambda: store.put("t", b"y"))
    found = store.get("t", 0, 1, wait=10)
    assert [m.body for m in found] == [b"y"]
    assert found.next_offset == 2
    timer.join()


def test_get_waits_for_a_matching_message(store):
    """Messages that the filter rejects do not end the wait, and next_offset is after the rejected messages."""
    timer = later(0.05, lambda: store.put_many("t", [b"%d" % n for n in range(2000)], tags="A"))
    last = later(0.3, lambda: store.put("t", b"x", tags="B"))
    found = store.get("t", tags="B", wait=10)
    assert [m.body for m in found] == [b"x"]
    assert found.next_offset == 2001
    timer.join()
    last.join()


def test_a_wait_ends(store):
    begin = time.monotonic()
    found = store.get("t", wait=0.2)
    assert 0.2 <= time.monotonic() - begin < 5
    assert found.status is GetStatus.NO_MESSAGE_IN_QUEUE
    store.put_many("t", [b"x"] * 3, tags="A")
    assert store.wait_dispatched(10)
    found = store.get("t", tags="B", wait=0.1)
    assert (found.status, found.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 3)


@pytest.mark.parametrize("offset", [-1, 7])
def test_get_does_not_wait_at_a_wrong_offset(store, offset):
    store.put("t", b"x")
    store.wait_dispatched(10)
    begin = time.monotonic()
    status = store.get("t", 0, offset, wait=10).status
    assert status is (GetStatus.OFFSET_TOO_SMALL if offset < 0 else GetStatus.OFFSET_OVERFLOW_BADLY)
    assert time.monotonic() - begin < 5


def test_close_ends_a_wait(tmp_path):
    store = rocketc.open(tmp_path, mapped_file_size_commit_log=FILE)
    errors = []

    def wait():
        try:
            store.get("t", wait=60)
        except rocketc.ClosedError as error:
            errors.append(error)

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    begin = time.monotonic()
    store.close()
    for thread in threads:
        thread.join()
    assert time.monotonic() - begin < 5
    assert len(errors) == 4
    with pytest.raises(rocketc.ClosedError):
        store.get("t")


def test_many_threads_wait_for_many_queues(store):
    found = {}

    def wait(queue):
        found[queue] = [m.body for m in store.get("t", queue, wait=30)]

    threads = [threading.Thread(target=wait, args=(n,)) for n in range(100)]
    for thread in threads:
        thread.start()
    for n in range(100):
        store.put("t", b"%d" % n, queue_id=n)
    for thread in threads:
        thread.join()
    assert found == {n: [b"%d" % n] for n in range(100)}


@pytest.mark.measure
def test_a_message_can_be_read_within_a_millisecond(tmp_path):
    took = []
    with rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 24) as store:
        for n in range(200):
            thread = threading.Thread(target=store.get, args=("t", 0, n), kwargs={"wait": 10})
            thread.start()
            time.sleep(0.002)
            begin = time.perf_counter()
            store.put("t", b"x")
            thread.join()
            took.append(time.perf_counter() - begin)
    assert sorted(took)[100] < 0.001


def test_wait_dispatched(store):
    assert store.wait_dispatched(0)
    store.put_many("t", [b"x" * 100] * 5000)
    assert store.wait_dispatched(30)
    assert store.max_offset("t") == 5000
    assert store.dispatch_behind_bytes == 0
    with pytest.raises(TypeError, match="timeout: expected a number of seconds, got str"):
        store.wait_dispatched("soon")


def test_messages_are_read_in_order_while_they_are_put(store):
    """Also over rolls of the log. Each reader gets each message once."""
    count, readers = 3000, 3
    seen = [[] for _ in range(readers)]

    def read(mine):
        at = 0
        while at < count:
            found = store.get("t", 0, at, wait=30)
            mine += [int(m.body) for m in found]
            at = found.next_offset

    threads = [threading.Thread(target=read, args=(mine,)) for mine in seen]
    for thread in threads:
        thread.start()
    for n in range(0, count, 10):
        store.put_many("t", [b"%d" % m for m in range(n, n + 10)])
    for thread in threads:
        thread.join()
    assert seen == [list(range(count))] * readers


def test_sync_mode_shows_only_durable_messages(tmp_path):
    with rocketc.open(tmp_path, flush="sync", mapped_file_size_commit_log=FILE) as store:
        store._hook("slow_ns", 400_000_000)
        put = store.put_async("t", b"x")
        assert not store.get("t")
        put.result()
        assert store.get("t", wait=10)


def test_read_un_committed(tmp_path):
    with rocketc.open(tmp_path, flush="sync", read_un_committed=True, mapped_file_size_commit_log=FILE) as store:
        store._hook("slow_ns", 2_000_000_000)
        begin = time.monotonic()
        put = store.put_async("t", b"x")
        assert store.get("t", wait=10)
        assert time.monotonic() - begin < 1.5
        put.result()


# ------------------------------------------------------------------------------------------------ asyncio


def test_follow(store):
    async def main():
        found = []
        async for message in store.follow("t"):
            found.append(message.body)
            if len(found) == 100:
                return found

    store.put("t", b"0")
    timer = later(0.1, lambda: [store.put("t", b"%d" % n) for n in range(1, 100)])
    assert asyncio.run(asyncio.wait_for(main(), 30)) == [b"%d" % n for n in range(100)]
    timer.join()


def test_many_tasks_follow_in_one_loop(store):
    async def one(queue):
        async for message in store.follow("t", queue, tags="A"):
            return message.body

    async def main():
        tasks = [asyncio.create_task(one(n)) for n in range(50)]
        await asyncio.sleep(0.05)
        for n in range(50):
            store.put("t", b"no", queue_id=n, tags="B")
            store.put("t", b"%d" % n, queue_id=n, tags="A")
        return await asyncio.gather(*tasks)

    assert asyncio.run(asyncio.wait_for(main(), 30)) == [b"%d" % n for n in range(50)]
    assert asyncio.run(asyncio.wait_for(main(), 30)), "another event loop, after the first"


def test_follow_ends_with_the_store(tmp_path):
    store = rocketc.open(tmp_path, mapped_file_size_commit_log=FILE)

    async def main():
        later(0.1, store.close)
        with pytest.raises(rocketc.ClosedError):
            async for _ in store.follow("t"):
                pass

    fds = len(os.listdir("/proc/self/fd"))
    asyncio.run(asyncio.wait_for(main(), 30))
    assert len(os.listdir("/proc/self/fd")) <= fds


def test_follow_refuses_an_offset_after_the_end(store):
    async def main():
        async for _ in store.follow("t", offset=5):
            pass

    store.put("t", b"x")
    store.wait_dispatched(10)
    with pytest.raises(ValueError, match="ends at 1, before offset 5"):
        asyncio.run(asyncio.wait_for(main(), 30))


# ------------------------------------------------------------------------------------------------ another process

WRITER = """
import rocketc, sys
with rocketc.open(sys.argv[1], mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000) as store:
    print("open", flush=True)
    for line in sys.stdin:
        store.put("t", line.strip().encode(), keys="k" + line.strip())
        store.wait_dispatched()
        print("done", flush=True)
"""


@pytest.fixture
def writer(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, tmp_path / "store"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "open\n"

    def put(text):
        process.stdin.write(f"{text}\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"

    yield put
    process.stdin.close()
    assert process.wait(30) == 0
    process.stdout.close()


def test_reading_a_store_that_another_process_writes(tmp_path, writer):
    writer(0)
    with rocketc.open(tmp_path / "store", read_only=True) as reader:
        assert [m.body for m in reader.get("t", wait=10)] == [b"0"]
        for n in range(1, 400):  # new files of log and queue are created
            writer(n)
            if n % 50 == 0:
                assert [int(m.body) for m in reader.get("t", 0, n - 3, wait=10)] == [n - 3, n - 2, n - 1, n]
                assert [m.body for m in reader.query("t", f"k{n}")] == [b"%d" % n]
        assert reader.max_offset("t") == 400
        assert reader.queues() == [("t", 0)]
        assert reader.message(reader.phy_offset_of("t", 0, 399)).body == b"399"
        with pytest.raises(rocketc.ClosedError, match="reading only"):
            reader.wait_dispatched()

        async def main():
            async for message in reader.follow("t", offset=399):
                if message.body == b"400":
                    return True

        writer(400)
        assert asyncio.run(asyncio.wait_for(main(), 30))


def test_reading_only_writes_nothing(tmp_path):
    with rocketc.open(tmp_path, mapped_file_size_commit_log=FILE) as store:
        store.put("t", b"x", keys="k")
    before = {p: p.stat() for p in tmp_path.rglob("*")}
    with rocketc.open(tmp_path, read_only=True) as reader:
        assert len(reader.get("t")) == len(reader.query("t", "k")) == 1
        assert reader.get("nothing").status is GetStatus.NO_MESSAGE_IN_QUEUE
        assert reader.topics() == {}
        with pytest.raises(rocketc.ClosedError):
            reader.create_topic("t")
        with pytest.raises(rocketc.ClosedError):
            reader.clean()
    after = {p: p.stat() for p in tmp_path.rglob("*")}
    assert after.keys() == before.keys()
    assert all(after[p].st_mtime_ns == s.st_mtime_ns and after[p].st_size == s.st_size for p, s in before.items())


# ------------------------------------------------------------------------------------------------ topics, cleaning


def test_a_store_without_a_table_takes_any_topic(tmp_path):
    with rocketc.open(tmp_path, auto_create_topic_enable=False, mapped_file_size_commit_log=FILE) as store:
        store.put("new", b"x")
        assert store.topics() == {}
    assert not (tmp_path / "config").exists()


def test_a_put_creates_its_topic(tmp_path):
    with rocketc.open(tmp_path, mapped_file_size_commit_log=FILE) as store:
        store.create_topic("first")
        store.put("second", b"x")
        store.put("no topic of a broker!", b"x")
        assert list(store.topics()) == ["first", "second"]
    with rocketc.open(tmp_path) as store:
        assert store.topics()["second"].write_queue_nums == 4
        store.put("third", b"x")
    assert sorted(rocketc.open(tmp_path, read_only=True).topics()) == ["first", "second", "third"]


def test_a_put_to_a_topic_that_may_not_be_created(tmp_path):
    with rocketc.open(tmp_path, auto_create_topic_enable=False, mapped_file_size_commit_log=FILE) as store:
        store.create_topic("first")
        store.put("first", b"x")
        with pytest.raises(rocketc.IllegalMessageError, match=r"create it with create_topic\(\)"):
            store.put("second", b"x")
        assert store.max_phy_offset == store.message(0).store_size


def test_a_batch_topic(tmp_path):
    with rocketc.open(tmp_path, mapped_file_size_commit_log=FILE) as store:
        store.create_topic("b", queue_type="BatchCQ")
        store.put("b", b"x")
        assert store.wait_dispatched(10)
        assert [m.body for m in store.get("b")] == [b"x"]
    assert (tmp_path / "batchconsumequeue" / "b" / "0").is_dir()
    assert not (tmp_path / "consumequeue").exists()


def test_clean(memory_path):
    with rocketc.open(memory_path, mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=200) as store:
        store.put_many("t", [b"x" * 1000] * 60)
        store.wait_dispatched(10)
        report = store.clean(expired_ms=-1)
        assert report.log_files == 10, "deleteFileBatchMax"
        assert store.min_phy_offset == 10 * 4096
        assert store.min_offset("t") == 30
        assert store.get("t").status is GetStatus.OFFSET_TOO_SMALL
        assert store.get("t", 0, 30).messages[0].queue_offset == 30
        assert store.clean().log_files == 0, "no file is old"


def test_a_view_keeps_its_file(memory_path):
    with rocketc.open(memory_path, mapped_file_size_commit_log=4096) as store:
        store.put_many("t", [b"x" * 1000] * 30)
        store.wait_dispatched(10)
        found = store.get("t", views=True, max_count=1)
        body = found.messages[0].body
        assert store.clean(expired_ms=-1).log_files == 0
        assert bytes(body) == b"x" * 1000
        del body
        found.release()
        assert store.clean(expired_ms=-1).log_files > 0


def test_puts_on_a_full_disk(tmp_path):
    with rocketc.open(tmp_path, mapped_file_size_commit_log=FILE) as store:
        store._set_full(True)
        with pytest.raises(rocketc.StoreFullError, match="nearly full"):
            store.put("t", b"x")
        store._set_full(False)
        store.put("t", b"x")
