"""read_log: any bytes of the log by physical offset. The written position wakes a thread that waits for them."""

import os
import threading

import pytest
from support import derived, oracle
from support.threads import wait_until

import rocketc
from rocketc.errors import ClosedError, PhyOffsetError
from rocketc.log._positions import PositionDescriptor
from rocketc.store.futures import descriptors

FILE_SIZE = 8 << 10
NEVER = 600_000  # ms
POOL = {
    "transient_store_pool_enable": True,
    "transient_store_pool_size": 3,
    "flush_interval_commit_log": NEVER,
    "commit_interval_commit_log": NEVER,
    "wake_commit_when_put_message": False,
}


def fill(store, count=100):
    for n in range(count):
        store.put(f"T{n % 3}", bytes([n % 256]) * (n % 300), queue_id=n % 2)


def log_of(store):
    return b"".join(data for _, data, _ in oracle.read_log(f"{store.path}/commitlog"))


# ---------------------------------------------------------------------------------------------- bytes


def test_any_offset_and_any_size(open_store):
    store = open_store(**derived.SMALL)
    fill(store, 300)
    log, end = log_of(store), store.max_phy_offset
    assert end > 2 * FILE_SIZE
    for start in [*range(0, 600, 7), FILE_SIZE - 1, FILE_SIZE, FILE_SIZE + 1, end - 1]:
        for size in (1, 13, 1000, 1 << 20):
            block = store.read_log(start, size)
            assert block == log[start : start + len(block)]
            assert len(block) == min(size, FILE_SIZE - start % FILE_SIZE, end - start)
            view = store.read_log(start, size, views=True)
            assert (view.start, bytes(view)) == (start, block)


def test_blocks_from_within_a_record_make_up_the_log(open_store):
    store = open_store(**derived.SMALL)
    fill(store)
    at, found = 33, b""
    while block := store.read_log(at, 777):
        at, found = at + len(block), found + block
    assert at == store.max_phy_offset and found == log_of(store)[33:at]


def test_the_end_of_the_log(open_store):
    store = open_store(**derived.SMALL)
    assert (store.read_log(0), store.read_log(0, views=True)) == (b"", None)
    end = store.put("t", b"hello").end
    assert len(store.read_log(0)) == end
    assert (store.read_log(end), store.read_log(end, views=True)) == (b"", None)
    store._roll()
    assert len(store.read_log(end)) == FILE_SIZE - end, "the blank record and the bytes after it"
    assert store.read_log(FILE_SIZE) == b""


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_bytes_that_are_not_durable(open_store, flush):
    store = open_store(**derived.SMALL, flush=flush, background=False)
    put = store.put_async("t", b"hello")
    assert len(store.read_log(0)) == store.max_phy_offset > store.flushed_phy_offset == 0
    store.flush()
    assert put.result(timeout=5).end == store.flushed_phy_offset


def test_bytes_of_a_pool_are_read_when_they_are_in_the_file(open_store):
    store = open_store(**derived.SMALL, **POOL)
    end = store.put("t", b"hello").end
    assert (store.read_log(0), store.read_log(5), store.read_log(5, views=True)) == (b"", b"", None)
    store.flush()
    assert (len(store.read_log(0)), len(store.read_log(5))) == (end, end - 5)


def test_offsets_outside_the_log_are_refused(open_store):
    store = open_store(**derived.SMALL)
    fill(store, 300)
    end = store.max_phy_offset
    assert store.wait_dispatched(timeout=10)
    store.delete_before(2 * FILE_SIZE)
    for offset in (-1, -(1 << 63), 0, 2 * FILE_SIZE - 1, end + 1, (1 << 63) - 1):
        with pytest.raises(PhyOffsetError, match=f"physical offset {offset}: the log "):
            store.read_log(offset)
    with pytest.raises(ValueError, match="max_bytes is 0"):
        store.read_log(2 * FILE_SIZE, 0)


def test_a_view_keeps_its_file(open_store):
    store = open_store(**derived.SMALL)
    fill(store, 300)
    view = store.read_log(3, 500, views=True)
    assert store.wait_dispatched(timeout=10)
    assert store.delete_before(2 * FILE_SIZE).log_files == 0
    view.release()
    assert store.delete_before(2 * FILE_SIZE).log_files == 2
    with pytest.raises(ClosedError, match="released"):
        memoryview(view)


