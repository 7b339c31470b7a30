"""Recovery, and what promise 5 adds to RocketMQ's: bytes that are cut off are kept, damage in the middle is skipped."""

import logging
import os
import shutil
import subprocess
import sys

import pytest
from support import oracle, stores
from support.damaged_logs import (
    SIZE,
    T0,
    Stop,
    damage,
    log,
    log_bytes,
    message,
    messages,
    recover,
    stop_of,
    stopping,
    write,
)

import rocketc
from rocketc.files import _checkpoint
from rocketc.files._checkpoint import Checkpoint
from rocketc.log import recovery, truncation

pytestmark = pytest.mark.promise(5)

# ------------------------------------------------------------------------------------------------ golden stores


def copy_of(golden, name, tmp_path):
    return shutil.copytree(golden(name).path, tmp_path / name)


@pytest.mark.parametrize("name", stores.WHOLE)
@pytest.mark.parametrize("queues", [True, False], ids=["queues", "log"])
def test_golden_store(golden, tmp_path, name, queues):
    """A store that RocketMQ closed: recovery changes nothing. Each queue continues at RocketMQ's offset, found in the
    consume queues or in the log alone."""
    root = copy_of(golden, name, tmp_path)
    if not queues:
        shutil.rmtree(root / "consumequeue")
        shutil.rmtree(root / "batchconsumequeue", ignore_errors=True)
    before = oracle.read_log(root / "commitlog")
    items = oracle.walk_log(before, crc="full")
    expected = {}
    for m in oracle.records(items):
        if m["sysFlag"] & 0xC in (0x4, 0xC):
            continue
        count = int(m["properties"].get("INNER_NUM", 1)) if m["sysFlag"] & oracle.INNER_BATCH else 1
        expected[m["topic"], m["queueId"]] = m["queueOffset"] + count
    with rocketc.open(root, check_before_put_message=False) as store:
        assert store.max_phy_offset == oracle.log_end(items)
        assert not (root / "cut").exists()
        assert {key: store.put(key[0], b"next", queue_id=key[1]).queue_offset for key in expected} == expected
    after = {start: data for start, data, _ in oracle.read_log(root / "commitlog")}
    for start, data, _ in before[:-1]:
        assert after[start] == data


@pytest.mark.parametrize("name", stores.DAMAGED)
def test_damaged_golden_store(golden, tmp_path, name):
    """The log ends where RocketMQ ends it, or later: RocketMQ deletes valid files where rocketc skips the damage."""
    root = copy_of(golden, name, tmp_path)
    items = oracle.walk_log(oracle.read_log(root / "commitlog"), crc="full")
    whole = oracle.records(items)
    with rocketc.open(root) as store:
        assert store.max_phy_offset == whole[-1]["stop"]
        last = {(m["topic"], m["queueId"]): m["queueOffset"] for m in whole}
        for (topic, queue_id), offset in last.items():
            assert store.put(topic, b"next", queue_id=queue_id).queue_offset == offset + 1
    found = oracle.records(oracle.walk_log(oracle.read_log(root / "commitlog"), crc="full"))
    key = [(m["start"], m["msgId"], m["storedBody"]) for m in found]
    assert key[: len(whole)] == [(m["start"], m["msgId"], m["storedBody"]) for m in whole]
    assert len(found) == len(whole) + len(last)
    torn = [d for d in oracle.damage(items) if name.endswith("torn")]
    assert [int(path.name) for path in (root / "cut").glob("*")] == [d.start for d in torn]


# ------------------------------------------------------------------------------------------------ whole logs


def test_no_log(tmp_path):
    (tmp_path / "commitlog").mkdir()
    for clean in (True, False):
        found, offsets = recover(tmp_path, clean=clean)
        assert (found.end, found.records, found.last_record_end, found.timestamp) == (0, 0, 0, 0)
        assert (found.damage, found.missing, found.cut, found.saved) == ([], [], None, [])
        assert offsets == {}


@pytest.mark.parametrize("abort", [False, True], ids=["clean", "unclean"])
@pytest.mark.parametrize("base", [0, 5 * SIZE])
def test_whole_log(tmp_path, abort, base):
    items = write(tmp_path, messages(100), abort=abort, base=base)
    found, offsets = recover(tmp_path)
    assert found.clean is not abort
    assert found.end == found.last_record_end == oracle.log_end(items)
    assert offsets == {("t", 0): 50, ("t", 1): 50}
    assert found.timestamp == T0 + 99_000
    assert log(tmp_path) == items


