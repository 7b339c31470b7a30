"""_queue_files: a queue that is not open is read and written with system calls, and its files do not differ."""

import os
import random
import shutil
from pathlib import Path

import pytest

import rocketc
from rocketc import GetStatus, StoreIOError

SMALL = {
    "mapped_file_size_commit_log": 64 << 10,
    "mapped_file_size_consume_queue": 20 * 20,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}


def maps_of(root: Path) -> int:
    """Return the number of maps of consume queue files in this process."""
    with open("/proc/self/maps") as file:
        return sum(f"{root}/consumequeue/" in line for line in file)


def files_of(root: Path) -> dict[str, bytes]:
    """Return the files of the consume queues by their path below the store."""
    folder = root / "consumequeue"
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def put_some(store: rocketc.MessageStore, seed: int, count: int, queues: int) -> None:
    chance = random.Random(seed)
    for n in range(count):
        queue = chance.randrange(queues)
        store.put(f"t{queue // 4}", b"%d" % n, queue_id=queue % 4, tags=chance.choice(["a", "b", None]), keys=f"k{n}")


def descriptors_of(path):
    """The number of open files of a store; other tests in this process may leave sockets for a moment."""
    return sum(os.path.realpath(f"/proc/self/fd/{one}").startswith(str(path)) for one in os.listdir("/proc/self/fd"))


def test_maps_and_descriptors_are_bounded(tmp_path):
    with rocketc.open(tmp_path, max_open_consume_queues=50, **SMALL) as store:
        before = descriptors_of(tmp_path)
        for n in range(600):
            store.put("many", b"m%d" % n, queue_id=n)
        store.wait_dispatched()
        assert 0 < maps_of(tmp_path) <= 50
        for n in range(600):
            assert store.get("many", n, 0).messages[0].body == b"m%d" % n
        assert maps_of(tmp_path) <= 50
        assert descriptors_of(tmp_path) <= before + 2
    assert maps_of(tmp_path) == 0


@pytest.mark.parametrize("most", [1, 3])
def test_idle_queues_have_the_same_files_as_open_ones(tmp_path, most):
    roots = {most: tmp_path / "idle", 8192: tmp_path / "open"}
    for number, root in roots.items():
        for seed in range(3):  # the later ones open what is there
            with rocketc.open(root, max_open_consume_queues=number, **SMALL) as store:
                put_some(store, seed, 700, 12)
    assert files_of(roots[most]) == files_of(roots[8192])
    assert len(files_of(roots[most])) > 100
    assert rocketc.verify(roots[most]).is_whole


def test_gets_and_lookups_of_idle_queues(tmp_path):
    with rocketc.open(tmp_path, max_open_consume_queues=1, **SMALL) as store:
        put_some(store, 1, 500, 8)
        store.wait_dispatched()
        bodies = {m.phy_offset: m.body for m in rocketc.scan(tmp_path)}
        found = {}
        for topic, queue in store.queues():
            offset = 0
            while (got := store.get(topic, queue, offset, 7)).status == GetStatus.FOUND:
                assert [m.queue_offset for m in got] == list(range(offset, got.next_offset))
                found |= {m.phy_offset: m.body for m in got}
                offset = got.next_offset
            assert store.get(topic, queue, offset).status == GetStatus.OFFSET_OVERFLOW_ONE
            first, last = store.get(topic, queue, 0, 1).messages[0], store.get(topic, queue, offset - 1).messages[0]
            assert store.offset_by_time(topic, queue, first.store_timestamp) <= last.queue_offset
        assert found == bodies


def test_a_deleted_topic_of_idle_queues(tmp_path):
    with rocketc.open(tmp_path, max_open_consume_queues=1, **SMALL) as store:
        put_some(store, 1, 300, 12)
        store.wait_dispatched()
        store.delete_topics(["t1"])
        assert not (tmp_path / "consumequeue" / "t1").exists()
        assert store.get("t1", 0, 0).status != GetStatus.FOUND
        store.put("t1", b"again", queue_id=0)
        store.wait_dispatched()
        assert [m.body for m in store.get("t1", 0, 0)] == [b"again"]
    assert rocketc.verify(tmp_path).is_whole


def test_expired_files_of_idle_queues_are_deleted(tmp_path):
    with rocketc.open(tmp_path, max_open_consume_queues=1, **SMALL) as store:
        put_some(store, 1, 4000, 4)
        store.wait_dispatched()
        before = len(files_of(tmp_path))
        assert store.clean(expired_ms=-1).log_files > 0
        assert len(files_of(tmp_path)) < before
        first = store.min_offset("t0", 0)
        assert first > 0
        assert store.get("t0", 0, first, 1).messages[0].queue_offset == first
    with rocketc.open(tmp_path, max_open_consume_queues=1, **SMALL) as store:
        assert store.min_offset("t0", 0) == first
    assert rocketc.verify(tmp_path).is_whole


def test_a_copy_of_a_running_store_is_recovered_with_idle_queues(tmp_path):
    running, copy = tmp_path / "running", tmp_path / "copy"
    with rocketc.open(running, max_open_consume_queues=2, flush="sync", **SMALL) as store:
        for seed in range(4):
            put_some(store, seed, 200, 10)
            store.wait_dispatched()
            shutil.copytree(running, copy)
            with rocketc.open(copy, max_open_consume_queues=2, **SMALL) as other:
                assert sum(other.max_offset(*place) for place in other.queues()) == 200 * (seed + 1)
                put_some(other, 99, 50, 10)
            assert rocketc.verify(copy).is_whole
            shutil.rmtree(copy)


def test_units_of_idle_queues_are_compared_with_the_log(tmp_path):
    with rocketc.open(tmp_path, max_open_consume_queues=1, **SMALL) as store:
        put_some(store, 1, 300, 8)
    good = files_of(tmp_path)
    for path in list(good)[::5]:
        with open(tmp_path / path, "r+b") as file:
            file.seek(20)
            file.write(b"\x01" * 30)
    with rocketc.open(tmp_path, max_open_consume_queues=1, **SMALL):
        pass
    assert files_of(tmp_path) == good


def test_a_file_of_an_idle_queue_that_is_cut(tmp_path):
    with rocketc.open(tmp_path, max_open_consume_queues=1, **SMALL) as store:
        put_some(store, 1, 300, 8)
        store.wait_dispatched()
        path = tmp_path / "consumequeue" / "t1" / "2" / f"{0:020d}"
        os.truncate(path, 30)
        with pytest.raises(StoreIOError, match="became shorter"):
            for _ in range(20):  # open or idle
                store.get("t1", 2, 5)
                store.get("t0", 0, 0)


def test_a_reader_beside_a_writer_with_idle_queues(tmp_path):
    with rocketc.open(tmp_path, max_open_consume_queues=2, **SMALL) as writer:
        put_some(writer, 1, 100, 9)
        writer.wait_dispatched()
        with rocketc.open(tmp_path, read_only=True, max_open_consume_queues=2) as reader:
            for seed in range(2, 6):
                put_some(writer, seed, 200, 9)
                writer.wait_dispatched()
                for place in writer.queues():
                    assert reader.max_offset(*place) == writer.max_offset(*place)
                    last = writer.max_offset(*place) - 1
                    assert reader.get(*place, last).messages[0].body == writer.get(*place, last).messages[0].body
            assert maps_of(tmp_path) < 20  # of more than 400 files


def test_a_store_without_open_queues_is_refused(tmp_path):
    with pytest.raises(ValueError, match="max_open_consume_queues is 0"):
        rocketc.open(tmp_path / "s", max_open_consume_queues=0)
