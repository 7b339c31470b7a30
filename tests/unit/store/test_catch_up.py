"""catch_up: after open() the index agrees with the log, whatever its files contained."""

import contextlib
import shutil

import pytest
from support import oracle
from support.derived import CONFIG, FOLDERS, SMALL, files_of, fill, from_log, same_files, without_names

import rocketc

UNITS_AT = 40 + 4 * SMALL["max_hash_slot_num"]


def same_as_from_log(root):
    records = oracle.records(oracle.walk_log(oracle.read_log(root / "commitlog")))
    same_files(without_names(files_of(root, *FOLDERS)), from_log(records, CONFIG))


@pytest.mark.parametrize("log", ["small", "large"])
@pytest.mark.parametrize("number", [0, 7, -1])
@pytest.mark.parametrize("at", [8, 36, 40, UNITS_AT + 20, UNITS_AT + 9 * 20 + 4, UNITS_AT + 9 * 20 + 16])
def test_an_index_file_that_differs_from_the_log_is_rewritten(open_store, tmp_path, monkeypatch, log, number, at):
    """at: the end time, the count, a slot, the first unit, the physical offset of another unit, its chain."""
    if log == "large":
        monkeypatch.setattr("rocketc.store.catch_up.SMALL_BYTES", 0)
    fill(open_store(**SMALL))
    path = sorted((tmp_path / "index").iterdir())[number]
    data = bytearray(path.read_bytes())
    data[at : at + 4] = b"\x01\x02\x03\x04"
    path.write_bytes(data)
    if log == "large":  # of a large log only the end is compared: this only checks that nothing fails
        open_store(**SMALL).close()
        return
    open_store(**SMALL).close()
    same_as_from_log(tmp_path)


@pytest.mark.parametrize("folder", FOLDERS[::2])
def test_missing_files_are_written_again(open_store, tmp_path, folder):
    fill(open_store(**SMALL))
    files = sorted(path for path in (tmp_path / folder).rglob("*") if path.is_file())
    for path in files[1::2]:
        path.unlink()
    open_store(**SMALL).close()
    same_as_from_log(tmp_path)


MANY = {"mapped_file_size_commit_log": 1 << 20, "max_hash_slot_num": 1000, "max_index_num": 7000}


@pytest.fixture
def many_keys(open_store, tmp_path):
    """A store of 20,000 keys, so many that a separate thread puts them again; and its index files."""
    store = open_store(**MANY)
    store.put_many("a", [b"x"] * 5000, keys="all of them")
    for n in range(5000):
        store.put("b", b"x", keys=f"k{n}")
    store.close()
    return files_of(tmp_path, "index")


def test_many_keys_are_put_again(open_store, tmp_path, many_keys):
    for path in (tmp_path / "index").iterdir():
        path.unlink()
    store = open_store(**MANY)
    assert store.query("a", "them", max_count=1 << 20).phy_offsets == store.get("a", max_count=5000).phy_offsets
    store.close()
    same_files(without_names(files_of(tmp_path, "index")), without_names(many_keys))


@pytest.mark.parametrize("unit", [1, 4095, 4096, 4097, 6999])
@pytest.mark.parametrize("number", [0, 1])
def test_damage_among_many_keys_is_repaired(open_store, tmp_path, many_keys, number, unit):
    path = sorted((tmp_path / "index").iterdir())[number]
    data = bytearray(path.read_bytes())
    data[40 + 4 * 1000 + 20 * unit + 4] ^= 1
    path.write_bytes(data)
    open_store(**MANY).close()
    same_files(without_names(files_of(tmp_path, "index")), without_names(many_keys))