def test_a_log_that_ends_with_a_blank_record(tmp_path):
    """The last file is full: the log continues after it. RocketMQ continues before the blank record."""
    items = write(tmp_path, messages(14), abort=True)
    first, last = tmp_path / "commitlog" / ("0" * 20), oracle.blanks(items)[0].stop
    for path in (tmp_path / "commitlog").iterdir():
        if path != first:
            path.unlink()
    found, _ = recover(tmp_path)
    assert found.end == last == SIZE
    assert found.last_record_end < SIZE
    with rocketc.open(tmp_path) as store:
        assert store.put("t", b"next").phy_offset == SIZE


@pytest.mark.parametrize("abort", [False, True], ids=["clean", "unclean"])
def test_prepared_files_after_the_log(tmp_path, abort):
    """Zeros after the end of the log are not damage: the files are deleted or used."""
    items = write(tmp_path, messages(20), abort=abort)
    last = oracle.log_end(items) // SIZE
    for n in (1, 2):
        (tmp_path / "commitlog" / f"{(last + n) * SIZE:020d}").write_bytes(bytes(SIZE))
    found, _ = recover(tmp_path)
    assert found.end == oracle.log_end(items)
    assert (found.damage, found.cut) == ([], None)
    assert len(os.listdir(tmp_path / "commitlog")) == last + 1


def test_a_log_with_only_prepared_files(tmp_path):
    (tmp_path / "commitlog").mkdir()
    for base in (3, 4):
        (tmp_path / "commitlog" / f"{base * SIZE:020d}").write_bytes(bytes(SIZE))
    found, _ = recover(tmp_path, clean=False)
    assert found.end == 3 * SIZE
    assert os.listdir(tmp_path / "commitlog") == [f"{3 * SIZE:020d}"]


def test_a_missing_file_between_others(tmp_path, caplog):
    write(tmp_path, messages(100))
    (tmp_path / "commitlog" / f"{2 * SIZE:020d}").unlink()
    found, offsets = recover(tmp_path)
    assert found.missing == [(2 * SIZE, 3 * SIZE)]
    assert offsets == {("t", 0): 50, ("t", 1): 50}
    assert f"no file holds physical offsets {2 * SIZE} to {3 * SIZE}" in caplog.text


def test_transaction_types_and_inner_batches(tmp_path):
    """PREPARED and ROLLBACK records do not use a queue offset; an inner batch uses INNER_NUM of them."""
    inner = {"sys_flag": oracle.INNER_BATCH, "topic": "inner", "queue_id": 0}
    write(
        tmp_path,
        [
            message(0, sys_flag=0x4, queue_offset=900),
            message(1, sys_flag=0x8, queue_offset=7),
            message(2, sys_flag=0xC, queue_offset=900),
            message(3, **inner, queue_offset=10, properties={"INNER_NUM": "5"}),
            message(4, topic="plain", queue_offset=3, properties={"INNER_NUM": "5"}),
        ],
    )
    _, offsets = recover(tmp_path)
    assert offsets == {("t", 1): 8, ("inner", 0): 15, ("plain", 0): 4}


# ------------------------------------------------------------------------------------------------ where it starts


def test_a_clean_log_is_checked_from_the_third_last_file_on(tmp_path):
    items = write(tmp_path, messages(100), abort=False)
    count = oracle.log_end(items) // SIZE + 1
    found, _ = recover(tmp_path)
    assert found.start == (count - 3) * SIZE
    damage(tmp_path, 1000)
    damage(tmp_path, (count - 4) * SIZE + 1000)
    assert recover(tmp_path)[0].damage == []
    damage(tmp_path, (count - 3) * SIZE + 1000)
    assert len(recover(tmp_path)[0].damage) == 1


@pytest.mark.parametrize("file", [0, 1, 3, 6])
@pytest.mark.parametrize("more", [-1, 0])
def test_an_unclean_log_is_checked_from_the_checkpoint_on(tmp_path, file, more):
    """The newest file whose first record is at least 3 s older than the checkpoint; otherwise the first file."""
    items = write(tmp_path, messages(100))
    first = next(m for m in oracle.records(items) if m["start"] >= file * SIZE)
    said = first["storeTimestamp"] + 3000 + more
    found, offsets = recover(tmp_path, checkpoint=Checkpoint(said, said, 0, 0, 0))
    assert found.start == (file + more if file else 0) * SIZE
    assert found.end == oracle.log_end(items)
    assert offsets == {("t", 0): 50, ("t", 1): 50}


