"""_raw_records: get_raw() from Python and from C, over logs and queues that the oracle wrote."""

import contextlib
import gc
import os
import random
from pathlib import Path

import pytest
from support import extension, oracle
from support.oracle_stores import FILE, bodies, lay_down, reader

import rocketc
from rocketc import ClosedError, CorruptUnitError, GetStatus, StoreFailedError, StoreIOError
from rocketc.store._results import TagFilter


@pytest.fixture
def read(tmp_path):
    """read(messages, **fields): a QueueReader of a log of the messages."""

    def make(messages, *, batch=(), **fields):
        lay_down(tmp_path, messages, batch=batch)
        return reader(tmp_path, **fields)

    return make


def change(path: Path, pos: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(pos)
        file.write(data)


def lay_out_two_topics(count):
    """Alternate messages of topic orders and of another topic: no two records of a queue are adjacent."""
    out = []
    for n in range(count):
        out.append({**bodies(1)[0], "body": b"%d" % n, "queue_offset": n})
        out.append({**bodies(1)[0], "topic": "other", "body": b"-", "queue_offset": n})
    return out


# what it says


def test_records_equal_those_that_get_copies(read):
    reader = read(bodies(40, properties={"TAGS": "A", "x": "y" * 9}))
    found, copied = reader.get_raw("orders", 1), reader.get("orders", 1)
    assert (found.status, found.next_offset, found.min_offset, found.max_offset) == (GetStatus.FOUND, 32, 0, 40)
    assert [bytes(record) for record in found] == [m.record for m in copied]
    assert len(found) == found.message_count == 32 and found.total_bytes == sum(found.sizes) == len(copied.buffer)
    assert (found.phy_offsets, found.queue_offsets) == (copied.phy_offsets, copied.queue_offsets)
    assert found.tags_codes == [oracle.tags_code("A")] * 32
    assert [bytes(view) for view in found.views] == [copied.buffer]
    assert all(view.readonly and view.format == "B" for view in [*found, *found.views])


def test_views_end_at_records_of_other_queues_and_at_the_end_of_a_file(read):
    apart = read(lay_out_two_topics(3)).get_raw("orders", 1)
    assert [bytes(view) for view in apart.views] == [bytes(record) for record in apart]
    assert len(apart.views) == 3


def test_one_view_for_each_file_of_the_log(read, tmp_path):
    found = read(bodies(600, properties={"x": "y" * 1000})).get_raw("orders", 1, 0, 1000)
    files = sorted((tmp_path / "commitlog").iterdir())
    assert len(files) > 8 and len(found.views) == len(files)
    assert b"".join(found.views) == b"".join(oracle_records(files))


def oracle_records(files):
    for path in files:
        data = path.read_bytes()
        yield b"".join(data[r["pos"] : r["pos"] + r["size"]] for r in records_of(data))


def records_of(data):
    pos = 0
    while len(data) - pos >= 8:
        size, magic = int.from_bytes(data[pos : pos + 4], "big"), data[pos + 4 : pos + 8]
        if magic == bytes.fromhex("cbd43194") or size == 0:
            return
        yield {"pos": pos, "size": size}
        pos += size


@pytest.mark.parametrize("offset", [-1, 0, 2, 3, 4, 1 << 62])
@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE"])
def test_status_and_offsets_are_those_of_get(read, offset, role):
    reader = read(bodies(3), broker_role=role)
    for where in (("orders", 1), ("none", 1), ("orders", 0), ("\udcff", 1)):
        found, copied = reader.get_raw(*where, offset), reader.get(*where, offset)
        for name in ("status", "next_offset", "min_offset", "max_offset", "phy_offsets", "suggest_pulling_from_slave"):
            assert getattr(found, name) == getattr(copied, name), name
        assert len(found) == len(copied) and bool(found) == bool(copied)
        assert found.views == [] or found.status is GetStatus.FOUND


def test_limits_are_those_of_get(read):
    reader = read(bodies(60, properties={"x": "y" * 30000}))
    size = reader.get_raw("orders", 1, 0, 1).total_bytes
    assert [len(reader.get_raw("orders", 1, max_bytes=n)) for n in (1, size, 2 * size - 1, 2 * size)] == [1, 1, 1, 2]
    assert len(reader.get_raw("orders", 1, broker_limits=True)) == 262144 // size
    assert [len(reader.get_raw("orders", 1, 0, n, broker_limits=True)) for n in (0, 1, 2)] == [1, 1, 2]
    reader._set_memory(0)
    found = reader.get_raw("orders", 1, broker_limits=True)
    assert len(found) == 65536 // size and found.suggest_pulling_from_slave


@pytest.mark.parametrize("count", [1, 31, 32, 33, 64, 500])
def test_the_number_of_records(read, count):
    found = read(bodies(500)).get_raw("orders", 1, 0, count)
    assert [rocketc.Message.of(bytes(record)).body for record in found] == [b"%d" % n for n in range(count)]


def test_tags_by_hash_and_by_text(read):
    reader = read([m | {"properties": {"TAGS": ["Aa", "BB", "C"][n % 3]}} for n, m in enumerate(bodies(9))])
    assert reader.get_raw("orders", 1, tags="Aa").queue_offsets == [0, 3, 6]
    found = reader.get_raw("orders", 1, tags="Aa", exact_tags=False)
    assert found.queue_offsets == [0, 1, 3, 4, 6, 7] and found.filter_message_count == 3
    assert set(found.tags_codes) == {oracle.tags_code("Aa")}
    none = reader.get_raw("orders", 1, tags="D")
    assert (none.status, none.next_offset, none.tags_codes) == (GetStatus.NO_MATCHED_MESSAGE, 9, [])


def test_tags_codes_of_delayed_messages_are_times(read):
    message = {"topic": "SCHEDULE_TOPIC_XXXX", "properties": {"TAGS": "A", "DELAY": "3"}}
    [code] = read([m | message for m in bodies(1)]).get_raw("SCHEDULE_TOPIC_XXXX", 1).tags_codes
    assert code == 1_700_000_000_000 + 10_000


def test_tags_codes_come_from_the_extension(tmp_path):
    with rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 16, enable_consume_queue_ext=True) as store:
        store.put_many("orders", [b"one", b"two"], tags="A")
        store.wait_dispatched()
        assert store.get_raw("orders").tags_codes == [oracle.tags_code("A")] * 2


