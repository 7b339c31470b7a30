"""_key_index: damage of every kind, full disks, files that are cut short, and readers that run during writes."""

import contextlib
import os
import random
import shutil
import struct
import threading
import time
from pathlib import Path

import pytest
from support import oracle
from support.index_files import T0, contents, fill, found, name_time

from rocketc.derived._key_index import KeyIndex
from rocketc.errors import CorruptRecordError, StoreIOError

pytestmark = pytest.mark.promise(6)


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


LOG = [(n * 100, T0 + n * 300, f"u{n}", f"k{n % 7} k{n % 5}") for n in range(40)]


def bring_up(one, log=LOG, **fields):
    """Do what the opening of a store does: load, compare with the log from its start, rebuild doubtful files."""
    told = one.load(**fields)
    if told:
        one.repair()
    start = -1
    for _ in range(len(log)):
        one.start_check(start)
        left = [record for record in log if record[0] >= start]
        if all(one.put_keys("t", *record, compare=True) for record in left) and one.end_check():
            return told
        told.append(one.mismatch)
        start = one.repair()
    raise AssertionError(told)


def make_index(index, folder, log=LOG, slots=5, units=16):
    one = index(slots, units, folder)
    one._hook("clock", name_time(20261121081424858))
    for record in log:
        one.put_keys("t", *record)
    one.flush()
    one.close()
    return contents(folder)


def check_answers(one, log=LOG):
    for key in {key for record in log for key in [record[2], *record[3].split()]}:
        hashes = {oracle.key_hash("t", key)}
        told = [r[0] for r in reversed(log) for k in [r[2], *r[3].split()] if oracle.key_hash("t", k) in hashes]
        assert found(one, key) == told


def bring_up_damaged(index, folder, before, *, deep=True):
    """Open the index with the files in the folder. The result must equal `before` except for the file names."""
    one = KeyIndex(folder, 5, 16)
    told = bring_up(one)
    if deep:
        told += one.check()
        if told:
            start = one.repair()
            one.start_check(start)
            assert all(one.put_keys("t", *r, compare=True) for r in LOG if r[0] >= start)
    check_answers(one)
    assert one.check() == []
    one.close()
    assert list(contents(folder).values()) == list(before.values())
    return told


@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.long)])
def test_damage_of_every_byte_is_found(index, tmp_path, step):
    """Damage of each byte is found and the file is rebuilt. Before that, lookups are correct or raise errors."""
    before = make_index(index, tmp_path / "index")
    names = list(before)
    rng = random.Random(1)
    last = {name: 40 + 4 * 5 + 20 * struct.unpack_from(">i", before[name], 36)[0] for name in names}
    for name in names[:2]:
        for at in range(last[name]):
            if 60 <= at < 80 or (92 <= at < 96 and name == names[0]):
                continue  # unit 0, which is never read, and a time relative to the end of a file before the first
            if (at >= 100 and at % step) or (at < 40 and name != names[1]):
                continue
            data = bytearray(before[name])
            data[at] ^= 1 << rng.randrange(8)
            (tmp_path / "index" / name).write_bytes(bytes(data))
            assert bring_up_damaged(index, tmp_path / "index", before), (name, at)
            for path in (tmp_path / "index").iterdir():
                path.unlink()
            for other in names:
                (tmp_path / "index" / other).write_bytes(before[other])


def test_a_damaged_file_is_never_misread(index, tmp_path):
    """Random bytes at random positions: a lookup is correct, or raises CorruptRecordError with file and byte."""
    make_index(index, tmp_path / "index", units=200)
    [path] = (tmp_path / "index").iterdir()
    before = path.read_bytes()
    rng = random.Random(2)
    raised = 0
    for _ in range(300):
        data = bytearray(before)
        for _ in range(rng.randrange(1, 20)):
            at = rng.randrange(40, 60 + 20 * 121)
            data[at : at + 4] = rng.choice(
                [bytes(4), b"\xff" * 4, rng.randbytes(4), rng.randrange(200).to_bytes(4, "big")]
            )
        path.write_bytes(bytes(data))
        one = KeyIndex(path.parent, 5, 200)
        if one.load():
            one.close()
            continue
        for key in ("k1", "k2", "u3", "other"):
            try:
                assert len(found(one, key)) <= 121
            except CorruptRecordError as error:
                raised += 1
                assert error.file == str(path)
                assert 40 <= error.offset < len(data)
                assert error.reason == "bad_chain"
        one.close()
    assert raised > 50


