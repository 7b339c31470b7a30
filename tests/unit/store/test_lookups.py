"""_lookups and _times: by key, by id and by time, from logs, queues and indexes that the oracle wrote."""

import os
import random
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from support import derived, oracle
from support.oracle_stores import FILE, MESSAGE, bodies, lay_down, reader

from rocketc import CorruptRecordError
from rocketc.derived._key_index import KeyIndex
from rocketc.store._lookups import Lookups

SLOTS, UNITS = 64, 40
T0 = MESSAGE["store_timestamp"]


def lookups(root: Path) -> Lookups:
    index = KeyIndex(str(root / "index"), SLOTS, UNITS, read_only=True)
    assert index.load() == []
    return Lookups(reader(root), index)


@pytest.fixture
def look(tmp_path: Path) -> Callable[..., Lookups]:
    """look(messages): the Lookups of a log of the messages; an index file has 39 keys."""

    def make(messages: Any, **options: Any) -> Lookups:
        lay_down(tmp_path, messages, **options)
        records = oracle.records(oracle.walk_log(oracle.read_log(tmp_path / "commitlog")))
        (tmp_path / "index").mkdir()
        for n, data in enumerate(derived.index(records, SLOTS, UNITS)):
            (tmp_path / "index" / f"{20261121000000000 + n}").write_bytes(data)
        return lookups(tmp_path)

    return make


def keyed(*keys: str, **fields: Any) -> list[dict[str, Any]]:
    return [
        {**MESSAGE, "body": b"%d" % n, "queue_offset": n, "store_timestamp": T0 + 1000 * n, **fields}
        | {"properties": {"KEYS": key, "UNIQ_KEY": f"ID{n:04}"}}
        for n, key in enumerate(keys)
    ]


# by key


def test_a_query_finds_every_key_of_a_message(look):
    found = look(keyed("a b", "b", "c a", ""))
    assert [m.queue_offset for m in found.query("orders", "a")] == [0, 2]
    assert [m.queue_offset for m in found.query("orders", "b")] == [0, 1]
    assert [m.queue_offset for m in found.query("orders", "ID0003")] == [3]
    assert list(found.query("orders", "none")) == list(found.query("other", "a")) == []
    assert list(found.query("orders", "")) == list(found.query("orders", "a b")) == []


def test_keys_with_the_same_hash_are_distinguished(look):
    found = look(keyed("Aa", "BB", "Aa BB", "AaAa BBBB AaBB BBAa"))
    assert [m.queue_offset for m in found.query("orders", "Aa")] == [0, 2]
    assert [m.queue_offset for m in found.query("orders", "BB")] == [1, 2]
    assert [m.queue_offset for m in found.query("orders", "AaBB")] == [3]
    assert [m.queue_offset for m in found.query("orders", "Aa", exact_keys=False)] == [0, 1, 2, 2]
    assert [m.queue_offset for m in found.query("orders", "BBBB", exact_keys=False)] == [3] * 4


def test_topics_whose_keys_have_the_same_hash_are_distinguished(look):
    found = look(keyed("k", topic="Aa") + keyed("k", topic="BB"))
    assert [m.topic for m in found.query("Aa", "k")] == ["Aa"]
    assert [m.topic for m in found.query("BB", "k", exact_keys=False)] == ["Aa", "BB"]


def test_the_newest_messages_are_returned_oldest_first(look):
    found = look(keyed(*["k"] * 200))
    assert len(os.listdir(found.index.folder)) > 5
    assert [m.queue_offset for m in found.query("orders", "k")] == list(range(136, 200))
    assert [m.queue_offset for m in found.query("orders", "k", max_count=1000)] == list(range(200))
    assert [m.queue_offset for m in found.query("orders", "k", max_count=2)] == [198, 199]
    assert len(found.query("orders", "k", max_count=1000, exact_keys=False)) == 64
    last = found.query("orders", "k")
    assert last.index_last_update_timestamp == T0 + 199_000
    assert last.index_last_update_phy_offset == last[-1].phy_offset
    assert found.query("orders", "none").index_last_update_timestamp == 0


