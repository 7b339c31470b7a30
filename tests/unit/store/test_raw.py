"""read_raw and append_raw: copy whole records by physical offset from one store to another; both become equal."""

import concurrent.futures
import errno
import threading
import time

import pytest
from support import derived, extension, oracle, replicas
from support.store_checks import assert_answers, assert_files, records_of

import rocketc
from rocketc.errors import CorruptRecordError, PhyOffsetError
from rocketc.status import PutStatus

pytestmark = pytest.mark.promise(9)

FILE_SIZE = 8 << 10
NEVER = 600_000  # ms
FIRST = 2 * FILE_SIZE  # start of a master's log after its first two files have been deleted


@pytest.fixture
def pair(open_store, tmp_path):
    """pair(**fields): an empty master and an empty replica. `replica` are fields of the replica alone."""

    def make(replica=None, **fields):
        fields = {**derived.SMALL, **fields}
        master = open_store(tmp_path / "master", **fields)
        return master, open_store(tmp_path / "replica", **{**fields, **(replica or {})})

    return make


def fill(store, count=300, first=0):
    """Put messages into 6 queues, with tags and keys: several files of each kind."""
    for n in range(first, first + count):
        store.put(f"T{n % 3}", bytes([n % 256]) * (n % 300), queue_id=n % 2, tags=f"t{n % 7}", keys=f"k{n % 50} l{n}")


def of_all_kinds(store):
    """Put records with special queue handling: transactions, delays, inner batches, light queues, IPv6 hosts."""
    for n in range(8):
        half = store.put("t", b"half", sys_flag=0x4, keys=f"h{n}")
        store.put("t", b"commit", sys_flag=0x8, prepared_transaction_offset=half.phy_offset, keys=f"h{n}")
        store.put("t", b"rollback", sys_flag=0xC, keys=f"h{n}")
        store.put("SCHEDULE_TOPIC_XXXX", b"later", queue_id=2, properties={"DELAY": "3", "REAL_TOPIC": "t"})
        store.put("t", oracle.encode_batch([(0, b"a", None)] * (n + 1)), queue_id=1, **inner(n + 1))
        names = "%LMQ%one,%LMQ%two" if n % 2 else "%LMQ%one"
        store.put("t", b"light", queue_id=3, properties={"INNER_MULTI_DISPATCH": names})
        store.put("t", b"v6", queue_id=4, born_host=("fe80::1", 1), store_host=("fe80::2", 2))
        store.put_batch("b", [(n, b"x", {"KEYS": "one"}), (n, b"", None)])


def inner(count):
    return {"sys_flag": 0xC0, "properties": {"INNER_NUM": str(count)}}


LIGHT = {"enable_lmq": True, "enable_multi_dispatch": True}
MIXES = {
    "async": {},
    "sync": {"flush": "sync", "lock": "spin"},
    "pool": {"transient_store_pool_enable": True, "transient_store_pool_size": 3},
    "crc": {"enabled_append_prop_crc": True, "lock": "adaptive"},
    "extended": {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 4096},
}


# ------------------------------------------------------------------------------------------------ equal


@pytest.mark.parametrize("max_bytes", [1, 1000, 1 << 20])
@pytest.mark.parametrize("mix", MIXES)
def test_a_replica_is_equal(pair, tmp_path, mix, max_bytes):
    master, replica = pair(**LIGHT, **MIXES[mix])
    of_all_kinds(master)
    fill(master)
    master.flush()
    end = replicas.copy(master, replica, max_bytes=max_bytes)
    assert end == master.max_phy_offset == replica.max_phy_offset
    for store in (master, replica):
        store.close()
    replicas.assert_equal(tmp_path / "master", tmp_path / "replica")
    assert len(replicas.log_of(tmp_path / "replica")) > 3


def test_puts_in_master_and_replica_get_the_same_offsets(pair, tmp_path):
    """This includes the offsets of inner batches and light queues, and of queues that only had transactions."""
    master, replica = pair(**LIGHT)
    master._set_clock(1_700_000_000_000)
    replica._set_clock(1_700_000_000_000)
    master.put("only half", b"", sys_flag=0x4)
    of_all_kinds(master)
    replicas.copy(master, replica)
    for store in (master, replica):
        store.put("only half", b"")
        of_all_kinds(store)
        store.close()
    replicas.assert_equal(tmp_path / "master", tmp_path / "replica")
    offsets = [m["properties"].get("INNER_MULTI_QUEUE_OFFSET") for m in records_of(tmp_path / "replica")]
    assert [text for text in offsets if text][-1] == "15,7"


