"""The assertions of RocketMQ's own unit tests about queues, index, reads and dispatch, checked for rocketc.

They are section 12 of the specification; the sections below have the names of RocketMQ's test classes.
"""

import contextlib
import time

import pytest
from support import oracle
from support.derived import PRE_BLANK, UNIT, ext_files, files_of, same_files, without_names

import rocketc

V6 = ("1050::5:600:300c:326b", 123)
SMALL = {
    "mapped_file_size_commit_log": 8 << 10,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}
TEN_A_FILE = {**SMALL, "mapped_file_size_commit_log": 1008}  # records of 100 bytes
NOW = 1_700_000_000_000


def hundred(store, topic="T", **fields):
    """Put a record of 100 bytes."""
    return store.put(topic, bytes(9 - len(topic)), **fields)


def files(store, folder):
    return sorted(path for path in files_of(store_root(store), folder))


def store_root(store):
    from pathlib import Path

    return Path(store.path)


def bodies(got):
    return [message.body for message in got]


# ---------------------------------------------------------------- BatchPutMessageTest


@pytest.mark.parametrize("hosts", [{}, {"born_host": V6, "store_host": V6}], ids=["v4", "v6"])
def test_messages_of_a_batch_are_consecutive_and_found(open_store, hosts):
    store = open_store(**SMALL, flush="sync")
    entries = [(0, b"body %d" % n, {"KEYS": f"k{n}"}) for n in range(10)]
    result = store.put_batch("T", entries, **hosts)
    assert store.wait_dispatched(3)
    at = result.phy_offset
    for n, (_, body, _) in enumerate(entries):
        message = store.message(at)
        assert message.body == body
        log = oracle.records(oracle.walk_log(oracle.read_log(store_root(store) / "commitlog")))
        (record,) = [record for record in log if record["start"] == at]
        assert message.store_size == 91 + 1 + len(body) + record["propertiesLen"] + (24 if hosts else 0)
        (found,) = store.get("T", 0, n, 1)
        assert found.phy_offset == at
        at += message.store_size


# ---------------------------------------------------------------- ConsumeQueueTest


def test_the_first_record_dispatched_again_changes_nothing(open_store, tmp_path):
    store = open_store(**SMALL)
    for n in range(2000):
        store.put("T", b"%d" % n, keys=f"k{n}")
    store.close()
    before = without_names(files_of(tmp_path, "consumequeue", "index"))
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").unlink()  # so that RocketMQ would begin with the first record
    open_store(**SMALL).close()
    same_files(without_names(files_of(tmp_path, "consumequeue", "index")), before)


def test_light_queues_exist_after_dispatch(open_store):
    store = open_store(**SMALL, enable_lmq=True, enable_multi_dispatch=True)
    for n in range(3):
        where = {"INNER_MULTI_DISPATCH": "%LMQ%123,%LMQ%456", "INNER_MULTI_QUEUE_OFFSET": f"{n},{n}"}
        store.put("T", b"%d" % n, properties=where)
    assert store.wait_dispatched(3)
    for name in ("%LMQ%123", "%LMQ%456", "T"):
        assert (store.min_offset(name), store.max_offset(name)) == (0, 3)
        assert bodies(store.get(name)) == [b"0", b"1", b"2"]


def test_a_light_queue_that_cannot_be_created_gets_its_message_later(open_store, tmp_path):
    """A record is dispatched when all its queues have it, and no queue has it twice."""
    store = open_store(**SMALL, enable_lmq=True, enable_multi_dispatch=True)
    store.put("T", b"0")
    assert store.wait_dispatched(3)
    (tmp_path / "consumequeue" / "%LMQ%b").write_bytes(b"in the way")
    where = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b,%LMQ%c", "INNER_MULTI_QUEUE_OFFSET": "0,0,0"}
    store.put("T", b"1", properties=where, keys="k")
    with pytest.raises(rocketc.StoreIOError, match="LMQ%b"):
        store.wait_dispatched(3)
    (tmp_path / "consumequeue" / "%LMQ%b").unlink()
    store.put("T", b"2")
    for _ in range(20):  # the store retries twice a second
        with contextlib.suppress(rocketc.StoreIOError):
            assert store.wait_dispatched(3)
            break
        time.sleep(0.1)
    assert [bodies(store.get(name)) for name in ("%LMQ%a", "%LMQ%b", "%LMQ%c")] == [[b"1"]] * 3
    assert bodies(store.get("T")) == [b"0", b"1", b"2"]
    assert bodies(store.query("T", "k")) == [b"1"]
    store.close()
    (index,) = files_of(tmp_path, "index").values()
    assert int.from_bytes(index[36:40], "big") == 2, "one key, and the unused first unit"