@pytest.mark.parametrize("size", [1, 500, 3000])
def test_records_of_any_number_and_size_are_returned_whole(look, size):
    texts = [bytes([ord("a") + n]) * size for n in range(12)]
    found = look({**m, "body": text} for m, text in zip(keyed(*["a"] * 12), texts, strict=True))
    for most in range(1, 13):  # up to 4 KiB are copied in a different way
        answer = found.query("orders", "a", max_count=most)
        assert [m.body for m in answer] == texts[-most:]
        assert answer.buffer == b"".join(m.record for m in answer)


@pytest.mark.parametrize("size", [1, 5000])
@pytest.mark.parametrize("count", [1, 3])
def test_a_record_with_a_damaged_body_is_reported(look, tmp_path, size, count):
    found = look({**m, "body": b"x" * size} for m in keyed(*["a"] * count))
    last = found.reader.get("orders", 1).phy_offsets[-1]
    with open(tmp_path / "commitlog" / f"{last // FILE * FILE:020}", "r+b") as file:
        file.seek(last % FILE + 88)
        file.write(b"y")
    with pytest.raises(CorruptRecordError, match="bad_body_crc") as told:
        found.query("orders", "a")
    assert told.value.offset == last
    assert len(found.query("orders", "a", crc="none")) == count


def test_times_of_a_query_are_exact_and_inclusive(look):
    stamps = [T0 + ms for ms in (0, 400, 999, 1000, 1001, 2500)]
    messages = [m | {"store_timestamp": t} for m, t in zip(keyed(*["k"] * 6), stamps, strict=True)]
    found = look(messages)
    for begin in [None, *stamps, T0 + 1]:
        for end in [None, *stamps, T0 + 1]:
            wanted = [n for n, t in enumerate(stamps) if (begin or 0) <= t <= (end or 1 << 62)]
            assert [m.queue_offset for m in found.query("orders", "k", begin=begin, end=end)] == wanted
    when = datetime.fromtimestamp(stamps[1] / 1000, timezone.utc)
    assert [m.queue_offset for m in found.query("orders", "k", begin=when, end=when)] == [1]


def test_a_clock_that_went_back_hides_no_message(look):
    chance = random.Random(5)
    stamps = [T0 + chance.randrange(-100_000, 100_000) for _ in range(120)]
    messages = [m | {"store_timestamp": t} for m, t in zip(keyed(*["k"] * 120), stamps, strict=True)]
    found = look(messages)
    for _ in range(50):
        begin, end = sorted(T0 + chance.randrange(-100_000, 100_000) for _ in range(2))
        wanted = [n for n, t in enumerate(stamps) if begin <= t <= end]
        assert [m.queue_offset for m in found.query("orders", "k", begin=begin, end=end, max_count=200)] == wanted


def test_deleted_records_are_not_found(look, tmp_path):
    look(keyed(*["k"] * 30, properties={}) + [m | {"body": b"x" * 9000} for m in keyed(*["k"] * 30)][:30])
    gone = sorted((tmp_path / "commitlog").iterdir())[0]
    gone.unlink()
    found = lookups(tmp_path).query("orders", "k", max_count=100)
    assert 0 < len(found) < 60 and min(found.phy_offsets) >= FILE


def test_an_index_unit_without_a_record_is_reported(look, tmp_path):
    look(keyed("k", "k"))
    path = next((tmp_path / "index").iterdir())
    data = bytearray(path.read_bytes())
    at = data.index(b"\0" * 7 + bytes([oracle.key_hash("orders", "k") & 0]), 40)  # only the second unit matters
    units = 40 + 4 * SLOTS
    at = units + 20 * 2
    assert int.from_bytes(data[at : at + 4], "big") == oracle.key_hash("orders", "k")
    data[at + 11] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptRecordError, match="the index has key 'k' of topic 'orders' there; `rocketc rebuild`"):
        lookups(tmp_path).query("orders", "k")


def test_without_an_index_no_key_is_found(read_only_lookups):
    assert list(read_only_lookups.query("orders", "k")) == []