@pytest.mark.parametrize("cut", [0, 1, 39, 40, 59, 60, 100, 379])
def test_a_file_that_is_too_short(index, tmp_path, cut):
    before = make_index(index, tmp_path / "index")
    name = list(before)[1]
    os.truncate(tmp_path / "index" / name, cut)
    [told, *_] = bring_up_damaged(index, tmp_path / "index", before)
    assert f"{name}: it has {cut} bytes" in told


def test_a_file_that_is_missing(index, tmp_path):
    for missing in range(8):
        shutil.rmtree(tmp_path / "index", ignore_errors=True)
        before = make_index(index, tmp_path / "index")
        (tmp_path / "index" / list(before)[missing]).unlink()
        told = bring_up_damaged(index, tmp_path / "index", before)
        assert told or missing == len(before) - 1


def test_exchanged_files(index, tmp_path):
    before = make_index(index, tmp_path / "index")
    first, second, *_ = before
    (tmp_path / "index" / first).write_bytes(before[second])
    (tmp_path / "index" / second).write_bytes(before[first])
    assert bring_up_damaged(index, tmp_path / "index", before)


def test_the_index_of_another_store(index, tmp_path):
    other = [(n * 100, T0 + n * 300, f"x{n}", f"k{n % 7}") for n in range(60)]
    before = make_index(index, tmp_path / "index")
    shutil.rmtree(tmp_path / "index")
    make_index(index, tmp_path / "index", other)
    assert bring_up_damaged(index, tmp_path / "index", before)


def test_changed_settings(index, tmp_path):
    """RocketMQ cannot use files of other settings either: they are rebuilt."""
    before = make_index(index, tmp_path / "index")
    shutil.rmtree(tmp_path / "index")
    make_index(index, tmp_path / "index", slots=10, units=8)
    assert "with these settings" in bring_up_damaged(index, tmp_path / "index", before)[0]


def test_files_with_other_names_are_left_alone(index, tmp_path):
    before = make_index(index, tmp_path / "index")
    (tmp_path / "index" / "notes.txt").write_text("mine")
    (tmp_path / "index" / "123").mkdir()
    one = index(5, 16)
    check_answers(one)
    one.destroy()
    assert sorted(os.listdir(tmp_path / "index")) == ["123", "notes.txt"]
    assert len(before) == 8


def test_a_reader_of_a_damaged_index_gets_an_error(index, tmp_path):
    before = make_index(index, tmp_path / "index")
    name = list(before)[3]
    (tmp_path / "index" / name).write_bytes(before[name][:100])
    one = index(5, 16, load=False, read_only=True)
    [told] = one.load()
    assert name in told
    with pytest.raises(CorruptRecordError, match=name):
        found(one, "k1")
    assert contents(tmp_path / "index")[name] == before[name][:100]


def test_an_unfinished_put_of_a_killed_process(index, tmp_path):
    """A slot refers to a unit that the header does not count: the next put overwrites it and repairs the chain."""
    before = make_index(index, tmp_path / "index", LOG[:3], units=100)
    [name] = before
    more = make_index(index, tmp_path / "more", LOG[:4], units=100)[name]
    for keep in (40, 60, 2400):  # the slots, the units, or both are of the later time
        data = before[name][:40] + more[40:keep] + before[name][keep:]
        (tmp_path / "index" / name).write_bytes(data)
        one = KeyIndex(tmp_path / "index", 5, 100)
        bring_up(one, LOG[:4], clean=False, index_msg_timestamp=1 << 62)
        check_answers(one, LOG[:4])
        assert one.check() == []
        one.close()
        [data] = contents(tmp_path / "index").values()
        assert data == more
        for path in (tmp_path / "index").iterdir():
            path.unlink()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("size", [0, 39, 40, 60, 1000, 4000, 4096, 5000, 8192])
