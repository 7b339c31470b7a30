"""Rules of dispatch, consume queues and index, as a caller sees them: one test for each rule."""

import asyncio
import struct
import threading
import time

import pytest
from support import derived, oracle
from support.derived import CONFIG, PRE_BLANK, SMALL, UNIT, files_of, from_log, same_files, without_names

import rocketc
from rocketc import ClosedError

PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC
NOW = 1_700_000_000_000
SOON = 10.0  # seconds within which a busy machine has dispatched


def records(root):
    return oracle.records(oracle.walk_log(oracle.read_log(root / "commitlog")))


def same_as_from_log(root, **config):
    same_files(without_names(files_of(root, *derived.FOLDERS)), from_log(records(root), {**CONFIG, **config}))


def bodies(got):
    return [message.body for message in got]


# ---------------------------------------------------------------- 6.1 what is dispatched, and when


def test_records_of_several_files_are_dispatched_in_order(open_store, tmp_path):
    store = open_store(**SMALL)
    for n in range(300):
        store.put(f"T{n % 3}", b"%d" % n + bytes(n), queue_id=n % 2, tags=f"t{n}", keys=f"k{n % 50} l{n}")
    store.close()
    assert len(list((tmp_path / "commitlog").iterdir())) > 5
    same_as_from_log(tmp_path)


def test_with_sync_flush_only_flushed_messages_are_read(open_store):
    store = open_store(**SMALL, flush="sync")
    futures = [store.put_async("T", b"%d" % n, keys="k") for n in range(500)]
    at = 0
    until = time.monotonic() + SOON
    while at < 500 and time.monotonic() < until:
        got = store.get("T", 0, at)
        flushed = store.flushed_phy_offset
        assert all(message.phy_offset + message.store_size <= flushed for message in got)
        found = store.query("T", "k", max_count=1000)
        flushed = store.flushed_phy_offset
        assert all(message.phy_offset + message.store_size <= flushed for message in found)
        at = got.next_offset if got else at
    assert at == 500
    assert [future.result(SOON).queue_offset for future in futures] == list(range(500))


def test_uncommitted_messages_of_the_pool_are_not_read(open_store):
    """Other processes cannot see these messages, and they are lost if this process dies."""
    store = open_store(**SMALL, transient_store_pool_enable=True, commit_interval_commit_log=20)
    store.put("T", b"0", keys="k")
    assert store.wait_dispatched(SOON)
    assert bodies(store.get("T")) == [b"0"]
    assert bodies(store.query("T", "k")) == [b"0"]


def test_a_put_wakes_a_waiting_reader(open_store):
    store = open_store(**SMALL)
    took = []
    for n in range(20):
        put_at = []

        def put(n=n, put_at=put_at):
            time.sleep(0.02)
            put_at.append(time.perf_counter())
            store.put("T", b"%d" % n)

        thread = threading.Thread(target=put)
        thread.start()
        got = store.get("T", 0, n, wait=SOON)
        took.append(time.perf_counter() - put_at[0])
        thread.join()
        assert bodies(got) == [b"%d" % n]
    assert sorted(took)[10] < 0.02


def test_a_reader_waits_no_longer_than_its_timeout(open_store):
    store = open_store(**SMALL)
    store.put("T", b"0", tags="a")
    begun = time.monotonic()
    assert not store.get("T", 0, 1, wait=0.05)
    assert not store.get("Other", 0, 0, wait=0.05)
    assert 0.1 <= time.monotonic() - begun < SOON


def test_a_put_into_another_queue_does_not_end_a_wait(open_store):
    store = open_store(**SMALL)
    timer = threading.Timer(0.02, lambda: [store.put("T", b"1", queue_id=1), store.put("U", b"2")])
    timer.start()
    assert not store.get("T", 0, 0, wait=0.2)
    timer.join()


def test_close_ends_a_wait(open_store):
    store = open_store(**SMALL)
    timer = threading.Timer(0.05, store.close)
    timer.start()
    with pytest.raises(ClosedError):
        store.get("T", 0, 0, wait=SOON)
    timer.join()


def test_following_a_queue(open_store):
    store = open_store(**SMALL)
    for n in range(5):
        store.put("T", b"%d" % n)

    async def follow():
        found = []
        async for message in store.follow("T", 0, 0):
            found.append(message.body)
            if len(found) == 5:
                await store.aput("T", b"5")
            if len(found) == 6:
                return found

    assert asyncio.run(asyncio.wait_for(follow(), SOON)) == [b"%d" % n for n in range(6)]