def test_without_a_checkpoint_the_whole_log_is_checked(tmp_path):
    write(tmp_path, messages(100))
    assert recover(tmp_path)[0].start == 0
    (tmp_path / "checkpoint").write_bytes(b"odd")
    assert recover(tmp_path)[0].start == 0


def test_recovery_does_not_start_at_a_file_without_a_first_record(tmp_path):
    items = write(tmp_path, messages(100))
    damage(tmp_path, 3 * SIZE, bytes(8))
    said = T0 + 1_000_000_000
    found, _ = recover(tmp_path, checkpoint=Checkpoint(said, said, 0, 0, 0))
    assert found.start == oracle.log_end(items) // SIZE * SIZE
    damage(tmp_path, found.start, bytes(8))
    assert recover(tmp_path, checkpoint=Checkpoint(said, said, 0, 0, 0))[0].start == found.start - SIZE


# ------------------------------------------------------------------------------------------------ consume queues


def consume_queues(root, items, *, until):
    """Write consume queues with units of all records before a physical offset."""
    units = {}
    for m in oracle.records(items):
        if m["start"] < until:
            unit = m["start"].to_bytes(8, "big") + m["storeSize"].to_bytes(4, "big") + bytes(8)
            units.setdefault((m["topic"], m["queueId"]), []).append(unit)
    for (topic, queue_id), mine in units.items():
        folder = root / "consumequeue" / topic / str(queue_id)
        folder.mkdir(parents=True)
        (folder / ("0" * 20)).write_bytes(b"".join(mine).ljust(6000, b"\0"))


@pytest.mark.parametrize("lag", [*range(0, 4 * SIZE, 500), 30 * SIZE])
@pytest.mark.parametrize("abort", [False, True], ids=["clean", "unclean"])
def test_consume_queues_that_lag(tmp_path, abort, lag):
    """Queue offsets of records without a unit are not used again."""
    counts = {"only early": 0, "t": 1}
    items = write(
        tmp_path,
        [
            message(n, topic="only early" if n == 60 else "t", queue_offset=0 if n == 60 else n, queue_id=0)
            for n in range(100)
        ],
        abort=abort,
        checkpoint=T0 + 90_000,
    )
    consume_queues(tmp_path, items, until=oracle.log_end(items) - lag)
    _, offsets = recover(tmp_path)
    assert offsets["t", 0] == 100
    assert offsets.get(("only early", 0)) == 1
    assert len(offsets) == len(counts)


def test_queues_without_remaining_records(tmp_path):
    """The log files of a queue without new messages have expired: only its consume queue has the next queue offset."""
    items = write(tmp_path, messages(100), base=5 * SIZE, abort=False)
    consume_queues(tmp_path, items, until=1 << 60)
    folder = tmp_path / "consumequeue" / "quiet" / "3"
    folder.mkdir(parents=True)
    unit = (4 * SIZE).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8)
    (folder / f"{6000:020d}").write_bytes((unit * 7).ljust(6000, b"\0"))
    assert recover(tmp_path)[1]["quiet", 3] == 307


# ------------------------------------------------------------------------------------------------ torn ends


@pytest.mark.parametrize("abort", [False, True], ids=["clean", "unclean"])
def test_zeros_in_the_topic_of_the_last_record(tmp_path, abort):
    """DefaultMessageStoreTest: zeros over the topic of the last record drop exactly this record."""
    items = write(tmp_path, messages(20), abort=abort, checkpoint=T0 + 10_000)
    last = oracle.records(items)[-1]
    damage(tmp_path, last["stop"] - 5, bytes(16))
    with rocketc.open(tmp_path) as store:
        assert store.max_phy_offset == last["start"]
        assert store.put("t", b"new", queue_id=1).queue_offset == last["queueOffset"]
    assert [m["storedBody"] for m in oracle.records(log(tmp_path))] == [
        *(m["storedBody"] for m in oracle.records(items)[:-1]),
        b"new",
    ]


