"""_key_index: RocketMQ's files byte for byte, keys, chains over several files, times, open, flush, expiry."""

import os
import shutil
from pathlib import Path

import pytest
from support import oracle, stores
from support.index_files import SPECIFIED, T0, contents, fill, found, name_time

import rocketc
from rocketc.derived._index_reader import IndexFile
from rocketc.derived._key_index import KeyIndex
from rocketc.errors import ClosedError, StoreIOError

ROLLBACK = 0xC  # bits of sysFlag


@pytest.fixture
def index(tmp_path):
    """index(slots=10, units=4, **fields): a loaded KeyIndex of the folder `index`."""
    made = []

    def make(slots=10, units=4, folder=tmp_path / "index", load=True, **fields):
        made.append(KeyIndex(folder, slots, units, **fields))
        if load:
            assert made[-1].load() == []
        return made[-1]

    yield make
    for one in made:
        one.close()


# ---------------------------------------------------------------- files of RocketMQ


def test_the_file_of_the_specification(index):
    one = index()
    for key, phy_offset, time in [("k1", 0, T0), ("k1", 133, T0 + 2500), ("k2", 266, T0 + 3999)]:
        one.put_keys("TopicTest", phy_offset, time, keys=key)
    [path] = one.files
    assert Path(path).read_bytes() == SPECIFIED
    assert found(one, "k1", "TopicTest") == [133, 0]
    one.put_keys("TopicTest", 399, T0 + 5000, keys="k1")  # RocketMQ puts it into the next file
    assert Path(path).read_bytes() == SPECIFIED
    assert len(one.files) == 2
    assert found(one, "k1", "TopicTest") == [399, 133, 0]


def keyed(store):
    """(topic, physical offset, store timestamp, UNIQ_KEY, KEYS) of the messages that RocketMQ indexes, in log order."""
    for m in rocketc.scan(store.path, errors="skip", unwrap=False, decompress=False, crc="none"):
        if m.sys_flag & ROLLBACK != ROLLBACK:
            yield m.topic, m.phy_offset, m.store_timestamp, m.properties.get("UNIQ_KEY"), m.properties.get("KEYS")


@pytest.mark.parametrize("name", stores.NAMES)
def test_golden_files_are_written_byte_for_byte(golden, index, tmp_path, name):
    store = golden(name)
    slots, units = (int(store.about["config"][key]) for key in ("maxHashSlotNum", "maxIndexNum"))
    one = index(slots, units)
    told = contents(store.path / "index")
    names = iter(sorted(told))
    for topic, phy_offset, time, unique_key, keys in keyed(store):
        for key in [unique_key, *(keys or "").split(" ")]:
            if key:
                if not one.files or one.headers()[-1][1].index_count == units:
                    one._hook("clock", name_time(next(names)))
                one.put_keys(topic, phy_offset, time, keys=key)
    one.flush()
    made = contents(tmp_path / "index")
    if name in stores.WHOLE:
        assert made == told
    else:  # damaged stores were killed: their newest file may have had more units than the log has keys
        assert list(made)[: len(told)] == list(told)[: len(made)]
        assert made[min(told)] == told[min(told)]