def test_a_file_cut_while_it_is_used(index, tmp_path, size, read_only):
    """An error, but never a crash or a missing result. Nothing is put after the cut."""
    one = index(1000, 10_000)
    fill(one, 2000)
    reader = index(1000, 10_000, read_only=True) if read_only else one
    assert found(reader, "k7")
    os.truncate(one.files[0], size)
    for n in range(2000):
        with pytest.raises(StoreIOError, match="shorter"):
            found(reader, f"k{n}")
    with pytest.raises(StoreIOError, match="shorter"):
        fill(one, 8000)
    with pytest.raises(StoreIOError):
        one.flush()
    assert os.path.getsize(one.files[0]) == size


@pytest.mark.parametrize("size", [0, 39, 40, 60, 79, 80, 140])
def test_a_file_of_one_page_cut_while_it_is_used(index, tmp_path, size):
    """The system does not report the cut: the rest of the page reads as zeros."""
    one = index(10, 50)
    fill(one, 30)
    before = {n: found(one, f"k{n}") for n in range(30)}
    os.truncate(one.files[0], size)
    for n in range(30):
        try:
            assert found(one, f"k{n}") == before[n] != []
        except StoreIOError as error:
            assert "shorter" in str(error)
        except CorruptRecordError as error:
            assert error.reason == "bad_chain"


# ---------------------------------------------------------------- readers and the writer


@pytest.mark.parametrize("units", [50, 5000])
def test_readers_during_writes(index, units):
    """A lookup sees whole chains, newest first, with all keys that existed when it started."""
    one = index(17, units)
    done = threading.Event()
    put = [0]
    failed = []

    def read():
        rng = random.Random(threading.get_ident())
        try:
            while not done.is_set():
                before, n = put[0], rng.randrange(5)
                told = found(one, f"k{n}")
                assert told == sorted(told, reverse=True)
                assert set(range(n, before, 5)) <= set(told)
                assert all(p % 5 == n for p in told)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(3000):
        one.put_keys("t", n, T0 + n, keys=f"k{n % 5}")
        put[0] = n + 1
        if n % 500 == 0:
            one.flush()
    done.set()
    for thread in threads:
        thread.join()
    assert failed == []


def test_lookups_during_dispatch(open_store):
    """Lookups of a key that is put all the time: each result has the newest message, or one of those just before it."""
    store = open_store(max_hash_slot_num=20, max_index_num=1000)
    until, put = time.monotonic() + 2, []

    def write():
        while time.monotonic() < until:
            put.append(store.put("t", b"x", keys="k").phy_offset)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        last = -1
        while time.monotonic() < until:
            for offset in store.query("t", "k", max_count=1).phy_offsets:
                assert offset >= last
                last = offset
    finally:
        thread.join()
    assert store.wait_dispatched(10)
    assert list(store.query("t", "k", max_count=1).phy_offsets) == put[-1:]


@pytest.mark.parametrize("there", [1, 2, 7, 8])
def test_a_lookup_in_the_middle_of_a_put(index, there):
    """A slot refers to a complete unit that is not counted yet. This may be the next unit, but none after that."""
    one = index(2, 10)
    fill(one, there)
    hashed = oracle.key_hash("t", "new")
    slot_at = 40 + 4 * (hashed % 2)
    with open(one.files[0], "r+b", buffering=0) as file:
        before = struct.unpack(">i", os.pread(file.fileno(), 4, slot_at))[0]
        for number, raises in ((there + 1, False), (there + 2, True)):
            os.pwrite(file.fileno(), struct.pack(">iqii", hashed, 7000, 20, before), 48 + 20 * number)
            os.pwrite(file.fileno(), struct.pack(">i", number), slot_at)
            with pytest.raises(CorruptRecordError, match="bad_chain") if raises else contextlib.nullcontext():
                assert found(one, "new") == [7000]
        os.pwrite(file.fileno(), struct.pack(">i", before), slot_at)
    fill(one, 9 - there, start=there)
    assert [found(one, f"k{n}") for n in range(9)] == [[n * 100] for n in range(9)]