# ---------------------------------------------------------------- 3.6, 6.3 which records have units


@pytest.mark.parametrize(
    ("kind", "in_queue", "in_index"),
    [(0, True, True), (PREPARED, False, True), (COMMIT, True, True), (ROLLBACK, False, False)],
)
def test_transactions(open_store, tmp_path, kind, in_queue, in_index):
    store = open_store(**SMALL)
    result = store.put("T", b"it", keys="k", sys_flag=kind)
    assert store.put("T", b"next").queue_offset == (1 if in_queue else 0)
    assert store.wait_dispatched(SOON)
    assert bodies(store.get("T")) == ([b"it"] if in_queue else []) + [b"next"]
    assert bodies(store.query("T", "k")) == ([b"it"] if in_index else [])
    assert store.message(result.phy_offset).body == b"it"
    store.close()
    same_as_from_log(tmp_path)


def test_the_unit_of_a_delayed_message_has_its_time_as_tags_code(open_store, tmp_path):
    store = open_store(**SMALL)
    store._set_clock(NOW)
    for level in ["1", "5", "18", "99", "0", "-1"]:
        store.put("SCHEDULE_TOPIC_XXXX", b"", tags="TagA", properties={"DELAY": level})
    store.put("T", b"", tags="TagA", properties={"DELAY": "1"})
    store.close()
    data = files_of(tmp_path, "consumequeue/SCHEDULE_TOPIC_XXXX/0")["consumequeue/SCHEDULE_TOPIC_XXXX/0/" + "0" * 20]
    codes = [unit.tags_code for unit in oracle.queue_units(data)[:6]]
    plain = oracle.java_hash("TagA")
    assert codes == [NOW + 1000, NOW + 60_000, NOW + 7_200_000, NOW + 7_200_000, plain, plain]
    same_as_from_log(tmp_path)


def test_a_queue_continues_where_its_deleted_files_ended(open_store, tmp_path):
    store = open_store(**SMALL)
    for n in range(100):
        store.put("T", b"%d" % n)
    store.close()
    for path in sorted((tmp_path / "consumequeue" / "T" / "0").iterdir())[:5]:
        path.unlink()
    for path in sorted((tmp_path / "commitlog").iterdir())[:1]:
        path.unlink()
    store = open_store(**SMALL)
    least = store.min_offset("T")
    assert 50 <= least < 100
    assert bodies(store.get("T", 0, least, 3)) == [b"%d" % n for n in range(least, least + 3)]
    assert store.put("T", b"100").queue_offset == 100


@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_lost_record_leaves_a_blank_unit(open_store, tmp_path, place):
    """RocketMQ would move the later units up by one, and their messages would get other queue offsets."""
    store = open_store(**SMALL)
    results = [store.put("T", b"%d" % n, keys=f"k{n}") for n in range(60)]
    store.close()
    lost = {"first": 0, "middle": 30, "last": 58}[place]
    name = tmp_path / "commitlog" / f"{results[lost].phy_offset // 8192 * 8192:020}"
    with name.open("r+b") as file:
        file.seek(results[lost].phy_offset % 8192 + 4)
        file.write(b"lost")  # over the magic number
    store = open_store(**SMALL)
    assert store.max_offset("T") == 60
    found = {}
    at = store.min_offset("T")
    while at < 60:
        got = store.get("T", 0, at)
        found |= {message.queue_offset: message.body for message in got}
        assert got.next_offset > at
        at = got.next_offset
    assert found == {n: b"%d" % n for n in range(60) if n != lost}
    assert list(store.query("T", f"k{lost}")) == []
    assert bodies(store.query("T", "k59")) == [b"59"]
    store.close()
    data = files_of(tmp_path, "consumequeue/T/0")[f"consumequeue/T/0/{lost // 10 * 200:020}"]
    assert data[lost % 10 * 20 :][:20] == PRE_BLANK


# ---------------------------------------------------------------- 6.6 index


def index_files(root):
    return [data for _, data in sorted(files_of(root, "index").items())]


