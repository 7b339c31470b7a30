"""A message whose put has returned is found by any thread and in every way of reading."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import rocketc

KIB, MIB = 1 << 10, 1 << 20
PUTS = 300  # the dispatcher sleeps for 0.5 ms: with the dispatcher alone, most messages would not be found

READS = {
    "get": lambda store, n: [m.body for m in store.get("t", n % 3, n // 3)] == [b"%d" % n],
    "get_raw": lambda store, n: store.get_raw("t", n % 3, n // 3).queue_offsets == [n // 3],
    "query": lambda store, n: [m.body for m in store.query("t", f"k{n}")] == [b"%d" % n],
    "message_by_id": lambda store, n: store.message_by_id(f"u{n}", "t").body == b"%d" % n,
    "max_offset": lambda store, n: store.max_offset("t", n % 3) == n // 3 + 1,
    "offset_by_time": lambda store, n: store.offset_by_time("t", n % 3, 1000 + n) == n // 3,
    "store_time": lambda store, n: store.store_time("t", n % 3, n // 3) == 1000 + n,
    "phy_offset_of": lambda store, n: store.phy_offset_of("t", n % 3, n // 3) >= 0,
    "queues": lambda store, n: len(store.queues()) == min(n + 1, 3),
}
MODES = {
    "async": {},
    "pool": {"transient_store_pool_enable": True, "commit_interval_commit_log": 60_000},
    "sync": {"flush": "sync"},
    "rolls": {"mapped_file_size_commit_log": 4 * KIB, "mapped_file_size_consume_queue": 100},
}


def put(store, n):
    store._set_clock(1000 + n)
    return store.put("t", b"%d" % n, queue_id=n % 3, keys=f"k{n}", properties={"UNIQ_KEY": f"u{n}"})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("read", READS)
def test_found_at_once(open_store, mode, read):
    store = open_store(**{"mapped_file_size_commit_log": MIB} | MODES[mode])
    for n in range(PUTS):
        put(store, n)
        assert READS[read](store, n), n


def test_found_by_another_thread(open_store):
    store = open_store(mapped_file_size_commit_log=MIB)
    with ThreadPoolExecutor(1) as other:
        for n in range(PUTS):
            put(store, n)
            assert other.submit(READS["get"], store, n).result(30), n


def test_found_while_others_put_and_read(open_store):
    """Readers dispatch for each other. Each finds its own messages, and queues and index are correct at the end."""
    store = open_store(mapped_file_size_commit_log=64 * KIB)
    wrong = []

    def work(number):
        for n in range(200):
            r = store.put(f"t{number % 3}", b"%d %d" % (number, n), queue_id=number, keys=f"k{number}-{n}")
            found = store.get(f"t{number % 3}", number, r.queue_offset)
            by_key = store.query(f"t{number % 3}", f"k{number}-{n}")
            if [m.body for m in found] != [m.body for m in by_key] or len(found) != 1:
                wrong.append((number, n, list(found), list(by_key)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert not wrong
    assert store.stats()["dispatched"] == 8 * 200
    store.close()
    assert rocketc.verify(store.path).is_whole


def test_a_reader_far_behind_finds_its_messages(open_store):
    """Everything before the message is dispatched first, including full files."""
    store = open_store(mapped_file_size_commit_log=16 * KIB)
    store.put_many("t", [bytes(1000)] * 500)
    assert store.max_offset("t") == 500


def test_sync_mode_shows_durable_messages(open_store):
    store = open_store(flush="sync")
    store._hook("slow_ns", 300_000_000)
    future = store.put_async("t", b"later")
    assert store.max_offset("t") == 0
    assert store.max_offset("t", committed=False) == 1
    future.result(30)
    assert store.max_offset("t") == 1


def test_read_un_committed_shows_it_at_once(open_store):
    store = open_store(flush="sync", read_un_committed=True)
    store._hook("slow_ns", 300_000_000)
    future = store.put_async("t", b"later")
    assert not future.done()
    assert [m.body for m in store.get("t")] == [b"later"]
    store.put("t", b"again", wait_store_ok=False)
    assert store.max_offset("t") == 2


def test_queues_that_cannot_be_written_are_read_unchanged(open_store, tmp_path):
    store = open_store()
    store.put("t", b"one")
    assert store.max_offset("t") == 1
    (tmp_path / "consumequeue" / "u").write_bytes(b"a file where a folder belongs")
    store.put("u", b"not in a queue")
    with pytest.raises(rocketc.StoreIOError):
        store.wait_dispatched(30)
    assert store.max_offset("t") == 1
    (tmp_path / "consumequeue" / "u").unlink()
    until = time.monotonic() + 30  # the dispatcher retries from time to time
    while store.max_offset("u") == 0 and time.monotonic() < until:
        time.sleep(0.05)
    assert store.max_offset("u") == 1