def test_bytes_are_loaded_into_memory(open_store):
    """load() reads them for a thread, so that the caller does not wait for the disk."""
    store = open_store(**derived.SMALL)
    fill(store)
    view = store.read_log(3, 5000, views=True)
    view.load()
    assert view.is_in_memory() and bytes(view) == log_of(store)[3:5003]
    view.release()
    for call in (view.load, view.is_in_memory):
        with pytest.raises(ClosedError, match="released"):
            call()


def test_a_closed_store(open_store):
    store = open_store(**derived.SMALL)
    store.close()
    with pytest.raises(ClosedError):
        store.read_log(0)


def test_a_reader_of_a_store_that_is_open_for_reading_only(open_store):
    store = open_store(**derived.SMALL)
    end = store.put("t", b"hello").end
    with rocketc.open(store.path, read_only=True) as reader:
        assert reader.written_position is None
        assert reader.read_log(7, end - 7) == store.read_log(7)


# ---------------------------------------------------------------------------------------------- the written position


class Events:
    """A descriptor that waits for the written position of a store."""

    def __init__(self, store):
        self.read, self.write = descriptors()
        self.position = PositionDescriptor(store.written_position, self.write)
        self.arm = self.position.arm

    def came(self):
        try:
            return int.from_bytes(os.read(self.read, 8), "little")
        except BlockingIOError:
            return 0

    def close(self):
        self.position.end()
        for fd in {self.read, self.write}:
            os.close(fd)


@pytest.fixture
def events():
    opened = []

    def make(store):
        opened.append(Events(store))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_the_next_put_wakes_once(open_store, events, flush):
    """A put wakes before its flush."""
    store = open_store(**derived.SMALL, flush=flush, background=False)
    wait = events(store)
    assert wait.arm(1) and wait.came() == 0
    store.put_async("t", b"one")
    assert wait.came() == 1
    store.put_async("t", b"two")
    assert wait.came() == 0, "it was not armed again"
    end = store.max_phy_offset
    assert not wait.arm(end) and wait.arm(end + 1) and not wait.came()
    store.put_async("t", b"three")
    assert wait.came() == 1


def test_each_way_of_appending_wakes(open_store, events, tmp_path):
    store, other = (open_store(tmp_path / name, **derived.SMALL) for name in ("one", "two"))
    wait = events(store)
    other.put("t", b"raw")
    ways = [
        lambda: store.append_raw(0, other.read_raw(0)),
        lambda: store.put("t", b"one"),
        lambda: store.put_many("t", [b"one", b"two"]),
        lambda: store.put_batch("t", [(0, b"one", None)]),
    ]
    for way in ways:
        assert wait.arm(store.max_phy_offset + 1)
        way()
        assert wait.came() == 1


def test_with_a_pool_a_commit_wakes(open_store, events):
    store = open_store(**derived.SMALL, **POOL)
    wait = events(store)
    assert wait.arm(1)
    end = store.put("t", b"hello").end
    assert wait.came() == 0
    store.flush()
    assert wait.came() == 1
    assert not wait.arm(end) and wait.arm(end + 1)
    store.close()
    store = open_store(**derived.SMALL, **POOL)
    assert not events(store).arm(end), "a log that was opened is in its files"


def test_no_wake_up_is_lost(open_store, events):
    """One thread puts, another one waits for each record before it looks for the next."""
    store, count = open_store(**derived.SMALL), 2000
    wait, found = events(store), []

    def follow():
        at = 0
        while len(found) < count:
            block = store.read_raw(at, 1)
            if block:
                at += len(block)
                found.append(at)
            elif wait.arm(at + 1):
                wait_until(wait.came)

    thread = threading.Thread(target=follow)
    thread.start()
    for _ in range(count):
        store.put("t", b"")
    thread.join(60)
    assert len(found) >= count


def test_the_end_of_the_store_wakes(open_store, events):
    store = open_store(**derived.SMALL)
    wait = events(store)
    assert wait.arm(1)
    store.close()
    assert wait.came() == 1 and not wait.arm(1)
