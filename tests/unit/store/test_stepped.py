"""A store without threads: step() does their work by the clock, and the same calls write the same bytes."""

import asyncio
import os
import threading

import pytest
from unit.store.stepped import FILE, HOUR, MODES, SMALL, T0, Times, files_of, open_stepped, put_some, threads

import rocketc
from rocketc.errors import ClosedError, StoreFailedError


@pytest.fixture
def times():
    return Times()


@pytest.mark.parametrize("mode", MODES)
def test_no_thread_is_started_while_it_is_open(tmp_path, times, mode):
    before = threads()
    with open_stepped(tmp_path, times, clean_resource_interval=1000, **MODES[mode]) as store:
        assert threads() == before
        put_some(store, times)
        assert threads() == before
        store.put_async("orders", b"called back").add_done_callback(lambda future: None)
        store.step()
        times.now += 24 * HOUR
        store.step()
        store.delete_topics("orders")
        store.clean(expired_ms=-1)
        assert threads() == before
    assert threads() == before


def test_open_after_a_crash_starts_no_thread(tmp_path, times):
    with open_stepped(tmp_path, times) as store:
        store.put_many("orders", [b"hello"] * 5000, keys="k")
    for folder in ("consumequeue", "index"):
        for where, _, names in os.walk(tmp_path / folder):
            for name in names:
                os.unlink(os.path.join(where, name))
    (tmp_path / "abort").touch()
    seen = set()
    watching = threading.Event()

    def watch():
        while not watching.is_set():
            seen.add(threads())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with open_stepped(tmp_path, times) as store:
            assert store.max_offset("orders") == 5000
    finally:
        watching.set()
        watcher.join()
    assert len(seen) == 1


@pytest.mark.some(2)
@pytest.mark.parametrize("mode", [pytest.param(n, marks=pytest.mark.long) if n == "ext" else n for n in MODES])
def test_the_same_calls_write_the_same_bytes(tmp_path, mode):
    found = []
    for name in ("one", "two"):
        times = Times()
        with open_stepped(tmp_path / name, times, **MODES[mode]) as store:
            put_some(store, times)
            store.delete_topics("audit")
            found.append(files_of(tmp_path / name))
            found[-1].pop("abort")  # it has the process id
        found[-1] |= {f"closed/{path}": data for path, data in files_of(tmp_path / name).items()}
        with open_stepped(tmp_path / name, times, **MODES[mode]) as store:
            put_some(store, times)
        found[-1] |= {f"again/{path}": data for path, data in files_of(tmp_path / name).items()}
    assert found[0].keys() == found[1].keys()
    assert found[0] == found[1]
    assert sum("commitlog" in path for path in found[0]) > 6 and sum("index" in path for path in found[0]) > 6
    assert "closed/config/topics.json" in found[0]


@pytest.mark.parametrize("mode", MODES)
def test_files_are_those_of_a_store_with_threads(tmp_path, mode):
    fields = {**SMALL, **MODES[mode], "commit_interval_commit_log": 1, "commit_commit_log_thorough_interval": 1}
    times = Times()
    with open_stepped(tmp_path / "stepped", times, **fields) as store:
        put_some(DispatchedStore(store), times)
    times = Times()
    with rocketc.open(tmp_path / "threads", **fields) as store:
        put_some(DispatchedStore(store, times), times, steps=False)
    one, other = files_of(tmp_path / "stepped"), files_of(tmp_path / "threads")
    for name in ("config/topics.json", "config/topics.json.bak"):  # dataVersion has the time of day there
        one.pop(name, None), other.pop(name, None)
    assert one.keys() == other.keys()
    assert one == other


class DispatchedStore:
    """A store that dispatches each put at once, so that index files have the time of the put. The time is that of the
    clock of a stepped store, or of `times` for a store with threads."""

    def __init__(self, store, times=None):
        self._store = store
        self._times = times

    def __getattr__(self, name):
        called = getattr(self._store, name)
        if not name.startswith("put"):
            return called

        def put(*args, **kwargs):
            if self._times is not None:
                self._store._hook("clock", self._times.now)
            result = called(*args, **kwargs)
            self._store.wait_dispatched()
            return result

        return put