def test_golden_index_file(open_store, tmp_path):
    """The file in the specification: ten slots and room for three keys."""
    store = open_store(**{**SMALL, "max_hash_slot_num": 10, "max_index_num": 4})
    for key, after in (("k1", 0), ("k1", 2500), ("k2", 3999)):
        store._set_clock(1_700_000_000_123 + after)
        store.put("TopicTest", b"x" * (133 - 91 - 9 - 8), keys=key)
    assert store.wait_dispatched(SOON)
    assert [message.phy_offset for message in store.query("TopicTest", "k1")] == [0, 133]
    store.close()
    (data,) = index_files(tmp_path)
    units = ["0029e6a8 0000000000000000 00000000 00000000", "0029e6a8 0000000000000085 00000002 00000001"]
    units.append("0029e6a9 000000000000010a 00000003 00000000")
    header = "0000018bcfe5687b 0000018bcfe5781a 0000000000000000 000000000000010a 00000002 00000004"
    slots = struct.pack(">10i", 0, 0, 0, 0, 2, 3, 0, 0, 0, 0)
    assert data == bytes.fromhex(header) + slots + bytes(20) + bytes.fromhex(" ".join(units))


def test_keys_of_a_message(open_store, tmp_path):
    """The unique key comes first, then each part of KEYS between single spaces, as many times as it occurs."""
    store = open_store(**SMALL)
    store.put("T", b"it", keys=" a  b a ", properties={"UNIQ_KEY": "U"})
    assert store.wait_dispatched(SOON)
    for key in ("U", "a", "b"):
        assert bodies(store.query("T", key)) == [b"it"]
    store.close()
    (data,) = index_files(tmp_path)
    header, _, entries = oracle.index_file(data, 20)
    assert [entry.key_hash for entry in entries[1 : header.index_count]] == [
        oracle.key_hash("T", key) for key in ("U", "a", "b", "a")
    ]


def test_a_chain_continues_in_several_files(open_store, tmp_path):
    store = open_store(**SMALL)
    for n in range(200):
        store.put("T", b"%d" % n, keys="same" if n % 2 else f"k{n}")
    assert store.wait_dispatched(SOON)
    assert len(index_files(tmp_path)) == 6
    assert bodies(store.query("T", "same", max_count=1000)) == [b"%d" % n for n in range(1, 200, 2)]
    assert bodies(store.query("T", "same", max_count=7)) == [b"%d" % n for n in range(187, 200, 2)]
    store.close()
    same_as_from_log(tmp_path)


def test_more_than_64_messages_of_a_key(open_store):
    store = open_store(**SMALL)
    for n in range(100):
        store.put("T", b"%d" % n, keys="k")
    assert store.wait_dispatched(SOON)
    assert bodies(store.query("T", "k", max_count=100)) == [b"%d" % n for n in range(100)]


def test_keys_with_the_same_hash_are_distinguished(open_store):
    store = open_store(**SMALL)
    assert oracle.key_hash("T", "Aa") == oracle.key_hash("T", "BB")
    for n in range(10):
        store.put("T", b"%d" % n, keys="Aa" if n % 2 else "BB")
    store.put("T", b"both", keys="Aa BB")
    assert store.wait_dispatched(SOON)
    assert bodies(store.query("T", "Aa")) == [b"1", b"3", b"5", b"7", b"9", b"both"]
    assert bodies(store.query("T", "BB")) == [b"0", b"2", b"4", b"6", b"8", b"both"]


def test_topics_with_the_same_hash_are_distinguished(open_store):
    store = open_store(**SMALL)
    assert oracle.key_hash("Aa", "k") == oracle.key_hash("BB", "k")
    for topic in ("Aa", "BB"):
        store.put(topic, topic.encode(), keys="k")
    assert store.wait_dispatched(SOON)
    assert bodies(store.query("Aa", "k")) == [b"Aa"]
    assert bodies(store.query("BB", "k")) == [b"BB"]


def test_a_hash_without_an_absolute_value_counts_as_0(open_store, tmp_path):
    key = key_of_hash("T", -(1 << 31))
    assert (oracle.java_hash(f"T#{key}"), oracle.key_hash("T", key)) == (-(1 << 31), 0)
    store = open_store(**SMALL)
    store.put("T", b"it", keys=key)
    assert store.wait_dispatched(SOON)
    assert bodies(store.query("T", key)) == [b"it"]
    store.close()
    same_as_from_log(tmp_path)


