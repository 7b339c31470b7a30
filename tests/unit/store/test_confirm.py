"""confirm(), wait_confirmed() and hold_readers: the offset up to which readers can read."""

import errno
import threading
import time

import pytest
from support.threads import wait_until

import rocketc

SOON = 30.0
SIZE = 93  # of one record


@pytest.fixture
def held(open_store):
    return lambda **how: open_store(hold_readers=True, **how)


def body_of(found):
    return [bytes(m.body) for m in found]


# ---------------------------------------------------------------- the offset


def test_the_confirmed_offset_does_not_go_back(open_store):
    store = open_store()
    ends = [store.put("t", b"x").end for _ in range(3)]
    assert store.confirmed_phy_offset == 0
    for offset, then in [(ends[1], ends[1]), (ends[0], ends[1]), (-1, ends[1]), (ends[2], ends[2]), (0, ends[2])]:
        store.confirm(offset)
        assert store.confirmed_phy_offset == then


def test_the_confirmed_offset_does_not_pass_the_end_of_the_log(open_store):
    store = open_store()
    end = store.put("t", b"x").end
    with pytest.raises(rocketc.PhyOffsetError, match=f"{end + 1} can't be confirmed: the log ends at {end}") as raised:
        store.confirm(end + 1)
    assert raised.value.phy_offset == end + 1
    assert store.confirmed_phy_offset == 0
    store.confirm(end)


def test_confirm_in_a_closed_or_read_only_store(open_store, tmp_path):
    store = open_store()
    store.put("t", b"x")
    with rocketc.open(tmp_path, read_only=True) as reader, pytest.raises(rocketc.ClosedError):
        reader.confirm(0)
    store.close()
    for call in (store.confirm, store.wait_confirmed):
        with pytest.raises(rocketc.ClosedError):
            call(0)


# ---------------------------------------------------------------- waiting


def test_waiting(open_store):
    store = open_store()
    ends = [store.put("t", b"x").end for _ in range(2)]
    assert store.wait_confirmed(0)
    assert not store.wait_confirmed(ends[0], 0)
    assert not store.wait_confirmed(ends[0], 0.01)
    threads, got = [], []
    for end in ends:
        threads.append(threading.Thread(target=lambda end=end: got.append((end, store.wait_confirmed(end)))))
        threads[-1].start()
    wait_until(lambda: store.confirmed_position.waiting == 2)
    store.confirm(ends[0])
    threads[0].join(SOON)
    assert got == [(ends[0], True)]
    store.confirm(ends[1])
    threads[1].join(SOON)
    assert got == [(end, True) for end in ends]


@pytest.mark.parametrize("how", ["close", "fail"])
def test_waiting_ends_with_the_store(open_store, how):
    store = open_store()
    end = store.put("t", b"x").end
    raised = []

    def wait():
        try:
            store.wait_confirmed(end)
        except rocketc.RocketcError as error:
            raised.append(type(error))

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: store.confirmed_position.waiting == 1)
    begun = time.monotonic()
    if how == "close":
        store.close()
    else:
        store._hook("fail", errno.EIO)
    thread.join(SOON)
    assert raised == [rocketc.ClosedError if how == "close" else rocketc.StoreFailedError]
    assert time.monotonic() - begun < SOON / 2


# ---------------------------------------------------------------- readers


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_readers_see_what_is_confirmed(held, flush):
    store = held(flush=flush)
    ends = [store.put("t", b"%d" % n, keys="k").end for n in range(3)]

    def seen():
        assert store.max_offset("t") == len(store.get("t"))
        assert body_of(store.query("t", "k")) == body_of(store.get("t"))
        with store.get_raw("t") as raw:
            assert len(raw) == len(store.get("t"))
        return body_of(store.get("t"))

    assert seen() == []
    assert store.dispatched_phy_offset == 0
    for n, end in enumerate(ends):
        store.confirm(end)
        assert seen() == [b"0", b"1", b"2"][: n + 1]
        assert store.dispatched_phy_offset == end
    assert store.dispatch_behind_bytes == 0