def test_messages_of_a_replica_are_found(pair, tmp_path):
    master, replica = pair(**LIGHT)
    fill(master)
    replicas.copy(master, replica)
    assert replica.wait_dispatched(timeout=10)
    assert_answers(replica, records_of(tmp_path / "master"))
    assert replica.stats()["records"] == master.stats()["records"]
    assert replica.stats()["bytes"] == master.stats()["bytes"]
    assert replica.stats()["rolls"] == master.stats()["rolls"]


def test_the_log_continues_after_the_store_is_reopened(pair, open_store, tmp_path):
    """The store is reopened after each block: at the end of each file and after records in between."""
    master, replica = pair()
    fill(master, 60)
    while block := master.read_raw(replica.max_phy_offset, 900):
        replica.append_raw(replica.max_phy_offset, block)
        replica.close()
        replica = open_store(tmp_path / "replica", **derived.SMALL)
    for store in (master, replica):
        store.close()
    replicas.assert_equal(tmp_path / "master", tmp_path / "replica")


@pytest.mark.parametrize("mix", ["async", "sync", "pool"])
@pytest.mark.parametrize("killed_empty", [False, True])
def test_an_empty_log_may_begin_at_any_file(pair, open_store, tmp_path, mix, killed_empty):
    """Queues start at the offsets of the first messages there. No files before the start are created or left."""
    master, replica = pair(**MIXES[mix])
    fill(master)
    master.flush()
    if killed_empty:  # the crash left an empty first file
        replica.close()
        (tmp_path / "replica" / "abort").touch()
        (tmp_path / "replica" / "commitlog" / ("0" * 20)).write_bytes(bytes(FILE_SIZE))
        replica = open_store(tmp_path / "replica", **derived.SMALL, **MIXES[mix])
    start = master.max_phy_offset // FILE_SIZE * FILE_SIZE - FILE_SIZE
    end = replicas.copy(master, replica, start=start)
    assert replica.min_phy_offset == start
    assert replica.put("T0", b"").queue_offset == master.put("T0", b"").queue_offset > 0
    replica.flush()
    assert replica.flushed_phy_offset == replica.max_phy_offset
    assert replica.wait_dispatched(timeout=10)
    assert_answers(replica, records_of(tmp_path / "replica"))
    for store in (master, replica):
        store.close()
    assert_files(tmp_path / "replica", derived.SMALL)
    logs = [replicas.log_of(tmp_path / name) for name in ("master", "replica")]
    assert sorted(logs[1]) == sorted(logs[0])[-2:]
    whole, part = sorted(logs[1])
    assert logs[0][whole] == logs[1][whole]
    assert logs[0][part][: end % FILE_SIZE] == logs[1][part][: end % FILE_SIZE]
    store = open_store(tmp_path / "replica", **derived.SMALL)
    assert (store.min_phy_offset, store.failed) == (start, None)


def test_an_empty_log_may_begin_where_the_masters_was_cleaned(pair, tmp_path):
    master, replica = pair()
    fill(master)
    assert master.wait_dispatched(timeout=10)
    master.delete_before(FIRST)
    assert master.min_phy_offset == FIRST
    replicas.copy(master, replica)
    assert replica.min_phy_offset == FIRST
    for store in (master, replica):
        store.close()
    assert replicas.log_of(tmp_path / "replica") == replicas.log_of(tmp_path / "master")


def test_bytes_after_a_blank_record_are_copied(open_store, tmp_path):
    """RocketMQ leaves old bytes there."""
    messages = [{"topic": "t", "body": bytes(1500), "queue_offset": n} for n in range(20)]
    folder = tmp_path / "master" / "commitlog"
    folder.mkdir(parents=True)
    for start, data in oracle.lay_out(messages, FILE_SIZE, stale=b"stale "):
        (folder / f"{start:020}").write_bytes(data)
    master = open_store(tmp_path / "master", **derived.SMALL)
    replica = open_store(tmp_path / "replica", **derived.SMALL)
    replicas.copy(master, replica)
    for store in (master, replica):
        store.close()
    replicas.assert_equal(tmp_path / "master", tmp_path / "replica")
    assert any(b"stale stale" in data for data in replicas.log_of(tmp_path / "replica").values())