@pytest.mark.parametrize("more", range(1, 19))
def test_a_check_during_writes(index, more):
    """Units put since the check read the header, and a unit that only its slot refers to, are not damage."""
    one = index(5, 20)
    fill(one, 1)
    reader = index(5, 20, read_only=True)
    fill(one, more, start=1)
    assert reader.check() == []
    with open(one.files[0], "r+b") as file:
        file.seek(36)
        file.write(struct.pack(">i", 1 + more))  # the last put is not complete
    assert reader.check() == index(5, 20, read_only=True).check() == []
    assert index(5, 20, load=False).load(clean=False, index_msg_timestamp=1 << 62) != []


def test_damage_that_appears_after_a_check_has_read_the_header(index):
    """No chain is followed wrongly, whatever the bytes are. The first byte of the slot is reported."""
    one = index(5, 20)
    fill(one, 9)
    reader = index(5, 20, read_only=True)
    fill(one, 6, start=9)
    whole = Path(one.files[0]).read_bytes()
    slots = struct.unpack(">5i", whole[40:60])
    slot = slots.index(max(slots))
    assert slot != 0 and all(slots)
    at = 60 + 20 * max(slots)
    for place, value in (
        *((40 + 4 * slot, value) for value in (-1, 0, 1, 17, 19, 20, 21, (1 << 31) - 1)),
        *((at, value) for value in (-1, slot + 1)),  # its key hash
        (at + 4, -1),  # physical offset
        (at + 12, -1),  # time
        *((at + 16, value) for value in (-1, 0, max(slots), 20, (1 << 31) - 1)),  # the previous unit
    ):
        data = bytearray(whole)
        data[place : place + 4] = struct.pack(">i", value)
        Path(one.files[0]).write_bytes(data)
        assert reader.check() == [f"{one.files[0]}: bad_chain at byte {40 + 4 * slot}"], (place, value)
    for count, fine in ((16, {5, 15}), (10, {5, *range(9, 16)})):  # used slots; or units, as older releases count
        for used in range(-1, 18):
            Path(one.files[0]).write_bytes(whole[:32] + struct.pack(">2i", used, count) + whole[40:])
            reader = index(5, 20, read_only=True)
            assert reader.check() == [f"{one.files[0]}: bad_chain at byte 32"] * (used not in fine), (count, used)


def test_several_readers_in_another_process(index):
    """Each reader refreshes and looks up at its own pace: a key is found once, and no existing key is missed."""
    one = index(17, 20)
    other = index(17, 20, read_only=True)
    failed = []
    put = [0]
    done = threading.Event()

    def read():
        try:
            while not done.is_set():
                n = put[0] - 1
                other.refresh()
                assert n < 0 or found(other, f"k{n}") == [n * 100]
                other.headers()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(400):
        fill(one, 1, start=n)
        put[0] = n + 1
    done.set()
    for thread in threads:
        thread.join()
    assert failed == []


def test_deletion_during_lookups(index):
    one = index(17, 20)
    fill(one, 500)
    done = threading.Event()
    failed = []

    def read():
        try:
            while not done.is_set():
                for n in range(0, 500, 37):
                    assert found(one, f"k{n}") in ([n * 100], [])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(0, 50_000, 500):
        one.delete_expired(n)
    done.set()
    for thread in threads:
        thread.join()
    assert failed == []
    one.delete_expired(1 << 40)
    assert len(one.files) == 1


def test_a_lookup_continues_when_its_file_is_deleted(index):
    one = index(3, 200)
    for n in range(500):
        one.put_keys("t", n, T0 + n, keys="k")
    looking = one.offsets("t", "k")
    told = [next(looking) for _ in range(420)]  # in the middle of the first file
    one.delete_expired(1 << 40)
    told += list(looking)
    assert told == list(reversed(range(500 - len(told), 500)))
    assert len(told) < 500