@pytest.fixture
def read_only_lookups(tmp_path):
    lay_down(tmp_path, bodies(2))
    return Lookups(reader(tmp_path))


# by place and id


def test_a_message_by_its_physical_offset(look):
    found = look(bodies(3))
    offsets = found.reader.get("orders", 1).phy_offsets
    for n, phy_offset in enumerate(offsets):
        assert found.message(phy_offset).body == b"%d" % n
        assert found.message(phy_offset + 1) is None
    for nothing in (-1, 1 << 62, FILE - 1, FILE, FILE - 8, -(1 << 63)):
        assert found.message(nothing) is None


def test_a_message_whose_body_is_damaged(look, tmp_path):
    look(bodies(1))
    log = tmp_path / "commitlog" / ("0" * 20)
    data = bytearray(log.read_bytes())
    data[88] ^= 1
    log.write_bytes(data)
    with pytest.raises(CorruptRecordError, match="bad_body_crc"):
        lookups(tmp_path).message(0)
    assert lookups(tmp_path).message(0, crc="none").body == b"1"


def test_a_message_by_its_ids(look):
    found = look(keyed("a", "b"))
    [first, second] = found.reader.get("orders", 1)
    assert found.message_by_id(second.msg_id) == second
    assert found.message_by_id(second.msg_id.lower()) == second
    assert found.message_by_id("ID0000", topic="orders") == first
    assert found.message_by_id("ID0000", topic="other") is None
    assert found.message_by_id("a", topic="orders") is None  # this is a key, not an id
    other = first.msg_id[:-16] + f"{first.phy_offset + 1:016X}"
    assert found.message_by_id(other) is None
    assert found.message_by_id("C0A8010A00002A9F" + first.msg_id[16:]) is None  # of another broker
    assert found.message_by_id("C0A8010A00002A9FFFFFFFFFFFFFFFFF") is None
    with pytest.raises(ValueError, match="'xyz' is not a message id"):
        found.message_by_id("xyz")


# by queue offset


def test_offsets_of_a_queue(look):
    found = look(bodies(5))
    assert (found.min_offset("orders", 1), found.max_offset("orders", 1)) == (0, 5)
    assert (found.min_offset("none"), found.max_offset("none")) == (0, 0)
    assert found.max_offset("orders", 1, committed=False) == 5
    offsets = found.reader.get("orders", 1).phy_offsets
    assert [found.phy_offset_of("orders", 1, n) for n in (-1, 0, 4, 5)] == [-1, offsets[0], offsets[4], -1]
    assert [found.store_time("orders", 1, n) for n in (-1, 0, 4, 5)] == [-1, T0, T0, -1]
    assert found.store_time("none", 1, 0) == found.phy_offset_of("none", 0, 0) == -1


# 6.7: by time


def timed(stamps: list[int]) -> list[dict[str, Any]]:
    return [m | {"store_timestamp": t} for m, t in zip(bodies(len(stamps)), stamps, strict=True)]


def test_equal_times_as_in_the_specification(look):
    found = look(timed([1, 1, 1, 3, 3]))
    assert (found.offset_by_time("orders", 1, 2), found.offset_by_time("orders", 1, 2, "upper")) == (3, 2)
    assert (found.offset_by_time("orders", 1, 1), found.offset_by_time("orders", 1, 1, "upper")) == (0, 2)
    assert (found.offset_by_time("orders", 1, 3), found.offset_by_time("orders", 1, 3, "upper")) == (3, 4)
    assert (found.offset_by_time("orders", 1, 0), found.offset_by_time("orders", 1, 0, "upper")) == (0, 0)
    assert (found.offset_by_time("orders", 1, 9), found.offset_by_time("orders", 1, 9, "upper")) == (5, 4)
    assert found.offset_by_time("none", 1, 3) == 0