def test_store_timestamps_are_those_of_the_master(pair):
    """The checkpoint and lookups by time use the timestamps of the records."""
    master, replica = pair()
    for n in range(50):
        master._set_clock(1_600_000_000_000 + 1000 * n)
        master.put("t", bytes(300))
    replicas.copy(master, replica)
    replica.flush()
    assert replica.wait_dispatched(timeout=10)
    assert replica.store_time("t", 0, 7) == 1_600_000_007_000
    assert replica.offset_by_time("t", 0, 1_600_000_020_000) == 20
    replica.close()
    with open(f"{replica.path}/checkpoint", "rb") as file:
        assert oracle.checkpoint(file.read()).physic_msg_timestamp == 1_600_000_049_000


# ------------------------------------------------------------------------------------------------ reading


def test_read_raw_returns_whole_records_only(pair):
    master, _ = pair()
    fill(master, 100)
    items = oracle.walk_log(oracle.read_log(f"{master.path}/commitlog"))
    ends = {
        item.stop if isinstance(item, oracle.Blank) else item["physicalOffset"] + item["storeSize"] for item in items
    }
    log = b"".join(data for _, data, _ in oracle.read_log(f"{master.path}/commitlog"))
    for start in sorted(ends)[:20]:
        for max_bytes in (1, 200, 2000, 1 << 20):
            block = master.read_raw(start, max_bytes)
            assert start + len(block) in ends
            assert block == log[start : start + len(block)]
            following = min(end for end in ends if end > start)
            assert len(block) <= max_bytes or start + len(block) == following
            more = min((end for end in ends if end > start + len(block)), default=0)
            assert more - start > max_bytes or (start + len(block)) % FILE_SIZE == 0 or not more, "one more would fit"


def test_read_raw_stops_at_a_limit(pair):
    master, _ = pair()
    ends = [master.put("t", bytes(100)).end for _ in range(5)]
    for upto, wanted in [(0, 0), (ends[0] - 1, 0), (ends[0], ends[0]), (ends[2] + 1, ends[2]), (1 << 40, ends[4])]:
        assert len(master.read_raw(0, upto=upto)) == wanted
    assert master.read_raw(ends[1], upto=ends[0]) == b""
    assert len(master.read_raw(0)) == ends[4]


def test_read_raw_at_the_end_is_empty(pair):
    master, _ = pair()
    assert master.read_raw(0) == b""
    assert master.read_raw(0, views=True) is None
    end = master.put("t", b"hello").end
    assert master.read_raw(end) == b""
    assert master.read_raw(end, views=True) is None
    master._roll()
    assert len(master.read_raw(end)) == FILE_SIZE - end
    assert master.read_raw(FILE_SIZE) == b""


def test_read_raw_with_a_pool_returns_committed_bytes(pair):
    """Bytes that are still in a buffer of the pool are sent after they are committed, as in RocketMQ."""
    never = {"flush_interval_commit_log": NEVER, "commit_interval_commit_log": NEVER}
    master, _ = pair(**MIXES["pool"], **never, wake_commit_when_put_message=False)
    end = master.put("t", b"hello").end
    assert master.read_raw(0) == b""
    master.flush()
    assert len(master.read_raw(0)) == end


def test_views(pair, tmp_path):
    """Views keep their file, also after the store is closed. Cleaning does not delete the file until their release."""
    master, _ = pair()
    fill(master)
    block = master.read_raw(0, 5000)
    with master.read_raw(0, 5000, views=True) as view:
        assert (view.start, len(view), bytes(view)) == (0, len(block), block)
        assert memoryview(view).readonly
        assert master.wait_dispatched(timeout=10)
        assert master.delete_before(FIRST).log_files == 0
    assert master.delete_before(FIRST).log_files == 2
    view = master.read_raw(FIRST, views=True)
    master.close()
    assert bytes(view) == (tmp_path / "master" / "commitlog" / f"{FIRST:020}").read_bytes()
    view.release()


def test_offsets_outside_the_log_are_refused(pair):
    master, _ = pair()
    fill(master)
    end = master.max_phy_offset
    assert master.wait_dispatched(timeout=10)
    master.delete_before(FIRST)
    for offset, named in [(-1, FIRST), (0, FIRST), (FIRST - 1, FIRST), (end + 1, end), (1 << 62, end)]:
        with pytest.raises(PhyOffsetError, match=rf"offset {offset}: .*\b{named}\b") as caught:
            master.read_raw(offset)
        assert caught.value.phy_offset == offset
    with pytest.raises(ValueError, match="max_bytes is 0"):
        master.read_raw(FIRST, 0)