def key_of_hash(topic, wanted):
    """Return seven printable letters with which topic#key has this hash: a number in base 31."""
    rest = wanted - oracle.java_hash(f"{topic}#") * 31**7 - 33 * sum(31**n for n in range(7))
    rest %= 1 << 32
    return "".join(chr(33 + rest // 31**n % 31) for n in reversed(range(7)))


def test_a_clock_that_goes_back(open_store, tmp_path):
    """The seconds since the start of a file cannot be negative."""
    store = open_store(**SMALL)
    for n in range(100):
        store._set_clock(NOW - 10_000 * n)
        store.put("T", b"%d" % n, keys="k")
    assert store.wait_dispatched(SOON)
    assert bodies(store.query("T", "k", max_count=100)) == [b"%d" % n for n in range(100)]
    assert [store.store_time("T", 0, n) for n in range(100)] == [NOW - 10_000 * n for n in range(100)]
    store.close()
    same_as_from_log(tmp_path)
    _, _, entries = oracle.index_file(index_files(tmp_path)[0], 20)
    assert {entry.seconds for entry in entries} == {0}


def test_index_file_names_are_times_and_increase(open_store, tmp_path):
    store = open_store(**SMALL)
    for n in range(200):
        store.put("T", b"", keys=f"k{n}")
    store.close()
    names = sorted(path.name for path in (tmp_path / "index").iterdir())
    assert len(names) == 6
    assert all(len(name) == 17 and name.isdigit() for name in names)
    for name in names:
        then = time.mktime(time.strptime(name[:14], "%Y%m%d%H%M%S"))
        assert abs(then - time.time()) < 3600


def test_a_key_between_times(open_store):
    store = open_store(**SMALL)
    for n in range(100):
        store._set_clock(NOW + 10_000 * n)
        store.put("T", b"%d" % n, keys="k")
    assert store.wait_dispatched(SOON)
    found = store.query("T", "k", max_count=100, begin=NOW + 200_000, end=NOW + 500_000)
    assert bodies(found) == [b"%d" % n for n in range(20, 51)]
    assert list(store.query("T", "k", begin=NOW + 1, end=NOW + 9000)) == []
    assert list(store.query("T", "k", begin=NOW + 1_000_000)) == []


def test_damage_in_a_chain_is_reported(open_store, tmp_path):
    store = open_store(**SMALL)
    for n in range(30):
        store.put("T", b"%d" % n, keys="k")
    assert store.wait_dispatched(SOON)
    (path,) = (tmp_path / "index").iterdir()
    with path.open("r+b") as file:
        file.seek(40 + 4 * 20 + 20 * 15)
        file.write(struct.pack(">iqii", oracle.key_hash("T", "k"), 1 << 60, 0, 20))  # the chain must go down
    with pytest.raises(rocketc.CorruptRecordError, match=path.name):
        store.query("T", "k", max_count=100)


# ---------------------------------------------------------------- tags


def test_tags_with_the_same_hash_are_distinguished(open_store):
    store = open_store(**SMALL)
    assert oracle.tags_code("Aa") == oracle.tags_code("BB")
    for n in range(10):
        store.put("T", b"%d" % n, tags="Aa" if n % 2 else "BB")
    assert store.wait_dispatched(SOON)
    assert bodies(store.get("T", tags="Aa")) == [b"1", b"3", b"5", b"7", b"9"]
    assert bodies(store.get("T", tags="BB")) == [b"0", b"2", b"4", b"6", b"8"]
    assert bodies(store.get("T", tags=" BB || c ")) == [b"0", b"2", b"4", b"6", b"8"]
    assert len(store.get("T", tags="Aa", exact_tags=False)) == 10
    for everything in (None, "*", ""):
        assert len(store.get("T", tags=everything)) == 10
    assert store.get("T", tags="none").status.name == "NO_MATCHED_MESSAGE"
    assert store.get("T", tags="none").next_offset == 10


def test_a_unit_is_as_in_the_specification(open_store, tmp_path):
    store = open_store(**SMALL)
    store.put("TopicTest", b"hello", tags="TagA", keys="k1", queue_id=3)
    store.close()
    (data,) = files_of(tmp_path, "consumequeue/TopicTest/3").values()
    assert len(data) == 200
    (record,) = records(tmp_path)
    assert data[:20] == UNIT.pack(0, record["storeSize"], 2598919)