@pytest.mark.promise(6)
@pytest.mark.parametrize("ended", ["closed", "killed"])
@pytest.mark.parametrize("queues", ["kept", "gone"])
@pytest.mark.parametrize("which", [1, 2, -1])
@pytest.mark.parametrize("number", [1 << 53 | 1, 1 << 40, 1 << 62, -1, -(1 << 63)])
def test_an_impossible_queue_offset_is_damage_of_one_record(open_store, tmp_path, ended, queues, which, number):
    """No CRC covers a record's queue offset. Later puts once continued from the wrong offset, and were in no queue."""
    with open_store(**SMALL) as store:
        put = [store.put("t", b"%d" % n, queue_id=1) for n in range(5)]
    if queues == "gone":
        for path in (tmp_path / "consumequeue/t/1").iterdir():
            path.unlink()
    log = tmp_path / f"commitlog/{0:020d}"
    with log.open("r+b") as file:
        file.seek(put[which].phy_offset + 20)
        file.write(number.to_bytes(8, "big", signed=True))
    if ended == "killed":
        (tmp_path / "abort").touch()
        (tmp_path / "checkpoint").unlink()
    for turn in range(2):
        with open_store(**SMALL) as store:
            result = store.put("t", b"new", queue_id=1)
            assert result.queue_offset == (5 if turn == 0 else 6), "no queue offset is used twice"
            assert store.wait_dispatched(30)
            for n, one in enumerate(put):
                with contextlib.suppress(*[rocketc.CorruptUnitError] if one is put[which] else []):
                    found = [message.phy_offset for message in store.get("t", 1, n, 1)]
                    assert found == [one.phy_offset] or one is put[which], n
            assert [message.body for message in store.get("t", 1, result.queue_offset, 1)] == [b"new"]


# ---------------------------------------------------------------- how much of a log is read
@pytest.fixture
def begins(monkeypatch):
    """Physical offsets from which open() dispatches large logs again."""
    monkeypatch.setattr("rocketc.log.recovery.SMALL_BYTES", 0)
    monkeypatch.setattr("rocketc.store.catch_up.SMALL_BYTES", 0)
    found, really = [], rocketc.store.catch_up._take
    monkeypatch.setattr("rocketc.store.catch_up._take", lambda *args: (found.append(args[2]), really(*args)))
    return found


def test_the_end_of_one_large_file_is_dispatched_again(open_store, monkeypatch, begins):
    """Dispatching starts at a record that recovery has read."""
    monkeypatch.setattr("rocketc.store.catch_up.SMALL_BYTES", 100_000)
    monkeypatch.setattr("rocketc.log.recovery.APART", 10_000)
    with open_store(**MANY) as store:
        put = [store.put("t", b"%d" % n * 100, keys="k") for n in range(1500)]
    open_store(**MANY).close()
    assert begins[-1] in {one.end for one in put}
    assert 100_000 <= put[-1].end - begins[-1] < 111_000


@pytest.mark.parametrize("ended", ["closed", "killed"])
@pytest.mark.parametrize("what", ["size", "magic", "body"])
@pytest.mark.parametrize("which", ["before", "behind"])
def test_damage_where_dispatching_begins_again(open_store, tmp_path, monkeypatch, begins, which, what, ended):
    """Only the damaged record is missing, whether the record before or after the start is damaged."""
    monkeypatch.setattr("rocketc.store.catch_up.SMALL_BYTES", 100_000)
    monkeypatch.setattr("rocketc.log.recovery.SMALL_BYTES", 100_000)
    monkeypatch.setattr("rocketc.log.recovery.APART", 10_000)
    with open_store(**MANY) as store:
        put = [store.put("t", b"%d" % n * 50, keys=f"k{n}") for n in range(1500)]
    open_store(**MANY).close()
    [hit] = [n for n, one in enumerate(put) if begins[-1] == (one.end if which == "before" else one.phy_offset)]
    with (tmp_path / f"commitlog/{0:020d}").open("r+b") as file:
        file.seek(put[hit].phy_offset + {"size": 0, "magic": 4, "body": 100}[what])
        file.write(b"\x01\x02\x03\x04")
    if ended == "killed":
        (tmp_path / "abort").touch()
    units = next((tmp_path / "consumequeue/t/0").iterdir())
    with units.open("r+b") as file:  # the rest has to be put again
        file.seek(20 * (hit + 2))
        file.write(bytes(20 * (len(put) - hit - 2)))
    for _ in range(2):
        with open_store(**MANY) as store:
            assert store.max_offset("t") == len(put)
            for n, one in enumerate(put):
                if n != hit:
                    assert store.get("t", 0, n, 1).phy_offsets == [one.phy_offset]
                    assert store.query("t", f"k{n}").phy_offsets == [one.phy_offset]