def test_a_confirmed_offset_inside_a_record(held):
    store = held()
    end = store.put("t", b"x").end
    store.confirm(end - 1)
    assert len(store.get("t")) == 0
    before = time.process_time()
    time.sleep(0.3)  # the dispatcher's thread tries too
    assert time.process_time() - before < 0.15
    store.confirm(end)
    assert len(store.get("t")) == 1


def test_a_flush_does_not_wait_for_a_record_that_is_confirmed_in_part(held):
    store = held()
    store._hook("far", 1000)  # each flush makes the queues durable too, if they have all records
    for n in range(3):
        store.confirm(store.put("t", bytes(5000)).end - 1)
        began = time.monotonic()
        store.flush()
        assert time.monotonic() - began < 0.5
        assert store.max_offset("t") == n


def test_without_hold_readers_readers_see_all_messages(open_store):
    store = open_store()
    store.put("t", b"x")
    assert (len(store.get("t")), store.confirmed_phy_offset) == (1, 0)


def test_in_sync_mode_readers_also_wait_for_the_flush(held):
    store = held(flush="sync")
    store._hook("slow_ns", 300_000_000)
    end = store.put("t", b"x", wait_store_ok=False).end
    store.confirm(end)
    seen = len(store.get("t"))
    assert seen == 0 or store.flushed_phy_offset >= end
    assert store.wait_flushed(end)
    assert len(store.get("t")) == 1


def test_confirm_wakes_waiting_readers(held):
    """It wakes them at once, although the dispatcher sleeps for a second when there is nothing to dispatch."""
    store = held()
    with store.subscribe() as subscription:
        end = store.put("t", b"x").end
        got = []
        thread = threading.Thread(target=lambda: got.extend(body_of(store.get("t", wait=SOON))))
        thread.start()
        time.sleep(0.1)
        assert got == []
        assert not subscription.wait(0)
        begun = time.monotonic()
        store.confirm(end)
        assert subscription.wait(SOON)
        thread.join(SOON)
        assert got == [b"x"]
        assert time.monotonic() - begun < 0.5


def test_waiting_for_the_whole_log(held):
    store = held()
    end = store.put("t", b"x").end
    assert not store.wait_dispatched(0.05)
    threading.Timer(0.05, store.confirm, [end]).start()
    assert store.wait_dispatched(SOON)


def test_open_confirms_existing_messages(held):
    """A store that is closed with unconfirmed messages is intact: the next open() recovers nothing."""
    store = held()
    end = store.put("t", b"x").end
    store.close()
    store = held()
    assert (store.confirmed_phy_offset, body_of(store.get("t"))) == (end, [b"x"])
    store.put("t", b"y")
    assert body_of(store.get("t")) == [b"x"]


def test_closing_while_readers_are_held_leaves_no_abort_file(held, tmp_path):
    store = held()
    store.put("t", b"x")
    store.close()
    assert not (tmp_path / "abort").exists()


def test_rolling_over_files_while_held(held):
    store = held()
    ends = [store.put("t", bytes(20_000)).end for _ in range(8)]
    assert store.max_offset("t") == 0
    for n, end in enumerate(ends, 1):
        store.confirm(end)
        assert store.max_offset("t") == n


def test_threads(held):
    """While messages are put, confirmed and read, readers never see a message before it is confirmed."""
    store = held(mapped_file_size_commit_log=1 << 20)
    stop, wrong = threading.Event(), []

    def read():
        while not stop.is_set():
            seen = store.max_offset("t")
            confirmed = store.confirmed_phy_offset
            if seen * SIZE > confirmed:
                wrong.append((seen, confirmed))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        end = store.put("t", b"x").end
        if end // SIZE % 3 == 0:
            store.confirm(end)
    stop.set()
    for thread in threads:
        thread.join(SOON)
    assert not wrong
    assert store.max_offset("t") == 300