def test_read_raw_starts_at_records_only(pair):
    master, _ = pair()
    ends = [master.put("t", bytes(50)).end for _ in range(3)]
    master._roll()
    good = {0, *ends}
    for offset in [*range(ends[2] + 20), FILE_SIZE - 1, FILE_SIZE - 7, FILE_SIZE - 8]:
        if offset in good:
            assert master.read_raw(offset) != b""
        elif offset <= ends[1] or offset > ends[2]:  # a body of zeros may pass as the start of a record
            with pytest.raises(PhyOffsetError, match=f"offset {offset}: no record begins there"):
                assert master.read_raw(offset) != b""


def test_a_missing_file_is_named(pair, open_store, tmp_path):
    master, _ = pair()
    fill(master)
    master.close()
    (tmp_path / "master" / "commitlog" / f"{FILE_SIZE:020}").unlink()
    master = open_store(tmp_path / "master", **derived.SMALL)
    with pytest.raises(PhyOffsetError, match=f"offset {FILE_SIZE}: the file .* missing; the log continues at {FIRST}"):
        master.read_raw(FILE_SIZE)
    assert len(master.read_raw(FIRST, 1 << 20)) == FILE_SIZE


def test_read_raw_stops_before_damage(pair, open_store, tmp_path):
    master, _ = pair()
    ends = [master.put("t", bytes(50)).end for _ in range(5)]
    master.close()
    path = tmp_path / "master" / "commitlog" / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[ends[1] + 4] ^= 1
    path.write_bytes(data)
    master = open_store(tmp_path / "master", **derived.SMALL)
    assert len(master.read_raw(0)) == ends[1]
    with pytest.raises(PhyOffsetError, match=f"offset {ends[1]}: no record begins there, or it is damaged: bad_magic"):
        master.read_raw(ends[1])


def test_a_reader_while_the_writer_is_open(pair, open_store, tmp_path):
    """In a store that is open for reading only, zero bytes are the end of the log; new files are found."""
    master, replica = pair()
    fill(master, 50)
    reader = open_store(tmp_path / "master", read_only=True, **derived.SMALL)
    assert replicas.copy(reader, replica, start=0) == master.max_phy_offset
    fill(master, 250, first=50)
    assert replicas.copy(reader, replica) == master.max_phy_offset
    with pytest.raises(rocketc.ClosedError):
        reader.append_raw(reader.max_phy_offset, b"")
    for store in (master, replica):
        store.close()
    replicas.assert_equal(tmp_path / "master", tmp_path / "replica")


# ------------------------------------------------------------------------------------------------ cuts


def test_blocks_cut_at_every_byte(pair, tmp_path):
    """The incomplete record at the end is neither stored nor an error. The caller passes it again with the rest."""
    master, replica = pair()
    sizes = [master.put("t", bytes(size), keys="k").size for size in (0, 30, 90)]
    for _ in range(sum(sizes) + 40):
        for size in (0, 30, 90):
            master.put("t", bytes(size), keys="k")
    at = cut = 0
    while cut <= sum(sizes):
        block = master.read_raw(at, sum(sizes))
        end = replica.append_raw(at, block[:cut])
        assert end == replica.max_phy_offset == at + max(e for e in [0, *boundaries(block)] if e <= cut)
        at = replica.append_raw(end, block[end - at :])
        cut += len(block) == sum(sizes)  # a block is shorter at the end of a file
    replicas.copy(master, replica)
    for store in (master, replica):
        store.close()
    replicas.assert_equal(tmp_path / "master", tmp_path / "replica")