@pytest.mark.parametrize("property_crc", [False, True], ids=["", "crc"])
@pytest.mark.parametrize("abort", [False, True], ids=["clean", "unclean"])
def test_a_last_record_torn_at_each_byte(tmp_path, abort, property_crc):
    """This also works where no CRC covers the missing bytes: zeros are not valid text."""
    write(tmp_path / "whole", messages(20, property_crc=property_crc), abort=abort, checkpoint=T0 + 10_000)
    last = oracle.records(log(tmp_path / "whole"))[-1]
    for keep in range(0, last["storeSize"] - 1, 5):
        root = shutil.copytree(tmp_path / "whole", tmp_path / str(keep))
        damage(root, last["start"] + keep, bytes(last["storeSize"] - keep))
        found, offsets = recover(root, property_crc=property_crc)
        assert found.end == last["start"], keep
        assert offsets == {("t", 0): 10, ("t", 1): 9}
        path = root / "commitlog" / f"{last['start'] // SIZE * SIZE:020d}"
        assert not any(path.read_bytes()[last["start"] % SIZE :]), "the torn bytes were not cleared"
        saved = b"".join((root / "cut" / name).read_bytes() for name in os.listdir(root / "cut")) if keep else b""
        assert keep == 0 or saved[:keep] == log_bytes(tmp_path / "whole", last["start"], keep)
        assert not any(saved[keep:])
        shutil.rmtree(root)


def test_bytes_that_are_cut_off_are_kept(tmp_path):
    """Over several files: the rest of the file with the cut, and each file after it."""
    items = write(tmp_path, messages(60), checkpoint=T0 + 1)
    victim = oracle.records(items)[20]
    before = {start: data for start, data, _ in oracle.read_log(tmp_path / "commitlog")}
    damage(tmp_path, victim["start"] + 50)
    before[victim["start"] // SIZE * SIZE] = (
        tmp_path / "commitlog" / f"{victim['start'] // SIZE * SIZE:020d}"
    ).read_bytes()
    damage(tmp_path, victim["start"] + 100)
    found, offsets = recover(tmp_path)
    assert found.cut == found.end == victim["start"]
    assert offsets == {("t", 0): 10, ("t", 1): 10}
    names = [os.path.basename(path) for path in found.saved]
    files = [base for base in sorted(before) if base > victim["start"]]
    assert names == [f"{victim['start']:020d}", *(f"{base:020d}" for base in files)]
    for base, path in zip(files, found.saved[1:], strict=True):
        with open(path, "rb") as file:
            assert file.read() == before[base]
    assert len(os.listdir(tmp_path / "commitlog")) == victim["start"] // SIZE + 1
    assert log(tmp_path) == [item for item in items if stop_of(item) <= victim["start"]]


def test_a_cut_does_not_overwrite_an_earlier_one(tmp_path):
    write(tmp_path, messages(20), checkpoint=T0 + 1)
    last = oracle.records(log(tmp_path))[-1]
    for n in range(3):
        damage(tmp_path, last["start"], b"torn %d" % n)
        found, _ = recover(tmp_path)
        assert found.end == last["start"]
    name = f"{last['start']:020d}"
    assert sorted(os.listdir(tmp_path / "cut")) == [name, f"{name}.1", f"{name}.2"]
    assert (tmp_path / "cut" / f"{name}.2").read_bytes().rstrip(b"\0") == b"torn 2"


def test_records_that_were_cut_do_not_come_back(tmp_path):
    """A shorter record overwrites the first of them. A crash then must not bring back the ones after it."""
    items = write(tmp_path, messages(20), checkpoint=T0 + 1)
    victim = oracle.records(items)[-4]
    damage(tmp_path, victim["start"] + 100)
    with rocketc.open(tmp_path) as store:
        store._set_clock(T0)
        assert store.max_phy_offset == victim["start"]
        store.put("t", bytes(204), properties={"a": "b"})  # as long as the record that was there
    (tmp_path / "abort").touch()
    found, _ = recover(tmp_path)
    assert found.end == victim["stop"]
    assert found.damage == []


# ------------------------------------------------------------------------------------------------ damage in the middle