def test_a_batch_is_one_record_of_several_messages(read):
    body = oracle.encode_batch([(n, b"%d" % n, {}) for n in range(3)])
    pairs = {"INNER_NUM": "3", "INNER_BASE": "0"}
    batch = {"topic": "b", "body": body, "queue_offset": 0, "sys_flag": 0xC0, "properties": pairs}
    found = read([batch, {**batch, "queue_offset": 3, "properties": pairs | {"INNER_BASE": "3"}}], batch=["b"]).get_raw(
        "b", 0, 4, 3
    )
    assert (found.queue_offsets, found.message_count, found.next_offset) == ([3], 3, 6)


def test_a_light_queue_has_records_of_another_topic(read):
    pairs = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "0"}
    found = read([{**bodies(8)[7], "properties": pairs}]).get_raw("%LMQ%a")
    assert found.queue_offsets == [0] and rocketc.Message.of(bytes(found[0])).queue_offset == 7


# the end of it


def test_release_waits_for_memoryviews(read):
    found = read(bodies(3)).get_raw("orders", 1)
    for take in (lambda: found[1], lambda: found.views[0], lambda: found.views[0][4:8], lambda: list(found)):
        kept = take()
        with pytest.raises(BufferError, match="still in use"):
            found.release()
        del kept
    found.release()
    found.release()
    for take in (lambda: found[1], lambda: found.views, lambda: list(found)):
        with pytest.raises(ClosedError, match="released"):
            take()
    assert len(found) == 3 and found.queue_offsets == [0, 1, 2]


def test_with_releases(read):
    with read(bodies(3)).get_raw("orders", 1) as found:
        run = found.views[0].obj
        assert bytes(found[2])[-3:]
    with pytest.raises(ClosedError, match="released"):
        memoryview(run)


def test_views_outlive_result_and_reader(read):
    [view] = read(bodies(3)).get_raw("orders", 1).views
    gc.collect()
    assert [m.body for m in rocketc.decode(view)] == [b"0", b"1", b"2"]


def test_a_held_file_is_not_deleted(tmp_path):
    with rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 16) as store:
        store.put_many("orders", [bytes(1000)] * 200)
        store.wait_dispatched()
        found = store.get_raw("orders", 0, 0, 1)
        [view] = found.views
        assert store.clean(expired_ms=-1).log_files == 0
        view.release()
        found.release()
        assert store.clean(expired_ms=-1).log_files > 0