def boundaries(block):
    found, at = [], 0
    while at < len(block):
        at += int.from_bytes(block[at : at + 4], "big")
        found.append(at)
    return found


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 3))])
def test_blocks_over_a_roll_cut_at_every_byte(open_store, memory_path, first):
    """The blocks contain the end of one file with its blank record, and the start of the next file."""
    size = 300
    fields = {**derived.SMALL, "mapped_file_size_commit_log": size}
    master, replica = (open_store(memory_path / name, **fields) for name in ("master", "replica"))
    for n in range(250):
        master.put("t", bytes(n % 17))
    for cut in range(first, size, 4):
        at = replica.max_phy_offset
        file = master.read_raw(at, 1 << 20)
        assert (at + len(file)) % size == 0
        last = [0, *boundaries(file)][
            -3
        ]  # the last record and the blank record of the file, and the first record of the next file
        replica.append_raw(at, file[:last])
        block = file[last:] + master.read_raw(at + len(file), 1)
        end = replica.append_raw(at + last, block[:cut])
        assert end == replica.max_phy_offset == at + last + max(e for e in [0, *boundaries(block)] if e <= cut)
        replica.append_raw(end, block[end - at - last :])
    replicas.copy(master, replica)
    for store in (master, replica):
        store.close()
    replicas.assert_equal(memory_path / "master", memory_path / "replica")


def test_one_call_appends_a_block_of_several_files(pair, tmp_path):
    master, replica = pair()
    fill(master)
    block, at = b"", 0
    while more := master.read_raw(at):
        block += more
        at += len(more)
    assert len(block) > 4 * FILE_SIZE
    assert replica.append_raw(0, memoryview(bytearray(block))) == at
    for store in (master, replica):
        store.close()
    replicas.assert_equal(tmp_path / "master", tmp_path / "replica")


# ------------------------------------------------------------------------------------------------ refused


def test_every_damaged_byte_is_refused(pair, open_store, tmp_path):
    """The records have the property CRC. It covers the whole record except the property itself."""
    master, replica = pair(enabled_append_prop_crc=True)
    ends = [master.put("t", b"hello", tags="A", keys="k").end for _ in range(3)]
    replica.append_raw(0, master.read_raw(0, ends[0]))
    block = master.read_raw(ends[0])
    before = (replica.max_phy_offset, replicas.log_of(tmp_path / "replica"))
    for at in range(ends[0]):
        if ends[0] - 21 <= at < ends[0] - 11:
            continue  # the name of the CRC property and the separator before it
        for bit in (0x01, 0x80):
            damaged = bytearray(block)
            damaged[at] ^= bit
            try:
                assert replica.append_raw(ends[0], damaged) == ends[0], f"byte {at} is stored"
            except CorruptRecordError as error:
                assert error.offset == ends[0], at
            else:
                assert at < 4, "only a larger size can look like an incomplete record"
    assert (replica.max_phy_offset, replicas.log_of(tmp_path / "replica")) == before
    assert replica.append_raw(ends[0], block) == ends[2]
    assert replica.put("t", b"").queue_offset == 3


def changed(block, at, new):
    return block[:at] + new + block[at + len(new) :]


@pytest.mark.parametrize(
    ("at", "new", "reason"),
    [
        (0, b"\0\0\0\0", "bad_size"),
        (0, b"\xff\xff\xff\xff", "bad_size"),
        (0, (FILE_SIZE - 7).to_bytes(4, "big"), "bad_size"),
        (4, b"\xda\xa3\x20\xa8", "bad_magic"),
        (8, b"\0\0\0\1", "bad_body_crc"),
        (35, b"\7", "bad_physical_offset"),
        (84, b"\0\1\0\0", "bad_body_length"),
        (88, b"H", "bad_body_crc"),
        (93, b"\x7f", "bad_topic_length"),
        (95, b"\x7f\xff", "bad_properties_length"),
        (95, b"\0\0", "bad_length"),
        (0, bytes(8), "zeroed"),
        (0, oracle.encode_blank(200)[:8], "bad_blank"),
    ],
)
@pytest.mark.parametrize("which", [0, 2])
def test_damage_is_reported_with_offset_and_reason(pair, at, new, reason, which):
    """The error names the first damage. Nothing of the block is stored, not even valid records before the damage."""
    master, replica = pair()
    size = master.put("t", b"hello", tags="A").end
    for _ in range(3):
        master.put("t", b"hello", tags="A")
    damaged = changed(master.read_raw(0), which * size + at, new)
    with pytest.raises(CorruptRecordError, match=f"offset {which * size}: {reason}; no record of the block") as caught:
        replica.append_raw(0, damaged)
    assert (caught.value.offset, caught.value.reason) == (which * size, reason)
    assert (replica.max_phy_offset, replica.queues()) == (0, [])
    assert replica.stats()["refused"] == 1
    assert replica.put("t", b"").queue_offset == 0