def test_each_message_by_its_own_time_and_by_an_earlier_one(look):
    found = look(timed([T0 + 10 * n for n in range(250)]))  # three queue files of 100 units
    for n in range(250):
        assert found.offset_by_time("orders", 1, T0 + 10 * n) == n
        assert found.offset_by_time("orders", 1, T0 + 10 * n - 2) == n
        assert found.offset_by_time("orders", 1, T0 + 10 * n, "upper") == n
        assert found.offset_by_time("orders", 1, T0 + 10 * n + 2, "upper") == n
    assert found.offset_by_time("orders", 1, T0 - 20_000) == 0
    assert found.offset_by_time("orders", 1, T0 + 10**7) == 250
    assert found.offset_by_time("orders", 1, datetime.fromtimestamp((T0 + 1500) / 1000, timezone.utc)) == 150


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [(0, 0), (10, 0), (14, 0), (15, 0), (16, 1), (20, 1), (25, 1), (26, 2), (30, 2), (99, 2)],
)
def test_nearest_chooses_the_closer_message_and_the_earlier_on_a_tie(look, timestamp, offset):
    assert look(timed([10, 20, 30])).offset_by_time("orders", 1, timestamp, "nearest") == offset


def test_nearest_chooses_the_file_by_its_modification_time(look, tmp_path):
    found = look(timed([10 * n for n in range(250)]))
    for n, path in enumerate(sorted((tmp_path / "consumequeue/orders/1").iterdir())):
        os.utime(path, ns=(0, (500 + 1000 * n) * 1_000_000))
    assert found.offset_by_time("orders", 1, 400, "nearest") == 40
    assert found.offset_by_time("orders", 1, 501, "nearest") == 100  # all messages of the second file are later
    assert found.offset_by_time("orders", 1, 1600, "nearest") == 200
    assert found.offset_by_time("orders", 1, 9999, "nearest") == 249
    (tmp_path / "consumequeue/orders/1" / ("0" * 20)).unlink()
    assert found.offset_by_time("orders", 1, 400, "nearest") == 100


def test_by_time_in_a_batch_queue(look):
    wire = [(0, b"m", {})] * 10
    batches = [
        {
            "topic": "b",
            "body": oracle.encode_batch(wire),
            "queue_offset": 10 * n + 1,
            "store_timestamp": 10 * n,
            "sys_flag": 0xC0,
            "properties": {"INNER_NUM": "10", "INNER_BASE": str(10 * n + 1)},
        }
        for n in range(1, 120)
    ]
    found = look(batches, batch=["b"])
    assert found.offset_by_time("b", 0, -100) == 11
    for n in range(1, 120):
        assert found.offset_by_time("b", 0, 10 * n) == 10 * n + 1
        assert found.offset_by_time("b", 0, 10 * n - 1) == 10 * n + 1
        assert found.offset_by_time("b", 0, 10 * n + 1, "upper") == 10 * n + 1
        assert found.store_time("b", 0, 10 * n + 5) == 10 * n
    assert found.offset_by_time("b", 0, T0) == 1191
    assert (found.min_offset("b"), found.max_offset("b")) == (11, 1201)


def test_wrong_arguments_are_refused(look):
    found = look(bodies(1))
    for call, error, text in [
        (lambda: found.query("orders", 5), TypeError, "key"),
        (lambda: found.query("orders", "k", max_count=0), ValueError, "max_count is 0; allowed are 1 to"),
        (
            lambda: found.query("orders", "k", begin=datetime(2026, 1, 1)),
            ValueError,
            "begin: a datetime without a time",
        ),
        (lambda: found.offset_by_time("orders", 1, 0, "last"), ValueError, "boundary is 'last'; allowed are 'lower'"),
        (lambda: found.offset_by_time("orders", 1, None), TypeError, "timestamp: expected int"),
        (lambda: found.offset_by_time("orders", "1", 0), TypeError, "queue_id: expected int, got str"),
        (lambda: found.message(1.5), TypeError, "phy_offset: expected int, got float"),
        (lambda: found.message(1 << 63), ValueError, "phy_offset is 9223372036854775808; allowed are"),
        (lambda: found.message(0, crc="all"), ValueError, "crc is 'all'; allowed are 'none', 'body', 'full'"),
        (lambda: found.message_by_id(None), TypeError, "msg_id"),
        (lambda: found.store_time("orders", 1, "x"), TypeError, "offset: expected int"),
    ]:
        with pytest.raises(error, match=text):
            call()