def test_a_store_closes_while_records_are_held(tmp_path):
    with rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 16) as store:
        store.put("orders", b"hello")
        store.wait_dispatched()
        found = store.get_raw("orders")
    with pytest.raises(ClosedError):
        store.get_raw("orders")
    assert b"hello" in bytes(found[0])
    found.release()


# hostile input


HEADS = {"size": (0, 4), "magic": (4, 4), "queue id": (12, 4), "queue offset": (20, 8), "physical offset": (28, 8)}


@pytest.mark.parametrize("field", HEADS)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_record_that_differs_from_its_unit_is_damage(read, tmp_path, field, which):
    reader_ = read(bodies(3))
    pos, width = HEADS[field]
    at = reader_.get_raw("orders", 1).phy_offsets[which]
    change(tmp_path / "commitlog" / ("0" * 20), at + pos, b"\x01" * width)
    again = reader(tmp_path)
    if which > 0:
        found = again.get_raw("orders", 1)
        assert (len(found), found.next_offset) == (which, which)
        assert found.total_bytes == sum(found.sizes) and found.message_count == which
    with pytest.raises(CorruptUnitError, match=f"unit of queue offset {which} names"):
        again.get_raw("orders", 1, which)


@pytest.mark.parametrize("to", [b"\0" * 8, b"\x7f" * 8, b"\xff" * 8, (FILE - 50).to_bytes(8, "big")])
def test_a_unit_without_a_record_is_damage(read, tmp_path, to):
    read(bodies(3))
    path = tmp_path / "consumequeue/orders/1" / ("0" * 20)
    change(path, 20, to)
    again = reader(tmp_path)
    assert again.get_raw("orders", 1).queue_offsets == [0]
    with pytest.raises(CorruptUnitError, match=r"damage at byte 20: .*rocketc rebuild"):
        again.get_raw("orders", 1, 1)
    assert again.get_raw("orders", 1, 2).queue_offsets == [2]


def test_random_bytes_in_queue_and_log_are_damage_not_a_crash(read, tmp_path):
    read(bodies(90, properties={"x": "y" * 500}))
    files = [tmp_path / "consumequeue/orders/1" / ("0" * 20), *sorted((tmp_path / "commitlog").iterdir())]
    kept = [path.read_bytes() for path in files]
    chance = random.Random(4711)
    for _ in range(150):
        for path, data in zip(files, kept, strict=True):
            noise = bytearray(data)
            for _ in range(chance.choice([0, 1, 5])):
                at = chance.randrange(90 * 20 if path is files[0] else len(noise) - 8)
                noise[at : at + 8] = chance.choice([bytes(8), b"\xff" * 8, chance.randbytes(8), b"\x7f" * 8])
            path.write_bytes(noise)
        again, offset = reader(tmp_path), 0
        while offset < 90:
            try:
                found = again.get_raw("orders", 1, offset, chance.choice([1, 7, 90]))
            except (CorruptUnitError, StoreIOError):
                offset += 1
                continue
            assert b"".join(found) == b"".join(found.views) and len(b"".join(found)) == found.total_bytes
            assert found.next_offset > offset or not found
            offset = max(found.next_offset, offset + 1)


def test_a_log_file_that_becomes_shorter_is_an_error_not_a_crash(read, tmp_path):
    reader = read(bodies(100, properties={"x": "y" * 500}))
    assert len(reader.get_raw("orders", 1, 0, 100)) == 100
    os.truncate(tmp_path / "commitlog" / ("0" * 20), 8192)
    with pytest.raises(StoreIOError, match="became shorter"):
        reader.get_raw("orders", 1, 50, 50)


def test_wrong_arguments_are_refused(read):
    reader = read(bodies(1))
    for given, error in (
        ({"topic": b"orders"}, TypeError),
        ({"topic": None}, TypeError),
        ({"queue_id": 1 << 31}, ValueError),
        ({"offset": 1.0}, TypeError),
        ({"max_count": 0}, ValueError),
        ({"max_bytes": 0}, ValueError),
        ({"tags": 5}, TypeError),
    ):
        with pytest.raises(error):
            reader.get_raw(**{"topic": "orders", "queue_id": 1, **given})


# the same from C


@pytest.fixture(scope="module")
def native():
    return extension.load("queue_records")