@pytest.mark.parametrize(
    ("at", "new", "cut", "reason"),
    [
        (35, b"\7", 35, None),
        (35, b"\7", 36, "bad_physical_offset"),
        (0, (FILE_SIZE - 7).to_bytes(4, "big"), 7, None),
        (0, (FILE_SIZE - 7).to_bytes(4, "big"), 8, "bad_size"),
        (0, oracle.encode_blank(FILE_SIZE - 1), 7, None),
        (0, oracle.encode_blank(FILE_SIZE - 1), 8, "bad_blank"),
        (0, oracle.encode_blank(FILE_SIZE), FILE_SIZE - 1, None),
    ],
)
def test_an_incomplete_record_may_be_damaged(pair, at, new, cut, reason):
    """Damage is refused as soon as the bytes show it: more bytes of the record cannot repair it."""
    _, replica = pair()
    block = changed(oracle.encode("t", bytes(FILE_SIZE - 200)).ljust(FILE_SIZE, b"."), at, new)[:cut]
    if reason is None:
        assert replica.append_raw(0, block) == 0
    else:
        with pytest.raises(CorruptRecordError, match=f"offset 0: {reason}"):
            replica.append_raw(0, block)
    assert replica.max_phy_offset == 0


def test_a_record_without_room_for_a_blank_record_is_refused(pair):
    """No store writes such a record: at least 8 bytes follow the last record of a file."""
    _, replica = pair()
    for spare, reason in [(7, "bad_size"), (1, "bad_size"), (0, "bad_size"), (8, None)]:
        record = oracle.encode("t", bytes(FILE_SIZE - spare - 92))
        assert len(record) == FILE_SIZE - spare
        if reason:
            with pytest.raises(CorruptRecordError, match=reason):
                replica.append_raw(0, record)
        else:
            assert replica.append_raw(0, record + oracle.encode_blank(8)) == FILE_SIZE
    replica.put("t", b"next")
    assert [m.phy_offset for m in rocketc.scan(replica.path)] == [0, FILE_SIZE]


def test_files_of_another_size_are_refused(pair):
    master, replica = pair(replica={"mapped_file_size_commit_log": 2 * FILE_SIZE})
    fill(master, 100)
    at = 0
    with pytest.raises(CorruptRecordError, match="bad_blank") as caught:
        while block := master.read_raw(at):
            at = replica.append_raw(at, block)
    assert caught.value.offset < FILE_SIZE
    assert replica.max_phy_offset == 0


def test_a_block_that_does_not_follow_is_refused(pair, tmp_path):
    master, replica = pair()
    ends = [master.put("t", b"hello").end for _ in range(4)]
    replica.append_raw(0, master.read_raw(0, ends[1]))
    before = replicas.log_of(tmp_path / "replica")
    for at in (0, ends[0], ends[1] - 1, ends[1] + 1, ends[2], FILE_SIZE, -1, 1 << 62, (1 << 63) - 1):
        with pytest.raises(PhyOffsetError, match=rf"offset {at}: the log ends at {ends[1]}$"):
            replica.append_raw(at, master.read_raw(ends[1]))
        with pytest.raises(PhyOffsetError):
            replica.append_raw(at, b"")
    assert replicas.log_of(tmp_path / "replica") == before
    assert replica.append_raw(ends[1], b"") == ends[1]
    assert replica.append_raw(ends[1], master.read_raw(ends[1])) == ends[3]


def test_an_empty_log_must_begin_at_a_file(pair):
    _, replica = pair()
    for at in (1, FILE_SIZE - 1, FILE_SIZE + 1, -FILE_SIZE):
        with pytest.raises(PhyOffsetError, match=f"offset {at}: the log is empty; .* multiple of {FILE_SIZE}"):
            replica.append_raw(at, b"")
    assert replica.append_raw(5 * FILE_SIZE, b"") == 5 * FILE_SIZE
    assert replica.max_phy_offset == 0, "nothing came"


def test_offsets_beyond_the_last_possible_file_are_refused(pair):
    """After the last possible file the log could not continue."""
    _, replica = pair()
    last = (1 << 63) // FILE_SIZE * FILE_SIZE - FILE_SIZE
    with pytest.raises(CorruptRecordError):
        replica.append_raw(last, bytes(2 * FILE_SIZE))
    assert replica.max_phy_offset == 0