def test_every_unit_points_to_its_extension(open_store, tmp_path):
    fields = {**SMALL, "enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 1000}
    store = open_store(**fields)
    for n in range(200):
        hosts = {"born_host": V6, "store_host": V6} if n % 2 else {}
        store.put("T", b"%d" % n, tags="TagA", **hosts)
    store.close()
    records = oracle.records(oracle.walk_log(oracle.read_log(tmp_path / "commitlog")))
    queues, extensions = ext_files(records, 200, 1000)
    assert files_of(tmp_path, "consumequeue") == queues
    assert files_of(tmp_path, "consumequeue_ext") == extensions
    store = open_store(**fields)
    assert len(store.get("T", tags="TagA", max_count=32)) == 32
    assert len(store.get("T", tags="TagB", max_count=32)) == 0


def delete_log_files(root, count):
    for path in sorted((root / "commitlog").iterdir())[:count]:
        path.unlink()


def test_minimum_offset_stays_if_nothing_is_deleted(open_store):
    store = open_store(**TEN_A_FILE)
    for _ in range(50):
        hundred(store)
    store.close()
    assert open_store(**TEN_A_FILE).min_offset("T") == 0


def test_minimum_offset_follows_the_log(open_store, tmp_path):
    store = open_store(**TEN_A_FILE)
    for _ in range(55):
        hundred(store)
    store.close()
    delete_log_files(tmp_path, 2)
    for _ in range(2):
        store = open_store(**TEN_A_FILE)
        assert (store.min_offset("T"), store.max_offset("T")) == (20, 55)
        assert store.get("T", 0, 0).status.name == "OFFSET_TOO_SMALL"
        assert store.get("T", 0, 19).next_offset == 20
        assert store.get("T", 0, 20, 1).phy_offsets == [2 * 1008]
        store.close()


def test_minimum_offset_of_a_queue_without_messages_is_its_end(open_store, tmp_path):
    store = open_store(**TEN_A_FILE)
    for _ in range(10):
        hundred(store, "Old")
    for _ in range(25):
        hundred(store)
    store.close()
    delete_log_files(tmp_path, 1)
    for _ in range(2):
        store = open_store(**TEN_A_FILE)
        assert (store.min_offset("Old"), store.max_offset("Old")) == (10, 10)
        assert store.get("Old", 0, 10).status.name == "OFFSET_OVERFLOW_ONE"
        assert (store.get("Old", 0, 3).status.name, store.get("Old", 0, 3).next_offset) == ("OFFSET_TOO_SMALL", 10)
        store.close()
    store = open_store(**TEN_A_FILE)
    assert hundred(store, "Old").queue_offset == 10


# ---------------------------------------------------------------- queue/ConsumeQueueTest


def test_a_new_queue_is_empty(open_store):
    store = open_store(**SMALL)
    assert (store.min_offset("T"), store.max_offset("T")) == (0, 0)
    assert store.get("T").status.name == "NO_MESSAGE_IN_QUEUE"


def test_a_queue_is_read_from_any_of_its_units_to_the_end(open_store):
    store = open_store(**SMALL)
    for n in range(100):
        store.put("T", b"%d" % n, tags=f"Tag{n}")
    assert store.wait_dispatched(3)
    assert (store.min_offset("T"), store.max_offset("T")) == (0, 100)
    for first in range(100):
        at, found = first, []
        while at < 100:
            got = store.get("T", 0, at)
            found += got
            at = got.next_offset
        assert [(m.queue_offset, m.body) for m in found] == [(n, b"%d" % n) for n in range(first, 100)]
    assert not store.get("T", 0, -1)
    assert not store.get("T", 0, 100)


# ---------------------------------------------------------------- DefaultMessageStoreTest


def test_a_store_is_opened_once(open_store):
    open_store(**SMALL)
    with pytest.raises(rocketc.StoreLockedError):
        open_store(**SMALL)


def test_write_and_read(open_store):
    store = open_store(**SMALL, flush="sync")
    for n in range(20):
        hosts = {"born_host": V6, "store_host": V6} if n >= 10 else {}
        store.put("T", b"%d" % n, **hosts)
    assert store.wait_dispatched(3)
    assert bodies(store.get("T")) == [b"%d" % n for n in range(20)]
    store.put("T", b"more")
    assert store.wait_dispatched(3)
    assert bodies(store.get("T", 0, 20)) == [b"more"]


def test_get_the_first_and_last_record_and_the_end(open_store):
    store = open_store(**SMALL)
    first, *_, last = [store.put("T", b"%d" % n) for n in range(10)]
    assert store.message(first.phy_offset).body == b"0"
    assert store.message(last.phy_offset).body == b"9"
    assert store.message(last.end) is None


@pytest.fixture
def timed(open_store):
    """Ten messages, 10 ms apart."""
    store = open_store(**SMALL)
    for n in range(10):
        store._set_clock(NOW + 10 * n)
        store.put("T", b"%d" % n)
    assert store.wait_dispatched(3)
    return store


@pytest.mark.parametrize("earlier", [0, 2])
def test_offset_by_time_is_the_first_message_not_before_it(timed, earlier):
    for n in range(10):
        assert timed.offset_by_time("T", 0, NOW + 10 * n - earlier) == n


def test_offset_by_a_time_before_all_is_the_first_message(timed):
    for n in range(10):
        assert timed.offset_by_time("T", 0, NOW + 10 * n - 20_000) == 0


def test_offset_by_a_time_after_all_is_the_next_message(timed):
    """ConsumeQueueStoreTest: 100 of 100."""
    assert timed.offset_by_time("T", 0, NOW + 1_000_000) == 10


def test_times_in_an_empty_queue(open_store):
    store = open_store(**SMALL)
    assert store.offset_by_time("T", 0, NOW) == 0
    assert store.store_time("T", 0, 0) == -1
    assert store.store_time("T", 0, -1) == -1


def test_store_time_is_the_one_that_the_put_returned(open_store):
    store = open_store(**SMALL)
    results = [store.put("T", b"%d" % n) for n in range(30)]
    assert store.wait_dispatched(3)
    assert [store.store_time("T", 0, n) for n in range(30)] == [result.store_timestamp for result in results]
    assert store.store_time("T", 0, 30) == -1


def test_a_message_with_too_long_properties_does_not_use_an_offset(open_store):
    store = open_store(**SMALL, flush="sync")
    with pytest.raises(rocketc.IllegalMessageError):
        store.put("T", b"", properties={"p": "x" * 32768})
    assert store.max_offset("T", committed=False) == 0
    assert store.put("T", b"").queue_offset == 0
    assert store.max_offset("T", committed=False) == 1


def test_group_commit_and_another_topic(open_store):
    store = open_store(**SMALL, flush="sync")
    for n in range(10):
        assert store.put("T", b"%d" % n).status.name == "PUT_OK"
    assert store.get("Other").status.name == "NO_MESSAGE_IN_QUEUE"


def test_max_offset(open_store):
    store = open_store(**SMALL)
    assert store.max_offset("T") == 0
    for _ in range(3):
        store.put("T", b"")
    assert store.wait_dispatched(3)
    assert [store.max_offset("T"), store.max_offset("T", committed=False)] == [3, 3]


def test_get_returns_the_number_asked_for(open_store):
    store = open_store(**SMALL)
    for n in range(32):
        store.put("T", b"%d" % n)
    assert store.wait_dispatched(3)
    assert [len(store.get("T", 0, 0, count)) for count in (32, 20, 10)] == [32, 20, 10]


def test_a_clean_restart_keeps_offsets(open_store):
    store = open_store(**SMALL)
    for n in range(100):
        store.put("T", b"%d" % n)
    end = store.max_phy_offset
    store.close()
    store = open_store(**SMALL)
    assert (store.max_phy_offset, store.max_offset("T")) == (end, 100)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "aborted"])