def test_from_c(native, tmp_path):
    with rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 16) as store:
        store.put_many("orders", [bytes([n]) * 3000 for n in range(60)], tags="A")
        store.put_many("orders", [b"last"], tags="B")
        store.wait_dispatched()
        puller = native.Puller(store)
        found, seen = puller.pull(b"orders"), []
        copied = store.get_raw("orders")
        assert found == (GetStatus.FOUND, 32, 0, 61, 32, copied.total_bytes, 2)
        assert puller.runs() == [len(view) // copied.sizes[0] for view in copied.views]
        offset = 0
        while puller.pull(b"orders", 0, offset)[0] == GetStatus.FOUND:
            seen += puller.rows()
            offset += len(puller.rows())
        records = store.get_raw("orders", 0, 0, 100)
        said = records.phy_offsets, records.queue_offsets, records.tags_codes, [1] * 61, map(bytes, records)
        assert seen == list(zip(*said, strict=True))
        only = puller.pull(b"orders", max_count=100, tags=TagFilter("B"))
        assert (only[1], [row[1] for row in puller.rows()]) == (61, [60])
        assert puller.pull(b"none", 0, 5) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, 0, 0, 0)
    with pytest.raises(ClosedError):
        puller.pull(b"orders")


def test_from_c_each_file_is_held_once_and_released_at_once(native, tmp_path):
    with rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 16) as store:
        store.put_many("orders", [bytes(1000)] * 200)
        store.wait_dispatched()
        puller = native.Puller(store)
        assert puller.pull(b"orders", max_count=4)[-1] == 1
        assert store.clean(expired_ms=-1).log_files == 0
        puller.release()
        puller.release()
        assert store.clean(expired_ms=-1).log_files > 0
        assert puller.pull(b"orders")[0] == GetStatus.OFFSET_TOO_SMALL
        assert puller.rows() == []


@pytest.mark.some(2)
@pytest.mark.parametrize("count", [1, 32, 33, 1000])
def test_rows_move_to_allocated_memory(native, count):
    assert native.grown(count) == list(range(count))


def test_from_c_without_the_gil(native, read, tmp_path):
    puller = native.Puller(reader=read(bodies(3)))
    assert puller.pull(b"orders", 1)[:4] == (GetStatus.FOUND, 3, 0, 3)
    change(tmp_path / "consumequeue/orders/1" / ("0" * 20), 20, b"\x7f" * 8)
    puller = native.Puller(reader=reader(tmp_path))
    with pytest.raises(CorruptUnitError):
        puller.pull(b"orders", 1, 1)
    assert puller.rows() == []


def test_touch_of_a_file_that_was_cut_does_not_end_the_process(tmp_path):
    """Pages that the disk cannot read are met first by touch()."""
    with contextlib.suppress(StoreFailedError), rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 20) as store:
        for _ in range(8):
            store.put("orders", bytes(50_000))
        store.wait_dispatched()
        with store.get_raw("orders", 0, 0, 8) as found:
            os.truncate(min((tmp_path / "commitlog").iterdir()), 4096)
            found.touch()
        with pytest.raises(StoreIOError):
            store.get_raw("orders", 0, 5, 1)


# records that are not in memory


def evict(folder):
    """Remove log files from memory; return their sizes in memory by their numbers."""
    for path in sorted((folder / "commitlog").iterdir()):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


@pytest.fixture
def cold(tmp_path):
    """A store whose 12 messages of 100,000 bytes are in three log files, but not in memory."""
    with rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 19, background=False) as store:
        for _ in range(12):
            store.put("orders", bytes(100_000))
        store.wait_dispatched()
    with rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 19, background=False) as store:
        store.get("orders", 0, 0, 1)  # maps
        evict(tmp_path)
        if store.in_memory("orders", 0, 0):
            pytest.skip("this file system keeps the pages, or does not say which it has")
        yield store


def test_a_file_that_is_not_in_memory_counts_for_the_end_of_the_one_before(cold):
    with cold.get_raw("orders", 0, 0, 5) as first:
        first.touch()
    assert cold.in_memory("orders", 0, 1)
    assert not cold.in_memory("orders", 0, 4)  # the next messages are in the second file


@pytest.mark.parametrize(("ahead", "warm"), [(0, False), (1 << 18, False), (1 << 20, True)])
def test_touch_reads_ahead_into_the_next_file(cold, ahead, warm):
    with cold.get_raw("orders", 0, 3, 2) as found:
        found.touch(ahead)
    assert cold.in_memory("orders", 0, 4) == warm and cold.in_memory("orders", 0, 6) == warm


def test_touch_does_not_read_ahead_of_records_far_from_each_other(cold):
    with cold.get_raw("orders", 0, 0, 5) as found:
        found.touch(1 << 20)  # they lie within 500,000 bytes: more than a quarter
    assert not cold.in_memory("orders", 0, 6)