def test_a_put_and_a_step_read_the_clock_once(tmp_path, times):
    with open_stepped(tmp_path, times) as store:
        assert times.readings == 1
        store.put("orders", b"hello")
        store.put_batch("orders", [(0, b"one", None), (0, b"two", None)])
        assert times.readings == 3
        store.step()
        assert times.readings == 4
        store.put_many("orders", [b"x"] * 1025)
        assert times.readings == 6  # once per 1,024 messages
        times.readings = 4
        store.get("orders"), store.query("orders", "k"), store.max_offset("orders")
        assert times.readings == 4
    assert times.readings == 4


def test_store_timestamps_are_those_of_the_clock_even_when_it_goes_back(tmp_path, times):
    with open_stepped(tmp_path, times) as store:
        seen = []
        for times.now in (5, T0, T0 - 10_000, 0):
            seen.append(store.put("orders", b"hello").store_timestamp)
            store.step()
        assert seen == [5, T0, T0 - 10_000, 0]
        assert [message.store_timestamp for message in store.get("orders")] == seen


def test_the_log_is_flushed_by_the_clock(tmp_path, times):
    with open_stepped(tmp_path, times) as store:
        end = store.put_many("orders", [b"x" * 50] * 40).end  # less than four pages
        times.now += 499
        store.step()
        times.now += 1
        store.step()
        assert store.flushed_phy_offset == 0  # four pages are the minimum
        times.now += 9_499
        store.step()
        assert store.flushed_phy_offset == 0
        times.now += 1
        assert store.step() is True
        assert store.flushed_phy_offset == end
        end = store.put_many("orders", [b"x" * 5000] * 4).end
        times.now += 498  # the last interval began 1 ms before
        store.step()
        assert store.flushed_phy_offset < end
        times.now += 1
        store.step()
        assert store.flushed_phy_offset == end
        assert store.step() is False


def test_a_clock_that_goes_back_restarts_the_intervals(tmp_path, times):
    with open_stepped(tmp_path, times) as store:
        end = store.put_many("orders", [b"x" * 5000] * 4).end
        times.now -= 10 * HOUR
        store.step()
        times.now += 499
        store.step()
        assert store.flushed_phy_offset == 0
        times.now += 1
        store.step()
        assert store.flushed_phy_offset == end


def test_a_put_that_wakes_the_flush_is_flushed_by_the_next_step(tmp_path, times):
    with open_stepped(
        tmp_path, times, wake_flush_when_put_message=True, flush_commit_log_timed=False, flush_commit_log_least_pages=0
    ) as store:
        end = store.put("orders", b"hello").end
        store.step()
        assert store.flushed_phy_offset == end


@pytest.mark.parametrize("mode", ["async", "pool"])
def test_a_full_file_is_flushed_however_few_of_its_pages_are_left(tmp_path, times, mode):
    """isAbleToFlush. The rule of the least pages is for the file that is written to."""
    with open_stepped(
        tmp_path, times, **MODES[mode], flush_commit_log_least_pages=3, flush_commit_log_thorough_interval=HOUR
    ) as store:
        first = store.put("orders", bytes(13_000)).end
        times.now += 500
        store.step()
        assert store.flushed_phy_offset == first
        store.put("orders", bytes(1000))  # in the last page of the file
        times.now += 500
        store.step()
        assert store.flushed_phy_offset == first
        end = store.put("orders", bytes(3000)).end  # begins the next file
        assert end - first < 3 * 4096
        times.now += 500
        store.step()
        assert store.flushed_phy_offset == end
        store.put("orders", bytes(5000))
        times.now += 500
        store.step()
        assert store.flushed_phy_offset == end
        assert store.stats()["flushes"] == 2


def test_a_file_that_ends_with_its_last_record_is_full(tmp_path, times):
    """... also before the next file begins."""
    with open_stepped(
        tmp_path, times, flush_commit_log_least_pages=100, flush_commit_log_thorough_interval=HOUR
    ) as store:
        store.put("orders", bytes(10_000))
        times.now += 500
        store.step()
        assert store.flushed_phy_offset == 0
        with open_stepped(tmp_path / "other", times) as other:
            other.put("orders", bytes(10_000))
            other.put("orders", bytes(10_000))
            block = other.read_raw(store.max_phy_offset)  # a blank record
        store.append_raw(store.max_phy_offset, block)
        assert store.max_phy_offset == FILE
        times.now += 500
        store.step()
        assert store.flushed_phy_offset == FILE


