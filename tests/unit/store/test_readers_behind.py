"""A reader that is far behind while another process writes."""

import struct

import pytest

import rocketc
from rocketc import StoreConfig
from rocketc.derived._consume_queues import ConsumeQueues
from rocketc.derived._key_index import KeyIndex
from rocketc.files._mapped_file_queue import MappedFileQueue
from rocketc.store._lookups import Lookups
from rocketc.store._queue_reader import QueueReader

SMALL = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 20,
    "max_index_num": 40,
}


def test_a_reader_whose_files_were_all_deleted_continues_with_the_others(tmp_path):
    """When the reader checks again, the files after the last one that it knows have been deleted, too."""
    with rocketc.open(tmp_path, **SMALL) as store:
        store.put_many("t", [b"old"] * 3, keys="k")
        assert store.wait_dispatched(10)
        with rocketc.open(tmp_path, read_only=True, **SMALL) as reader:
            assert [m.body for m in reader.get("t")] == [b"old"] * 3
            for n in range(300):
                store.put("t", b"%03d" % n * 100, keys=f"k{n}")
            assert store.wait_dispatched(10)
            assert store.delete_before(store.max_phy_offset - 4096).log_files > 10
            low, high = store.min_offset("t"), store.max_offset("t")
            assert 10 < low < high
            assert (reader.min_offset("t"), reader.max_offset("t")) == (low, high)
            assert reader.get("t", 0, 0).status.name == "OFFSET_TOO_SMALL"
            assert reader.get("t", 0, 0).next_offset == low
            assert [m.body for m in reader.get("t", 0, low)] == [m.body for m in store.get("t", 0, low)]
            assert [m.body for m in reader.query("t", f"k{299}")] == [b"299" * 100]
            assert reader.message(store.min_phy_offset).queue_offset == low


def test_a_queue_file_deleted_during_a_read_hides_no_later_message(tmp_path):
    """The reader still has an old start of the log, so the first unit of its queue is in a deleted log file."""
    with rocketc.open(tmp_path, **SMALL) as store:
        for n in range(200):
            store.put("t", b"%03d" % n + bytes(1000))
        assert store.wait_dispatched(10)
    (folder,) = (tmp_path / "consumequeue/t").iterdir()
    with rocketc.open(tmp_path, read_only=True, **SMALL) as reader:
        assert (reader.min_offset("t"), reader.max_offset("t")) == (0, 200)
        for number in range(11):  # log files of three messages each
            (tmp_path / f"commitlog/{number * 4096:020}").unlink()
        for number in range(4):  # queue files of ten units; the reader has read and mapped the first three
            (folder / f"{number * 200:020}").unlink()
        assert reader.min_offset("t") == 40
        assert [int(m.body[:3]) for m in reader.get("t", 0, 40, 200)] == list(range(40, 200))


def test_an_index_file_deleted_while_a_reader_opens(tmp_path):
    """The file is listed but cannot be opened. A dangling link is permanently such a file."""
    with rocketc.open(tmp_path, **SMALL) as store:
        store.put("t", b"x", keys="k")
    (tmp_path / "index/20200101000000000").symlink_to(tmp_path / "nowhere")
    with rocketc.open(tmp_path, read_only=True, **SMALL) as reader:
        assert [m.body for m in reader.query("t", "k")] == [b"x"]


class Log(MappedFileQueue):
    """A log of a reader that calls a function after each of its first refreshes."""

    then = ()

    def refresh(self):
        more = super().refresh()
        if self.then:
            act, *self.then = self.then
            act()
        return more


@pytest.mark.parametrize("rolls", [0, 1, 3])
def test_a_log_that_rolls_during_a_query(tmp_path, rolls):
    """The index file is shared, so its new units refer to records in log files that the reader does not have yet."""
    with rocketc.open(tmp_path, **SMALL | {"max_index_num": 1000}) as store:

        def roll():
            before = store.max_phy_offset
            while store.max_phy_offset // 4096 < before // 4096 + 2:
                store.put("t", b"%d" % len(put) + bytes(1000), keys="k")
                put.append(len(put))
            assert store.wait_dispatched(10)

        put = []
        roll()
        log = Log([tmp_path / "commitlog"], 4096, only_read=True)
        log.load()
        queues = ConsumeQueues(str(tmp_path), 200, 4600, read_only=True)
        queues.load()
        index = KeyIndex(str(tmp_path / "index"), 20, 1000, read_only=True)
        assert index.load() == []
        lookups = Lookups(QueueReader(log, queues, StoreConfig()), index)
        log.then = [roll] * rolls
        assert [m.queue_offset for m in lookups.query("t", "k", max_count=5)] == put[-5:]
        assert len(put) > 6 * rolls and log.then == []
        index.close()


def test_the_time_of_a_message_in_a_file_newer_than_the_readers_log(tmp_path):
    """A queue shows its new messages at once, so a record may be in a log file that the reader does not have yet."""
    with rocketc.open(tmp_path, **SMALL) as store:
        store.put("t", b"first")
        assert store.wait_dispatched(10)
        for ask in ("store_time", "offset_by_time"):
            log = MappedFileQueue([tmp_path / "commitlog"], 4096, only_read=True)
            log.load()
            queues = ConsumeQueues(str(tmp_path), 200, 4600, read_only=True)
            queues.load()
            lookups = Lookups(QueueReader(log, queues, StoreConfig()), None)
            for _ in range(10):
                last = store.put("t", bytes(1000))
            assert store.wait_dispatched(10)
            if ask == "store_time":
                assert lookups.store_time("t", 0, last.queue_offset) == last.store_timestamp
            else:
                assert lookups.offset_by_time("t", 0, last.store_timestamp, "upper") == last.queue_offset


def test_a_unit_without_a_record_is_reported_to_a_reader(tmp_path):
    with rocketc.open(tmp_path, **SMALL) as store:
        for n in range(10):
            store.put("t", bytes(1000), keys=f"k{n}")
    (path,) = (tmp_path / "index").iterdir()
    data = bytearray(path.read_bytes())
    struct.pack_into(">q", data, 40 + 4 * 20 + 20 * 10 + 4, 1 << 40)  # of the last unit
    path.write_bytes(data)
    with rocketc.open(tmp_path, read_only=True, **SMALL) as reader:
        with pytest.raises(rocketc.CorruptRecordError, match="`rocketc rebuild`") as told:
            reader.query("t", "k9")
        assert told.value.offset == 1 << 40
        assert len(reader.query("t", "k8")) == 1