@pytest.mark.parametrize(
    ("at", "reason"),
    [(0, "bad_size"), (4, "bad_magic"), (28, "bad_physical_offset"), (84, "bad_body_length"), (100, "bad_body_crc")],
)
def test_damage_in_the_durable_part_is_skipped(tmp_path, caplog, at, reason):
    """The checkpoint is later than the damage, so the following records were durable: only one record is lost."""
    items = write(tmp_path, messages(60), checkpoint=T0 + 50_000)
    victim = oracle.records(items)[45]
    damage(tmp_path, victim["start"] + at)
    with caplog.at_level(logging.WARNING, "rocketc.recovery"):
        found, offsets = recover(tmp_path)
    assert found.start <= victim["start"]
    assert [(start, stop) for start, stop, _ in found.damage] == [(victim["start"], victim["stop"])]
    assert found.damage[0][2] == reason
    assert found.end == oracle.log_end(items)
    assert found.cut is None
    assert offsets == {("t", 0): 30, ("t", 1): 30}
    assert f"{victim['start']} to {victim['stop']} ({reason}): skipped" in caplog.text


def test_damage_that_may_not_have_been_durable_ends_the_log(tmp_path, caplog):
    """It is unknown whether the following records were acknowledged: they are cut off and kept."""
    items = write(tmp_path, messages(60), checkpoint=T0 + 40_000)
    victim = oracle.records(items)[45]
    damage(tmp_path, victim["start"] + 100)
    with caplog.at_level(logging.WARNING, "rocketc.recovery"):
        found, offsets = recover(tmp_path)
    assert found.end == found.cut == found.last_record_end == victim["start"]
    assert found.timestamp == T0 + 44_000
    assert offsets == {("t", 0): 23, ("t", 1): 22}
    assert "cut off and kept" in caplog.text


@pytest.mark.parametrize(("flushed", "cut"), [(45, True), (46, False), (59, False)])
def test_the_flushed_offset_takes_precedence_over_timestamps(tmp_path, flushed, cut):
    """The clock went back after record 40: by their times all later records would have been durable."""
    items = write(
        tmp_path,
        [*messages(40), *(message(n, store_timestamp=T0 + 500 * n) for n in range(40, 60))],
        checkpoint=T0 + 39_001,
    )
    records = oracle.records(items)
    victim = records[45]
    damage(tmp_path, victim["start"] + 100)
    found, _ = recover(tmp_path, flushed=records[flushed]["start"])
    assert found.cut == (victim["start"] if cut else None)
    assert found.end == (victim["start"] if cut else oracle.log_end(items))


def test_a_clock_that_is_set_back_before_a_power_cut(tmp_path):
    """Messages put since the last flush are not durable, whatever their time."""
    never = {"flush_interval_commit_log": 1 << 30, "mapped_file_size_commit_log": SIZE}
    store = rocketc.open(tmp_path / "store", **never)
    store._set_clock(T0)
    durable = store.put("t", b"durable")
    store.close()
    store = rocketc.open(tmp_path / "store", **never)
    store._set_clock(T0 - 7)
    torn, after = store.put("t", bytes(100)), store.put("t", b"after")
    shutil.copytree(tmp_path / "store", tmp_path / "cut off")
    store.close()
    root = tmp_path / "cut off"
    (log_file,) = (root / "commitlog").glob("0" * 20)
    with open(log_file, "r+b") as file:
        file.seek(torn.phy_offset)
        file.write(bytes(torn.size))
    with rocketc.open(root, **never) as store:
        assert store.max_phy_offset == durable.end
        assert store.put("t", b"next").queue_offset == 1
    assert after.phy_offset == torn.end


def test_both_kinds_of_damage(tmp_path):
    items = write(tmp_path, messages(60), checkpoint=T0 + 50_000)
    first, second = oracle.records(items)[45], oracle.records(items)[55]
    damage(tmp_path, first["start"] + 100)
    damage(tmp_path, second["start"] + 100)
    found, _ = recover(tmp_path)
    assert found.end == found.cut == second["start"]
    assert found.damage == [(m["start"], m["stop"], "bad_body_crc") for m in (first, second)]


def test_damage_in_a_log_that_was_closed(tmp_path):
    """The whole log was durable: nothing is cut off."""
    items = write(tmp_path, messages(60), abort=False)
    victim = oracle.records(items)[-5]
    damage(tmp_path, victim["start"] + 100)
    found, offsets = recover(tmp_path)
    assert found.damage == [(victim["start"], victim["stop"], "bad_body_crc")]
    assert (found.end, found.cut) == (oracle.log_end(items), None)
    assert offsets == {("t", 0): 30, ("t", 1): 30}