def test_the_pool_is_committed_by_the_clock(tmp_path, times):
    with open_stepped(
        tmp_path, times, wake_commit_when_put_message=False, **MODES["pool"], flush_interval_commit_log=300
    ) as store:
        store.put("orders", b"hello")
        times.now += 199
        store.step()
        assert store.stats()["commits"] == 0 and store.dispatched_phy_offset == 0
        times.now += 1
        assert store.step() is True
        assert store.stats()["commits"] == 1
        assert store.dispatched_phy_offset > 0


def test_queues_and_checkpoint_are_flushed_by_the_clock(tmp_path, times):
    def queued():
        data = (tmp_path / "checkpoint").read_bytes()
        return int.from_bytes(data[8:16], "big")

    with open_stepped(tmp_path, times) as store:
        store.put("orders", b"hello", keys="k")
        store.flush()
        times.now += 59_999
        store.step()
        assert queued() == 0
        times.now += 1
        store.step()
        assert queued() == T0


def test_the_next_file_is_created_by_a_step_or_by_the_put(tmp_path, times):
    def names():
        return sorted(os.listdir(tmp_path / "commitlog"))

    with open_stepped(tmp_path, times) as store:
        assert names() == []
        store.put("orders", bytes(10_000))
        assert names() == [f"{0:020}"]
        store.put("orders", bytes(10_000))
        assert names() == [f"{0:020}", f"{FILE:020}"]
        store.step()
        assert names() == [f"{0:020}", f"{FILE:020}", f"{2 * FILE:020}"]
        assert store.step() is False
        assert store.stats()["rolls"] == 2
    assert names() == [f"{0:020}", f"{FILE:020}"]


def test_a_file_that_cannot_be_created_fails_the_put_and_is_tried_again(tmp_path, times):
    with open_stepped(tmp_path, times) as store:
        store.put("orders", bytes(10_000))
        (tmp_path / "commitlog" / f"{FILE:020}").mkdir()
        with pytest.raises(rocketc.StoreIOError):
            store.put("orders", bytes(10_000))
        store.step()
        (tmp_path / "commitlog" / f"{FILE:020}").rmdir()
        assert store.put("orders", bytes(10_000)).phy_offset == FILE


def test_old_files_are_deleted_by_the_clock(tmp_path, times):
    with open_stepped(
        tmp_path, times, clean_resource_interval=10_000, delete_when=";".join(map(str, range(24))), file_reserved_time=2
    ) as store:
        for _ in range(10):
            store.put("orders", bytes(10_000))
            times.now += HOUR // 2
            store.step()
        # One message every 30 minutes, each in its own file: the files younger than two hours stay.
        assert store.min_offset("orders") == 7
        times.now += 2 * HOUR
        store.step()
        assert store.min_offset("orders") == 9  # never the last file


def test_cleaning_runs_after_a_minute_and_then_by_the_interval(tmp_path, times):
    with open_stepped(
        tmp_path, times, clean_resource_interval=10_000, delete_when=";".join(map(str, range(24))), file_reserved_time=0
    ) as store:
        store.put_many("orders", [bytes(10_000)] * 3)
        times.now += 59_999
        store.step()
        assert store.min_phy_offset == 0
        times.now += 1
        assert store.step() is True
        assert store.min_phy_offset == 2 * FILE
        store.put_many("orders", [bytes(10_000)] * 3)
        times.now += 9_999
        store.step()
        assert store.min_phy_offset == 2 * FILE
        times.now += 1
        store.step()
        assert store.min_phy_offset == 5 * FILE


def test_clean_uses_the_clock(tmp_path, times):
    with open_stepped(tmp_path, times) as store:
        store.put_many("orders", [bytes(10_000)] * 3)
        times.now += 71 * HOUR
        assert store.clean().log_files == 0
        times.now += HOUR
        report = store.clean()
        assert report.now == times.now and report.log_files == 2