@pytest.mark.parametrize("number", [-1, -(1 << 63), (1 << 63) - 1, 1 << 60])
def test_impossible_queue_offsets_are_ignored(pair, number):
    """No CRC covers queue offsets. The record is stored, but not in a queue; the next put ignores its offset."""
    _, replica = pair()
    record = oracle.encode("t", b"hello", queue_offset=number)
    assert replica.append_raw(0, record) == len(record)
    assert replica.put("t", b"").queue_offset == 0


def test_append_raw_reports_why_a_store_takes_nothing(pair):
    master, replica = pair()
    end = master.put("t", b"hello").end
    block = master.read_raw(0)
    replica._hook("busy_ms", 2000)
    with pytest.raises(rocketc.PageCacheBusyError):
        replica.append_raw(0, block)
    replica._hook("busy_ms", 0)
    replica._set_full(True)
    with pytest.raises(rocketc.StoreFullError) as full:
        replica.append_raw(0, block)
    assert full.value.status is PutStatus.SERVICE_NOT_AVAILABLE
    replica._set_full(False)
    for wrong in ("text", 5, None):
        with pytest.raises(TypeError):
            replica.append_raw(0, wrong)
    assert replica.append_raw(0, block) == end
    replica._hook("fail", errno.EIO)
    with pytest.raises(rocketc.StoreFailedError):
        replica.append_raw(end, b"")
    with pytest.raises(rocketc.StoreFailedError):
        replica.close()
    with pytest.raises(rocketc.ClosedError):
        replica.append_raw(end, b"")
    with pytest.raises(rocketc.ClosedError):
        replica.read_raw(0)


def test_a_log_file_that_cannot_be_created(pair, tmp_path):
    """The records that fit into the existing files are appended. The same call succeeds later."""
    master, replica = pair()
    fill(master)
    blocks, at = b"", 0
    while block := master.read_raw(at):
        blocks += block
        at += len(block)
    (tmp_path / "replica" / "commitlog" / f"{FIRST:020}").mkdir()
    with pytest.raises(rocketc.StoreIOError) as caught:
        replica.append_raw(0, blocks)
    assert caught.value.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    assert replica.max_phy_offset == FIRST
    with pytest.raises(rocketc.StoreIOError):
        replica.append_raw(FIRST, blocks[FIRST:])
    (tmp_path / "replica" / "commitlog" / f"{FIRST:020}").rmdir()
    assert replica.append_raw(FIRST, blocks[FIRST:]) == at
    for store in (master, replica):
        store.put("T0", b"same next offset")
        store.put("T1", b"same next offset")
        store.close()
    numbers = [[r["queueOffset"] for r in records_of(tmp_path / name)] for name in ("master", "replica")]
    assert numbers[0] == numbers[1]
    assert_files(tmp_path / "replica", derived.SMALL)


# ------------------------------------------------------------------------------------------------ from C


@pytest.mark.parametrize("max_bytes", [*(pytest.param(n, marks=pytest.mark.long) for n in (1, 5000)), 1 << 20])
def test_a_caller_of_the_c_interface_copies_a_log(pair, tmp_path, max_bytes):
    master, replica = pair(**LIGHT)
    of_all_kinds(master)
    fill(master)
    assert extension.load("raw").copy(master, replica, 0, max_bytes) == (0, master.max_phy_offset)
    for store in (master, replica):
        store.close()
    replicas.assert_equal(tmp_path / "master", tmp_path / "replica")