@pytest.mark.parametrize("name", stores.WHOLE)
def test_golden_files_agree_with_their_log(golden, index, tmp_path, name):
    """Checked from its start, its middle and its end, no unit is in doubt and nothing is written."""
    store = golden(name)
    slots, units = (int(store.about["config"][key]) for key in ("maxHashSlotNum", "maxIndexNum"))
    shutil.copytree(store.path / "index", tmp_path / "index")
    before = contents(tmp_path / "index")
    log = list(keyed(store))
    one = index(slots, units)
    assert one.check() == []
    for start in (0, 1, len(log) // 3, len(log) // 2, len(log) - 1):
        one.start_check(log[start][1])
        assert all(one.put_keys(*record, compare=True) for record in log[start:])
        assert one.end_check(), one.mismatch
    assert one.mismatch is None
    assert contents(tmp_path / "index") == before


@pytest.mark.parametrize("name", stores.WHOLE)
def test_keys_of_golden_files_are_found(golden, name):
    """Each key of a golden store has the offsets that the oracle finds in the files."""
    store = golden(name)
    slots = int(store.about["config"]["maxHashSlotNum"])
    one = KeyIndex(store.path / "index", read_only=True)  # the number of slots is detected
    assert one.load() == []
    chains = {}
    for data in contents(store.path / "index").values():
        header, _, entries = oracle.index_file(data, slots)
        for e in entries[1 : header.index_count]:
            chains.setdefault(e.key_hash, []).insert(0, e.phy_offset)
    for topic, _, _, unique_key, keys in keyed(store):
        for key in filter(None, [unique_key, *(keys or "").split(" ")]):
            assert found(one, key, topic) == chains[oracle.key_hash(topic, key)]
    one.close()


# ---------------------------------------------------------------- keys


def hashed(topic, unique_key, keys):
    return [oracle.key_hash(topic, key) for key in [unique_key, *keys.split(" ")] if key]


@pytest.mark.parametrize(
    ("unique_key", "keys"),
    [
        ("", ""),
        ("U", ""),
        ("U", "a b"),
        ("", " a  b "),
        ("U", "   "),
        ("U", "U U"),
        ("", "a\tb\u00a0c"),  # only spaces separate keys
        ("Ü𝄞", "日本 é\u0000 "),
        ("", "x" * 5000),
    ],
)
def test_keys_of_a_record(index, unique_key, keys):
    """UNIQ_KEY comes first, then each non-empty part of KEYS between single spaces."""
    one = index(10, 100)
    one.put_keys("Tøpic", 5, T0, unique_key, keys)
    units = [unit for path in one.files for block in IndexFile(path, 10).units() for unit in block]
    assert [unit[1] for unit in units] == hashed("Tøpic", unique_key, keys)
    assert all(unit[2] == 5 for unit in units)


def test_a_hash_without_an_absolute_value(index):
    """|-2**31| is not a Java int: RocketMQ uses 0."""
    key = "qolygtg"
    assert oracle.java_hash(f"t#{key}") == -(1 << 31)
    one = index()
    one.put_keys("t", 7, T0, keys=key)
    [unit] = [unit for block in IndexFile(one.files[0], 10).units() for unit in block]
    assert (unit[1], unit[5]) == (0, 0)
    assert found(one, key) == [7]


def test_keys_that_collide(index):
    """Keys with equal hashes are not distinguished here; other keys of the same slot are."""
    one = index(1, 100)
    for n, key in enumerate(["Aa", "BB", "C", "Aa", "D"]):
        one.put_keys("t", n, T0, keys=key)
    assert found(one, "Aa") == found(one, "BB") == [3, 1, 0]
    assert found(one, "C") == [2]
    assert found(one, "E") == []


# ---------------------------------------------------------------- files


def test_chains_over_several_files(index):
    """RocketMQ counts 7 keys in a file of 8 units: 55 keys need 8 files."""
    one = index(3, 8)
    for n in range(55):
        one.put_keys("t", n * 100, T0 + n, keys="same")
    assert len(one.files) == 8
    assert found(one, "same") == [n * 100 for n in reversed(range(55))]
    assert one.end_phy_offset == 5400
    assert one.check() == []


def test_a_file_as_in_the_specification(index):
    """100 slots, 400 units: the file takes 399 keys; the next key is put into another file."""
    one = index(100, 400)
    for n in range(400):
        one.put_keys("t", n, T0, keys=str(n))
    assert [header.index_count for _, header in one.headers()] == [400, 2]
    assert found(one, "60") == [60]


def test_names_follow_the_clock_and_never_go_back(index):
    one = index(3, 2)  # one key per file
    names = [20261121081424858, 20261121081424859, 20261121081424860, 20261121235959000]
    for n, clock in enumerate([names[0], names[0], 20251121081424858, names[3]]):
        one._hook("clock", name_time(clock))
        one.put_keys("t", n, T0, keys="k")
    assert [int(os.path.basename(path)) for path in one.files] == names
    assert found(one, "k") == [3, 2, 1, 0]


def test_a_file_name_that_exists(index, tmp_path):
    one = index(3, 2)
    one._hook("clock", name_time(20261121081424858))
    (tmp_path / "index" / "20261121081424858").touch()
    one.put_keys("t", 1, T0, keys="k")
    assert [os.path.basename(path) for path in one.files] == ["20261121081424859"]
    assert (tmp_path / "index" / "20261121081424858").read_bytes() == b""


def test_the_first_unit_of_a_file_counts_from_the_end_of_the_previous_file(index):
    """As in RocketMQ, a new file starts at the end time of the previous one until its first unit is written."""
    one = index(3, 3)
    for n, time in enumerate([T0, T0 + 4000, T0 + 10_500]):
        one.put_keys("t", n, time, keys="k")
    [before, after] = one.headers()
    assert (before[1].end_timestamp, after[1].begin_timestamp) == (T0 + 4000, T0 + 10_500)
    _, _, entries = oracle.index_file(Path(after[0]).read_bytes(), 3)
    assert entries[1].seconds == 6


def test_a_file_is_created_by_its_first_key(index, tmp_path):
    one = index(5_000_000, 20_000_000)
    assert list((tmp_path / "index").iterdir()) == []
    assert (one.end_phy_offset, one.files, found(one, "k")) == (-1, [], [])
    one.put_keys("t", 0, T0, keys="k")
    [path] = (tmp_path / "index").iterdir()
    assert path.stat().st_size == 420_000_040
    assert path.stat().st_blocks * 512 < 30 << 20  # disk space for the slots, but not yet for the units
    assert found(one, "k") == [0]
    assert one.end_phy_offset == 0


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 6, 7, 100])
def test_a_loaded_index_continues(index, tmp_path, count):
    whole = index(5, 4, tmp_path / "whole")
    whole._hook("clock", name_time(20261121081424858))
    fill(whole, 2 * count)
    one = index(5, 4)
    one._hook("clock", name_time(20261121081424858))
    fill(one, count)
    one.flush()
    one.close()
    one = index(5, 4)
    one._hook("clock", name_time(20261121081424858))
    assert [found(one, f"k{n}") for n in range(count)] == [[n * 100] for n in range(count)]
    fill(one, count, start=count)
    assert contents(tmp_path / "index") == contents(tmp_path / "whole")