def test_checks_can_be_disabled(tmp_path):
    """checkCRCOnRecover: without it bodies are not checked."""
    items = write(tmp_path, messages(20), checkpoint=T0 + 1)
    damage(tmp_path, oracle.records(items)[-1]["start"] + 100)
    assert recover(tmp_path, crc=False)[0].end == oracle.log_end(items)
    with rocketc.open(tmp_path, check_crc_on_recover=False) as store:
        assert store.max_phy_offset == oracle.log_end(items)
    (tmp_path / "abort").touch()
    with rocketc.open(tmp_path) as store:
        assert store.max_phy_offset < oracle.log_end(items) + 1


def test_property_crc(tmp_path):
    """forceVerifyPropCRC: damage outside of the body is found, too."""
    items = write(tmp_path, messages(20, property_crc=True, properties={"a": "b"}), checkpoint=T0 + 1)
    last = oracle.records(items)[-1]
    damage(tmp_path, last["start"] + 40)  # born timestamp
    assert recover(tmp_path)[0].end == last["stop"]
    assert recover(tmp_path, property_crc=True)[0].end == last["start"]


# ------------------------------------------------------------------------------------------------ interrupted


@pytest.mark.parametrize(
    "step", [(recovery, "sync_file"), (recovery, "truncate_and_backup"), (truncation, "_keep"), (truncation, "_clear")]
)
@pytest.mark.parametrize("calls", [1, 2])
def test_an_interrupted_recovery_starts_again(tmp_path, monkeypatch, step, calls):
    """It is stopped before each step that changes files. The next one has the same result, and cut bytes are kept."""
    items = write(tmp_path, messages(60), checkpoint=T0 + 1)
    victim = oracle.records(items)[20]
    damage(tmp_path, victim["start"] + 100)
    kept = log_bytes(tmp_path, victim["start"], SIZE)
    with monkeypatch.context() as patch:
        patch.setattr(*step, stopping(getattr(*step), calls))
        try:
            recover(tmp_path)
        except Stop:
            pass
    found, offsets = recover(tmp_path)
    assert found.end == victim["start"]
    assert offsets == {("t", 0): 10, ("t", 1): 10}
    assert (tmp_path / "cut" / f"{victim['start']:020d}").read_bytes() == kept
    assert log(tmp_path) == [item for item in items if stop_of(item) <= victim["start"]]


def test_a_recovery_makes_progress(tmp_path):
    """Each checked file moves the checkpoint, so that the next try does not check it again."""
    write(tmp_path, messages(100))
    seen = []
    recover(tmp_path, on_file=lambda path, timestamp: seen.append((int(os.path.basename(path)), timestamp)))
    assert [start for start, _ in seen] == sorted(start for start, _ in seen)
    assert seen[-1][1] == T0 + 99_000
    assert len(seen) == len(os.listdir(tmp_path / "commitlog"))
    rocketc.open(tmp_path).close()
    assert _checkpoint.read(str(tmp_path / "checkpoint")).physic_msg_timestamp == T0 + 99_000


def test_kills_during_recovery(tmp_path):
    """The process is killed repeatedly at random points of open(). At the end the messages are there."""
    items = write(tmp_path, messages(300))
    script = """
import rocketc, sys
print("go", flush=True)
store = rocketc.open(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""
    for n in range(6):
        child = subprocess.Popen(
            [sys.executable, "-c", script, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        child.stdout.readline()
        if n % 2:
            child.stdout.readline()
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
    assert (tmp_path / "abort").exists()
    with rocketc.open(tmp_path) as store:
        assert store.max_phy_offset == oracle.log_end(items)
        assert store.put("t", b"next", queue_id=0).queue_offset == 150
    assert log(tmp_path)[: len(items)] == items
    assert not (tmp_path / "cut").exists()


def test_progress_is_logged(tmp_path, monkeypatch, caplog):
    write(tmp_path, messages(100))
    monkeypatch.setattr(recovery, "_last_logged", -1e9)
    with caplog.at_level(logging.INFO, "rocketc.recovery"):
        recover(tmp_path)
    assert "file 1 of " in caplog.text


def test_a_damaged_record_keeps_its_queue_offset(tmp_path):
    """This includes the last record of a queue: a new message does not get its queue offset."""
    sent = [message(n, queue_id=7, queue_offset=41) if n == 3 else message(n) for n in range(8)]
    items = write(tmp_path, sent, abort=False)
    damage(tmp_path, items[3]["start"] + 100)
    found, offsets = recover(tmp_path)
    assert [reason for _, _, reason in found.damage] == ["bad_body_crc"]
    assert offsets["t", 7] == 42