def test_raw_read_of_any_bytes(pair):
    """A master of RocketMQ slaves may cut blocks anywhere: at the limit, at the end of the file, at max_bytes."""
    master, _ = pair()
    fill(master, 100)
    read = extension.load("raw").read
    log = b"".join(data for _, data, _ in oracle.read_log(f"{master.path}/commitlog"))
    end = master.max_phy_offset
    for start in (0, 1, 77, FILE_SIZE - 1, FILE_SIZE, FILE_SIZE + 5, end - 1):
        for limit in (start, start + 1, FILE_SIZE, FILE_SIZE + 50, end, 1 << 62):
            for max_bytes in (1, 100, 1 << 20):
                stop = min(limit, end, start + max_bytes, start // FILE_SIZE * FILE_SIZE + FILE_SIZE)
                assert read(master, start, limit, max_bytes, False) == (0, log[start : max(stop, start)])
    assert read(master, end, 1 << 62, 100, False) == (0, b"")
    assert read(master, end + 1, 1 << 62, 100, False)[0] < 0
    assert read(master, -1, 1 << 62, 100, False)[0] > 0
    assert read(master, 1, 1 << 62, 100, True)[0] < 0


# ------------------------------------------------------------------------------------------------ with other calls


def test_a_slave_accepts_append_raw(pair):
    """A slave accepts only records of its master, and adds no topics to its table for them."""
    master, replica = pair(replica={"broker_role": "SLAVE"})
    fill(master, 30)
    replicas.copy(master, replica)
    with pytest.raises(rocketc.ClosedError, match="slave"):
        replica.put("T0", b"")
    assert len(list(rocketc.scan(replica.path))) == 30


def test_append_raw_creates_no_topics(pair, tmp_path):
    master, replica = pair()
    replica.create_topic("own")
    fill(master, 10)
    replicas.copy(master, replica)
    replica.wait_dispatched(timeout=10)
    assert set(replica.topics()) == {"own"}


def test_a_put_between_two_blocks(pair):
    """After a put the replica's log differs from the master's, and append_raw reports that."""
    master, replica = pair()
    end = master.put("t", b"hello").end
    block = master.read_raw(0)
    assert replica.append_raw(0, block) == end
    own = replica.put("t", b"own")
    assert (own.phy_offset, own.queue_offset) == (end, 1)
    master.put("t", b"next")
    with pytest.raises(PhyOffsetError, match=f"offset {end}: the log ends at {own.end}"):
        replica.append_raw(end, master.read_raw(end))


@pytest.mark.parametrize("lock", ["spin", "reentrant", "adaptive"])
def test_puts_of_other_threads_into_the_same_queue(open_store, tmp_path, lock):
    """A put reserves its queue offsets before it takes the put lock, and put_many() takes the lock several times. No
    block with the same queue offsets may be appended in between."""
    native = extension.load("raw")
    file_size = 1 << 20
    store = open_store(lock=lock, mapped_file_size_commit_log=file_size)
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        putting = threads.submit(lambda: [store.put_many("t", [b"same"] * 2000) for _ in range(10)])
        went_in = 0
        while not putting.done():
            went_in += native.append_often(store, oracle.encode("t", b"same"), 1000)
        putting.result()
    went_in += native.append_often(store, oracle.encode("t", b"same"), 1)
    store.close()
    numbers = [message.queue_offset for message in rocketc.scan(tmp_path)]
    assert numbers == list(range(20_000 + went_in))


def test_append_raw_waits_for_the_deletion_of_a_topic(pair):
    """This includes a topic that is created in the meantime. A caller of the C interface waits inside the call."""
    master, replica = pair()
    fill(master, 100)
    native = extension.load("raw")
    end = replica.append_raw(0, master.read_raw(0, 500))
    block = master.read_raw(end)
    offsets = native.offsets_of(replica)
    for topic in (b"T1", b"some other"):
        offsets.hold({topic})
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(native.append, replica, end, block)
            assert not concurrent.futures.wait([waiting], timeout=0.1).done or topic != b"T1"
            offsets.release()
            rc, end, _, _ = waiting.result(timeout=10)
        assert (rc, replica.max_phy_offset) == (0, end)
        block = master.read_raw(end)
    replicas.copy(master, replica)
    assert replica.max_phy_offset == master.max_phy_offset


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_appended_blocks_are_flushed_later(pair, flush):
    """append_raw does not wait. In sync mode it starts the flush, and readers see the durable bytes."""
    master, replica = pair(flush=flush, flush_interval_commit_log=NEVER if flush == "async" else 500)
    fill(master, 100)
    master.flush()
    end = replicas.copy(master, replica)
    if flush == "async":
        assert replica.flushed_phy_offset == 0
        replica.flush()
    assert replica.wait_flushed(end, timeout=10)
    assert replica.flushed_phy_offset == end
    assert replica.wait_dispatched(timeout=10)
    assert sum(replica.max_offset(*queue) for queue in replica.queues()) == 100


def test_append_raw_wakes_readers(pair):
    master, replica = pair()
    master.put("t", b"hello")
    found = []
    thread = threading.Thread(target=lambda: found.append(replica.get("t", wait=20)))
    thread.start()
    time.sleep(0.1)
    start = time.monotonic()
    replica.append_raw(0, master.read_raw(0))
    thread.join(10)
    assert [m.body for m in found[0]] == [b"hello"]
    assert time.monotonic() - start < 5