def test_files_have_the_time_of_their_last_record_also_after_a_reopening(tmp_path, times):
    with open_stepped(tmp_path, times) as store:
        for _ in range(3):
            times.now += 1000
            store.put("orders", bytes(10_000))
    found = [os.stat(path).st_mtime_ns for path in sorted((tmp_path / "commitlog").iterdir())]
    assert found == [(T0 + 1000 * n) * 1_000_000 for n in (1, 2, 3)]
    times.now += 73 * HOUR
    with open_stepped(tmp_path, times) as store:
        assert store.clean().log_files == 2


def test_topics_are_written_every_second_of_the_clock(tmp_path, times):
    with open_stepped(tmp_path, times) as store:
        store.create_topic("orders")
        store.put("audit", b"hello")
        path = tmp_path / "config" / "topics.json"
        store.step()
        assert "audit" not in path.read_text()
        times.now += 1000
        store.step()
        assert "audit" in path.read_text()
        assert str(T0) in path.read_text()


def test_maintenance_continues_after_the_clock_goes_back(tmp_path, times):
    with open_stepped(
        tmp_path, times, clean_resource_interval=10_000, delete_when=";".join(map(str, range(24))), file_reserved_time=0
    ) as store:
        store.create_topic("orders")
        times.now -= 10 * HOUR
        store.step()
        store.put("audit", bytes(10_000))
        store.put("audit", bytes(10_000))
        times.now += 60_000
        store.step()
        assert "audit" in (tmp_path / "config" / "topics.json").read_text()
        assert store.min_phy_offset == FILE


def test_a_queue_needs_threads(tmp_path):
    with pytest.raises(ValueError, match="background is False"):
        rocketc.Queue(tmp_path / "queue", background=False)


def test_a_sync_put_flushes_itself_and_the_others_complete_at_the_next_step(tmp_path, times):
    with open_stepped(tmp_path, times, flush="sync") as store:
        first = store.put("orders", b"one")
        assert store.flushed_phy_offset == first.end
        future = store.put_async("orders", b"two")
        assert not future.done()
        assert [message.body for message in store.get("orders")] == [b"one"]
        assert store.step() is True
        assert future.done() and future.result().status.name == "PUT_OK"
        assert [message.body for message in store.get("orders")] == [b"one", b"two"]


def test_the_result_of_a_future_flushes(tmp_path, times):
    with open_stepped(tmp_path, times, flush="sync") as store:
        future = store.put_async("orders", b"one")
        assert future.result().status.name == "PUT_OK"
        assert store.flushed_phy_offset == future.result().end


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_callbacks_of_futures_run_in_the_step_in_order(tmp_path, times, flush):
    called = []
    with open_stepped(tmp_path, times, flush=flush) as store:
        for n in range(3):
            store.put_async("orders", b"hello").add_done_callback(lambda future, n=n: called.append(n))
        assert called == ([] if flush == "sync" else [0, 1, 2])
        store.step()
        assert called == [0, 1, 2]
        store.put_async("orders", b"hello").add_done_callback(lambda future: called.append("closed"))
    assert called == [0, 1, 2, "closed"]


def test_aput_completes_after_the_next_step(tmp_path, times):
    async def main():
        with open_stepped(tmp_path, times, flush="sync") as store:
            waiting = [asyncio.ensure_future(store.aput("orders", b"hello")) for _ in range(3)]
            await asyncio.sleep(0.02)
            assert not any(one.done() for one in waiting)
            store.step()
            assert [r.queue_offset for r in await asyncio.gather(*waiting)] == [0, 1, 2]

    asyncio.run(main())


@pytest.mark.parametrize("mode", MODES)
def test_wait_dispatched_dispatches(tmp_path, times, mode):
    with open_stepped(tmp_path, times, **MODES[mode]) as store:
        store.put_async("orders", b"hello")
        assert store.wait_dispatched() is True
        assert store.dispatched_phy_offset == store.max_phy_offset