def test_a_damaged_last_record_is_removed_from_log_and_queue(open_store, tmp_path, clean):
    store = open_store(**SMALL)
    for n in range(100):
        last = store.put("Topic", b"%d" % n, keys=f"k{n}")
    store.close()
    if not clean:
        (tmp_path / "abort").touch()
    name = sorted((tmp_path / "commitlog").iterdir())[last.phy_offset // (8 << 10)]
    with name.open("r+b") as file:
        file.seek(last.end - int(name.name) - 24)
        file.write(bytes(16))
    store = open_store(**SMALL)
    assert store.max_phy_offset == last.phy_offset
    assert store.max_offset("Topic") == 99
    assert list(store.query("Topic", "k99")) == []
    again = store.put("Topic", b"again", keys="k99")
    assert (again.phy_offset, again.queue_offset) == (last.phy_offset, 99)
    assert store.wait_dispatched(3)
    assert bodies(store.get("Topic", 0, 99)) == [b"again"]
    assert bodies(store.query("Topic", "k99")) == [b"again"]


def test_folders_exist_once_a_store_is_open(open_store, tmp_path):
    """RocketMQ creates the queues' folder at once, rocketc with the first queue."""
    store = open_store(**SMALL)
    assert (tmp_path / "commitlog").is_dir()
    store.put("T", b"")
    assert store.wait_dispatched(3)
    assert (tmp_path / "consumequeue").is_dir()


# ---------------------------------------------------------------- DefaultMessageStoreShutDownTest


def test_abort_is_deleted_when_all_is_dispatched(open_store, tmp_path):
    store = open_store(**SMALL)
    for n in range(1000):
        store.put("T", b"%d" % n)
    assert (tmp_path / "abort").exists()
    store.close()
    assert not (tmp_path / "abort").exists()
    units = oracle.queue_units(b"".join(files_of(tmp_path, "consumequeue/T/0").values()))
    assert sum(unit.size > 0 for unit in units) == 1000


# ---------------------------------------------------------------- BatchConsumeMessageTest, ConsumeQueueStoreTest


def test_a_batch_queue_of_a_normal_topic_is_replaced(open_store, tmp_path):
    """RocketMQ refuses to load; rocketc repairs derived files that contradict each other."""
    store = open_store(**SMALL)
    store.put("T", b"0")
    store.close()
    (tmp_path / "batchconsumequeue").mkdir()
    (tmp_path / "consumequeue" / "T").rename(tmp_path / "batchconsumequeue" / "T")
    store = open_store(**SMALL)
    assert bodies(store.get("T")) == [b"0"]


# ---------------------------------------------------------------- IndexFileTest, IndexServiceTest


def test_an_index_file_holds_one_key_less_than_its_units(open_store, tmp_path):
    store = open_store(**SMALL)
    for n in range(399):
        store.put("T", b"%d" % n, keys=f"{n}")
    assert store.wait_dispatched(3)
    assert len(list((tmp_path / "index").iterdir())) == 1
    store.put("T", b"399", keys="399")
    assert store.wait_dispatched(3)
    assert len(list((tmp_path / "index").iterdir())) == 2
    assert bodies(store.query("T", "60")) == [b"60"]
    assert bodies(store.query("T", "399")) == [b"399"]


def test_a_query_for_very_many_messages_of_an_empty_index(open_store):
    assert list(open_store(**SMALL).query("T", "k", max_count=(1 << 31) - 1)) == []


# ---------------------------------------------------------------- ReputMessageServiceTest


def test_ten_messages_are_readable(open_store):
    store = open_store(**SMALL)
    for _ in range(10):
        result = store.put("T", bytes(158 - 92))
    assert result.end == store.max_phy_offset == 1580
    assert store.wait_dispatched(3)
    assert len(store.get("T")) == 10


# ---------------------------------------------------------------- a slave's queues begin later


def test_space_before_the_first_unit_is_pre_blank(open_store, tmp_path):
    """A log that begins in the middle of a queue, as the log of a slave that was started late."""
    store = open_store(**TEN_A_FILE)
    for _ in range(25):
        hundred(store)
    store.close()
    delete_log_files(tmp_path, 1)
    for path in (tmp_path / "consumequeue" / "T" / "0").iterdir():
        path.unlink()
    store = open_store(**{**TEN_A_FILE, "mapped_file_size_consume_queue": 300})
    assert (store.min_offset("T"), store.max_offset("T")) == (10, 25)
    assert store.get("T", 0, 3).next_offset == 10
    store.close()
    (first, data), *_ = sorted(files_of(tmp_path, "consumequeue/T/0").items())
    assert first.endswith("/00000000000000000000")
    assert data[: 10 * UNIT.size] == 10 * PRE_BLANK