@pytest.mark.parametrize("keys", ["none", "of the first ones"])
def test_messages_without_keys_are_not_read_again(open_store, tmp_path, begins, keys):
    """The index does not record how far it has come; the checkpoint of a closed store does."""
    with open_store(**SMALL) as store:
        for n in range(203):
            put = store.put("t", b"x" * 100, keys=f"k{n}" if keys != "none" and n < 3 else None)
    open_store(**SMALL).close()
    assert begins[-1] > put.end - 2 * SMALL["mapped_file_size_commit_log"]
    with open_store(**SMALL) as store:
        assert len(store.query("t", "k2").messages) == (keys != "none")
    (tmp_path / "checkpoint").unlink()
    open_store(**SMALL).close()
    assert begins[-1] <= 1000, "without the checkpoint all messages are read"


@pytest.mark.usefixtures("begins")
@pytest.mark.parametrize("count", [3, 12])
@pytest.mark.parametrize("ended", ["closed", "killed"])
def test_a_checkpoint_of_another_log_is_ignored(open_store, tmp_path, count, ended):
    """The log was cut where messages had no keys, and other messages were put since. It ends before or after the
    offset in the checkpoint."""
    with open_store(**SMALL) as store:
        for _ in range(8):
            store.put("t", b"x" * 1000)
    noted = (tmp_path / "checkpoint").read_bytes()
    for folder in ("commitlog", "consumequeue", "index"):
        shutil.rmtree(tmp_path / folder)
    (tmp_path / "checkpoint").unlink()
    with open_store(**SMALL, message_index_enable=False) as store:
        for n in range(count):
            store.put("t", b"y" * 1100, keys=f"k{n}")
    (tmp_path / "checkpoint").write_bytes(noted)
    if ended == "killed":
        (tmp_path / "abort").touch()
    with open_store(**SMALL) as store:
        assert [len(store.query("t", f"k{n}").messages) for n in range(count)] == [1] * count


@pytest.mark.usefixtures("begins")
def test_an_index_without_files_is_rebuilt(open_store, tmp_path):
    """This does not depend on the position in the checkpoint."""
    fill(open_store(**SMALL))
    before = files_of(tmp_path, "index")
    for path in (tmp_path / "index").iterdir():
        path.unlink()
    open_store(**SMALL).close()
    same_files(without_names(files_of(tmp_path, "index")), without_names(before))


@pytest.mark.usefixtures("begins")
@pytest.mark.parametrize("ended", ["closed", "killed"])
def test_the_last_file_of_an_index_begins_with_the_second_key_of_a_message(open_store, tmp_path, ended):
    """The file before it ends with a unit of the same message. Found by crash.power_cut: the file was dropped."""
    units = SMALL["max_index_num"] - 1
    with open_store(**SMALL) as store:
        for n in range(units - 1):
            store.put("t", b"x", keys=f"k{n}")
        store.put("t", b"x" * 5000, keys="first second")
        store.put("t", b"x" * 5000)
    open_store(**SMALL).close()
    before = sorted((tmp_path / "index").iterdir())
    assert len(before) == 2
    if ended == "killed":
        (tmp_path / "abort").touch()
    else:
        before[1].unlink()
    with open_store(**SMALL) as store:
        assert [len(store.query("t", key).messages) for key in ("first", "second")] == [1, 1]


@pytest.mark.usefixtures("begins")
def test_an_index_that_was_disabled_gets_the_messages_since(open_store):
    for n, on in enumerate((True, False, False, True)):
        with open_store(**SMALL, message_index_enable=on) as store:
            store.put("t", b"x" * 3000, keys=f"k{n}")
    with open_store(**SMALL) as store:
        assert [len(store.query("t", f"k{n}").messages) for n in range(4)] == [1] * 4