def test_subscribers_are_notified_in_the_step(tmp_path, times):
    with open_stepped(tmp_path, times) as store, store.subscribe() as subscription:
        assert subscription.wait(0) is False
        store.put("orders", b"hello")
        store.step()
        assert subscription.wait(0) is True
        assert [change.topic for change in subscription.changes()] == ["orders"]
        for timeout in (None, 1):
            with pytest.raises(ValueError, match=r"call step\(\)"):
                subscription.wait(timeout)


def test_a_get_that_waits_is_refused(tmp_path, times):
    with open_stepped(tmp_path, times) as store:
        with pytest.raises(ValueError, match=r"wait=5: .* call step\(\)"):
            store.get("orders", wait=5)
        assert len(store.get("orders", wait=0)) == len(store.get("orders", wait=None)) == 0


def test_a_clock_needs_a_store_without_threads(tmp_path, times):
    with pytest.raises(ValueError, match="background=False"):
        rocketc.open(tmp_path / "store", clock=times)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("said", [-1, 1.5, None, True, "now", 1 << 43])
def test_a_clock_that_returns_an_invalid_time_is_refused(tmp_path, times, said):
    with open_stepped(tmp_path / "store", times) as store:
        times.now = said
        for call in (lambda: store.put("orders", b"hello"), store.step, lambda: store.create_topic("t"), store.clean):
            with pytest.raises(ValueError, match="clock"):
                call()
        times.now = T0
        assert store.put("orders", b"hello").phy_offset == 0
    times.now = said
    with pytest.raises(ValueError, match="clock"):
        open_stepped(tmp_path / "other", times)


def test_an_exception_of_the_clock_is_raised_and_nothing_is_done(tmp_path, times):
    with open_stepped(tmp_path, times) as store:

        def fail():
            raise KeyError("clock")

        times_call, Times.__call__ = Times.__call__, lambda self: fail()
        try:
            with pytest.raises(KeyError):
                store.put("orders", b"hello")
            with pytest.raises(KeyError):
                store.step()
        finally:
            Times.__call__ = times_call
        assert store.put("orders", b"hello").phy_offset == 0
        store.step()


def test_a_step_inside_a_step_does_nothing(tmp_path):
    inner = []

    def clock():
        if store is not None and len(inner) < 3:
            inner.append(store.step())
        return T0

    store = None
    store = rocketc.open(tmp_path, clock=clock, background=False, **SMALL)
    with store:
        store.step()
    assert inner[0] is False


def test_without_a_clock_the_time_of_day_is_used(tmp_path):
    with rocketc.open(tmp_path, background=False, **SMALL) as store:
        assert not store.background
        assert abs(store.put("orders", b"hello").store_timestamp - rocketc.tables.config_manager.now_ms()) < 60_000


def test_a_step_of_a_store_with_threads_is_refused(tmp_path):
    with rocketc.open(tmp_path, **SMALL) as store:
        assert store.background
        with pytest.raises(RuntimeError, match="background=False"):
            store.step()


def test_a_step_of_a_closed_store_is_refused(tmp_path, times):
    store = open_stepped(tmp_path, times)
    store.close()
    with pytest.raises(ClosedError, match="is closed"):
        store.step()


def test_a_step_of_a_read_only_store_is_refused(tmp_path, times):
    with open_stepped(tmp_path, times) as store:
        store.put("orders", b"hello")
    with open_stepped(tmp_path, times, read_only=True) as store:
        assert len(store.get("orders")) == 1
        with pytest.raises(ClosedError, match="reading only"):
            store.step()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_step_in_a_forked_child_is_refused(tmp_path, times):
    with open_stepped(tmp_path, times) as store:
        store.put("orders", b"hello")
        pid = os.fork()
        if pid == 0:
            try:
                store.step()
            except ClosedError as error:
                os._exit(0 if "fork" in str(error) else 2)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        times.now += 10_000
        store.step()
        assert store.flushed_phy_offset == store.max_phy_offset


def test_a_step_of_a_failed_store_is_refused(tmp_path, times):
    store = open_stepped(tmp_path, times)
    store.put("orders", b"hello")
    store._hook("fail", 5)
    with pytest.raises(StoreFailedError):
        store.step()
    with pytest.raises(StoreFailedError):
        store.close()