def test_load_changes_no_file(index, tmp_path):
    one = index(5, 4)
    fill(one, 7)
    one.flush()
    one.close()
    for path in (tmp_path / "index").iterdir():
        os.utime(path, (1, 1))
    two = index(5, 4)
    two.start_check(0)
    assert all(two.put_keys("t", n * 100, T0 + n * 1000, keys=f"k{n}", compare=True) for n in range(7))
    assert two.end_check()
    two.flush()
    two.close()
    assert [path.stat().st_mtime for path in (tmp_path / "index").iterdir()] == [1] * 3


# ---------------------------------------------------------------- times


def test_times_are_those_of_rocketmq(index):
    """The time of a unit is in whole seconds: RocketMQ does not find a record by its own time, rocketc does."""
    one = index(10, 100)
    for n in range(10):
        one.put_keys("t", n, T0 + n * 700, keys="k")
    times = {n: T0 + n * 700 // 1000 * 1000 for n in range(10)}
    for begin in range(T0 - 1000, T0 + 8000, 350):
        for end in (begin, begin + 999, begin + 3000, 1 << 62):
            java = [n for n in reversed(range(10)) if begin <= times[n] <= end]
            first, last = T0, T0 + 6300
            if not ((begin < first and end > last) or first <= begin <= last or first <= end <= last):
                java = []
            assert found(one, "k", begin=begin, end=end, java=True) == java
            ours = found(one, "k", begin=begin, end=end)
            assert set(ours) >= {n for n in range(10) if begin <= T0 + n * 700 <= end}
            assert all(begin - 999 <= T0 + n * 700 <= end + 999 or n <= 1 for n in ours)


def test_a_clock_that_goes_back_hides_no_key(index):
    """RocketMQ stops at the first unit before `begin`, and uses a file's start time for earlier times."""
    one = index(10, 100)
    for n, seconds in enumerate([100, 110, 50, 60, 120, 90]):
        one.put_keys("t", n, T0 + seconds * 1000, keys="k")
    inside = {n for n, s in enumerate([100, 110, 50, 60, 120, 90]) if 45 <= s <= 65}
    assert inside <= set(found(one, "k", begin=T0 + 45_000, end=T0 + 65_000))
    assert found(one, "k", begin=T0 + 105_000, java=True) == []
    assert found(one, "k", begin=T0 + 105_000) == [4, 1]


def test_times_far_apart(index):
    """More than 2**31 seconds, and no start time."""
    one = index(10, 100)
    one.put_keys("t", 0, 0, keys="k")
    one.put_keys("t", 1, 1 << 60, keys="k")
    assert found(one, "k") == [1, 0]
    _, _, entries = oracle.index_file(Path(one.files[0]).read_bytes(), 10)
    assert [e.seconds for e in entries[1:3]] == [0, 0]
    two = index(10, 100, one.folder + "2")
    two.put_keys("t", 0, 1000, keys="k")
    two.put_keys("t", 1, 1 << 60, keys="k")
    _, _, entries = oracle.index_file(Path(two.files[0]).read_bytes(), 10)
    assert [e.seconds for e in entries[1:3]] == [0, (1 << 31) - 1]
    assert found(two, "k", begin=1 << 59) == [1]


def test_intervals_skip_files(index):
    one = index(3, 4)
    fill(one, 30)  # 3 keys per file, one second apart
    assert found(one, "k4", begin=T0 + 4000, end=T0 + 4000) == [400]
    assert found(one, "k4", begin=T0 + 6000) == []
    assert found(one, "k4", end=T0 + 2999) == []


# ---------------------------------------------------------------- open, flush, expiry


def test_files_newer_than_the_checkpoint_are_rebuilt_after_an_unclean_exit(index, tmp_path):
    one = index(5, 4)
    fill(one, 10)  # the files end at 2, 5, 8 and 9 seconds
    names = [os.path.basename(path) for path in one.files]
    one.close()
    two = index(5, 4, load=False)
    assert two.load(False, T0 + 5000) == []
    assert [os.path.basename(path) for path in two.dropped] == names[2:]
    assert sorted(os.listdir(tmp_path / "index")) == names[:2]
    assert two.end_phy_offset == 500
    two.start_check(two.end_phy_offset)
    for n in range(5, 10):
        assert two.put_keys("t", n * 100, T0 + n * 1000, keys=f"k{n}", compare=True)
    assert two.end_check()
    assert [found(two, f"k{n}") for n in range(10)] == [[n * 100] for n in range(10)]


def test_keys_of_one_record_in_two_files(index):
    """Only the keys of the record that the remaining file lacks are put again. RocketMQ puts all keys."""
    one = index(5, 4)
    one.put_keys("t", 0, T0, keys="a b")
    one.put_keys("t", 100, T0 + 1, keys="c d e")
    told = [[unit[1] for block in IndexFile(path, 5).units() for unit in block] for path in one.files]
    one.close()
    two = index(5, 4, load=False)
    assert two.load(False, T0 + 1) == []  # the second file ends at the same time
    two.destroy()
    two.put_keys("t", 0, T0, keys="a b")
    two.put_keys("t", 100, T0 + 1, keys="c")
    two.start_check(100)
    assert two.put_keys("t", 100, T0 + 1, keys="c d e", compare=True)
    assert [[unit[1] for block in IndexFile(path, 5).units() for unit in block] for path in two.files] == told


def test_the_last_record_of_a_file_may_have_its_units_twice(index):
    """RocketMQ's recovery puts it again."""
    one = index(5, 4)
    one.put_keys("t", 0, T0, "u0", "a")
    one.put_keys("t", 100, T0 + 1, "u1")
    one.put_keys("t", 100, T0 + 1, "u1")
    one.put_keys("t", 200, T0 + 2, "u2", "b")
    before = [Path(path).read_bytes() for path in one.files]
    for start in (0, 100):
        one.start_check(start)
        if start == 0:
            assert one.put_keys("t", 0, T0, "u0", "a", compare=True)
        assert one.put_keys("t", 100, T0 + 1, "u1", compare=True)
        assert one.put_keys("t", 200, T0 + 2, "u2", "b", compare=True)
        assert one.end_check()
    assert [Path(path).read_bytes() for path in one.files] == before


@pytest.mark.parametrize("units", [4, 5, 6, 7, 8, 9, 100])
def test_records_that_rocketmq_puts_again_when_it_starts(index, units):
    """Records without a queue after the last record with one have their units twice, also in two files."""
    one = index(5, units)
    log = [(n * 100, T0 + n * 1000, f"u{n}", "same") for n in range(8)]
    for record in [*log[:4], *log[2:4], *log[4:6], *log[3:6], *log[6:]]:
        one.put_keys("t", *record)
    before = [Path(path).read_bytes() for path in one.files]
    for start in range(8):
        one.start_check(start * 100)
        assert all(one.put_keys("t", *record, compare=True) for record in log[start:]), one.mismatch
        assert one.end_check()
    assert one.check() == []
    one.close()
    two = index(5, units)
    assert [Path(path).read_bytes() for path in two.files] == before
    assert found(two, "u3") == [300] * 3


@pytest.mark.parametrize(
    ("records", "mismatch"),
    [
        ([(0, T0, "a"), (100, T0 + 1000, "X"), (200, T0 + 2000, "c")], "unit 2"),  # another key
        ([(0, T0, "a"), (101, T0 + 1000, "b"), (200, T0 + 2000, "c")], "unit 2"),  # another record
        ([(0, T0, "a"), (100, T0 + 2000, "b"), (200, T0 + 2000, "c")], "unit 2"),  # another second
        ([(0, T0 + 1, "a"), (100, T0 + 1000, "b"), (200, T0 + 2000, "c")], "unit 1"),  # another begin
        ([(0, T0, "a"), (100, T0 + 1000, "b"), (200, T0 + 2001, "c")], "unit 3"),  # another end
        ([(0, T0, "a"), (200, T0 + 2000, "c")], "unit 2"),  # one record less
        ([(0, T0, "a"), (50, T0 + 500, "x"), (100, T0 + 1000, "b"), (200, T0 + 2000, "c")], "unit 2"),  # one more
        ([(0, T0, "a"), (100, T0 + 1000, "b")], "unit 3"),  # the log ends earlier
    ],
)
def test_an_index_that_differs_from_the_log_is_rebuilt(index, tmp_path, records, mismatch):
    one = index(5, 10)
    for phy_offset, time, key in [(0, T0, "a"), (100, T0 + 1000, "b"), (200, T0 + 2000, "c")]:
        one.put_keys("t", phy_offset, time, keys=key)
    one.start_check(0)
    done = all(one.put_keys("t", p, time, keys=key, compare=True) for p, time, key in records) and one.end_check()
    assert not done
    assert mismatch in one.mismatch
    assert one.repair() == -1
    assert one.mismatch is None
    one.start_check(0)
    assert all(one.put_keys("t", p, time, keys=key, compare=True) for p, time, key in records)
    assert one.end_check()
    assert [found(one, key) for _, _, key in records] == [[p] for p, _, _ in records]
    assert one.check() == []


def test_only_doubtful_files_are_rebuilt(index):
    one = index(5, 4)
    fill(one, 20)
    names = one.files
    one.start_check(0)
    for n in range(20):
        if not one.put_keys("t", n * 100, T0 + n * 1000, keys=f"k{n}" if n != 10 else "other", compare=True):
            break
    assert n == 10
    assert one.repair() == 800
    assert one.files == names[:3]
    one.start_check(800)
    for n in range(8, 20):
        assert one.put_keys("t", n * 100, T0 + n * 1000, keys=f"k{n}", compare=True)
    assert one.end_check()
    assert [found(one, f"k{n}") for n in range(20)] == [[n * 100] for n in range(20)]


def test_flush_returns_the_end_time_of_the_newest_full_file(index):
    """The file that is being written does not count. This is RocketMQ's rule for indexMsgTimestamp."""
    one = index(5, 4)
    fill(one, 2)
    assert one.flush() == 0
    fill(one, 1, start=2)
    assert one.flush(False) == T0 + 2000
    fill(one, 2, start=3)
    assert one.flush() == T0 + 2000
    fill(one, 4, start=5)
    assert one.flush(False) == T0 + 8000
    assert one.flush() == T0 + 8000
    one.close()
    assert index(5, 4).flush() == T0 + 8000


def test_delete_expired(index):
    one = index(5, 4)
    fill(one, 10)  # the files end at 200, 500, 800, 900
    names = one.files
    assert one.delete_expired(200) == 0
    assert one.delete_expired(501) == 2
    assert one.files == names[2:]
    assert [found(one, f"k{n}") for n in range(10)] == [[] for n in range(6)] + [[n * 100] for n in range(6, 10)]
    assert one.delete_expired(1 << 40) == 1  # never the last file
    assert one.files == names[3:]
    fill(one, 5, start=10)
    assert found(one, "k14") == [1400]
    one.start_check(900)
    assert all(one.put_keys("t", n * 100, T0 + n * 1000, keys=f"k{n}", compare=True) for n in range(9, 15))
    assert one.end_check()


def test_destroy(index, tmp_path):
    one = index(5, 4)
    fill(one, 10)
    one.destroy()
    assert list((tmp_path / "index").iterdir()) == []
    assert (found(one, "k1"), one.end_phy_offset) == ([], -1)
    fill(one, 10)
    assert found(one, "k1") == [100]


def test_closed(index):
    one = index(5, 4)
    fill(one, 10)
    one.close()
    one.close()
    for call in (lambda: found(one, "k1"), one.flush, one.load, lambda: one.put_keys("t", 1, 1, "k")):
        with pytest.raises(ClosedError):
            call()


def test_read_only_follows_the_writer(index, tmp_path):
    one = index(5, 4)
    reader = index(5, 4, read_only=True)
    assert found(reader, "k0") == []
    for n in range(20):
        fill(one, 1, start=n)
        reader.refresh()
        assert found(reader, f"k{n}") == [n * 100], n
        assert [h for _, h in reader.headers()][:-1] == [h for _, h in one.headers()][:-1]
    one.delete_expired(1000)
    reader.refresh()
    assert reader.files == one.files
    assert found(reader, "k2") == []
    assert found(reader, "k19") == [1900]
    for call in (reader.destroy, reader.repair, lambda: reader.delete_expired(1), lambda: fill(reader, 1)):
        with pytest.raises(StoreIOError, match="Read-only"):
            call()
    assert reader.files == one.files


def test_a_reader_of_files_that_rocketmq_writes(index):
    """RocketMQ writes a file's header only from time to time: slots refer to units that it does not count yet."""
    one = index(5, 8)
    fill(one, 10)
    told = Path(one.files[1]).read_bytes()[:36]
    for header in (bytes(40), told + b"\0\0\0\2"):
        with open(one.files[1], "r+b") as file:
            file.write(header)
        reader = index(5, 8, read_only=True)
        assert [found(reader, f"k{n}") for n in range(10)] == [[n * 100] for n in range(10)]
        assert found(reader, "k9", begin=T0 + 9000, end=T0 + 9000) == [900]


def test_arguments(tmp_path):
    for fields in ({"slots": 0}, {"units": 1}, {"slots": 1 << 31}, {"slots": 5_000_000, "units": 107_000_000}):
        with pytest.raises(ValueError, match=r"slots|units"):
            KeyIndex(tmp_path, **fields)
