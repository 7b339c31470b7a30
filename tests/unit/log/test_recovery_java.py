"""recovery="java": the log ends where RocketMQ's own recovery ends it, and bytes that are cut off are kept."""

import logging
import os
import shutil

import pytest
from crash import remains
from support import oracle, stores
from support.damaged_logs import SIZE, T0, Stop, damage, log, messages, recover, stop_of, stopping, write

import rocketc
from rocketc.files import _checkpoint
from rocketc.files._checkpoint import Checkpoint
from rocketc.log import recovery, truncation

pytestmark = pytest.mark.promise(5)

MARGIN = 3000  # ms that RocketMQ subtracts from the times of a checkpoint


def java(root, **options):
    return recover(root, policy="java", **options)


# ------------------------------------------------------------------------------------------------ golden stores


TOLD = {name: stores.GoldenStore(name, stores.FOLDER).recovered for name in stores.DAMAGED}
CASES = [(name, case) for name, told in TOLD.items() for case in ([None] if "load" in told else told)]


@pytest.mark.parametrize(("name", "case"), CASES, ids=str)
def test_the_result_for_a_golden_store_is_that_of_rocketmq(golden, tmp_path, name, case):
    """Its bounds, queues and messages are RocketMQ's. The data that RocketMQ deleted is in the folder `cut`."""
    root = shutil.copytree(golden(name).path, tmp_path / name)
    told = TOLD[name][case] if case else TOLD[name]
    if case and case.startswith("unclean"):
        (root / "abort").touch()
    if case and case.endswith("no checkpoint"):
        (root / "checkpoint").unlink()
    before = oracle.records(oracle.walk_log(oracle.read_log(root / "commitlog")))
    with rocketc.open(root, config=golden(name).config, recovery="java") as store:
        for moment in ("afterLoad", "afterStart"):
            assert store.max_phy_offset == told[moment]["maxPhyOffset"]
            assert store.min_phy_offset == told[moment]["minPhyOffset"]
            queues = {(q["topic"], q["queueId"]): (q["min"], q["max"]) for q in told[moment]["queues"]}
            assert queues == {where: (store.min_offset(*where), store.max_offset(*where)) for where in store.queues()}
        end = store.max_phy_offset
    found = oracle.records(log(root))
    assert [m["msgId"] for m in found] == [m["msgId"] for m in before if m["stop"] <= end]
    behind = [m["storedBody"] for m in before if m["start"] >= end]
    assert ([m.stored_body for m in rocketc.scan(root / "cut", errors="skip")] if behind else []) == behind
    assert (case == "unclean start, no checkpoint") == (len(behind) > 500)


# ------------------------------------------------------------------------------------------------ the start


def spoil(root, items, *numbers):
    """Damage the bodies of records."""
    found = [oracle.records(items)[n] for n in numbers]
    for record in found:
        damage(root, record["start"] + 100)
    return found


@pytest.mark.parametrize("file", [1, 3, 6])
@pytest.mark.parametrize("more", [-1, 0])
def test_after_a_crash_it_starts_at_the_newest_file_older_than_the_checkpoint(tmp_path, file, more):
    """It starts by both times of the checkpoint, less 3 s. Earlier damage is not found; later damage ends the log."""
    items = write(tmp_path / "store", messages(100))
    records = oracle.records(items)
    first = next(n for n, m in enumerate(records) if m["start"] >= file * SIZE)
    said = records[first]["storeTimestamp"] + MARGIN + more
    victim = records[first - 1]
    damage(tmp_path / "store", victim["start"] + 100)
    for times in [(said, said + 10**6), (said + 10**6, said)]:
        root = shutil.copytree(tmp_path / "store", tmp_path / "copy")
        found, offsets = java(root, checkpoint=Checkpoint(*times, 0, 0, 0))
        assert found.start == (file + more) * SIZE
        if more:
            assert found.end == found.cut == victim["start"]
        else:
            assert (found.end, found.cut, found.damage) == (oracle.log_end(items), None, [])
            assert offsets == {("t", 0): 50, ("t", 1): 50}
        shutil.rmtree(root)


def test_the_time_of_the_index_counts_with_message_index_safe(tmp_path):
    items = write(tmp_path, messages(100))
    late, early = T0 + 90_000, T0 + 30_000
    assert java(tmp_path, checkpoint=Checkpoint(late, late, early, 0, 0))[0].start > 5 * SIZE
    begun = java(tmp_path, checkpoint=Checkpoint(late, late, early, 0, 0), index_safe=True)[0].start
    assert begun < 3 * SIZE
    _checkpoint.write(str(tmp_path / "checkpoint"), Checkpoint(late, late, early, 0, 0))
    (victim,) = spoil(tmp_path, items, 40)
    assert begun < victim["start"] < 5 * SIZE
    with rocketc.open(tmp_path, recovery="java", message_index_safe=True, message_index_enable=False) as store:
        assert store.max_phy_offset == oracle.log_end(items)
    (tmp_path / "abort").touch()
    _checkpoint.write(str(tmp_path / "checkpoint"), Checkpoint(late, late, early, 0, 0))
    with rocketc.open(tmp_path, recovery="java", message_index_safe=True) as store:
        assert store.max_phy_offset == victim["start"]


def test_it_does_not_start_at_a_file_without_a_first_record(tmp_path):
    items = write(tmp_path, messages(100))
    always = Checkpoint(T0 + 10**9, T0 + 10**9, 0, 0, 0)
    last = oracle.log_end(items) // SIZE * SIZE
    assert java(tmp_path, checkpoint=always)[0].start == last
    damage(tmp_path, last + 56, bytes(8))  # the store timestamp of its first record
    assert java(tmp_path, checkpoint=always)[0].start == last - SIZE
    damage(tmp_path, last, bytes(8))
    found, _ = java(tmp_path, checkpoint=always)
    assert (found.start, found.end) == (last - SIZE, last)
    assert [d[0] for d in found.damage] == [last]


@pytest.mark.parametrize("known", [0, 2, 5])
def test_after_a_clean_shutdown_it_starts_at_the_end_of_the_queues(tmp_path, known):
    """5.3.3 does this; 4.9.7 starts with the third last file."""
    items = write(tmp_path, messages(100), abort=False)
    if known:
        last = [m for m in oracle.records(items) if m["start"] < known * SIZE + SIZE][-1]
        folder = tmp_path / "consumequeue" / "t" / "0"
        folder.mkdir(parents=True)
        unit = last["start"].to_bytes(8, "big") + last["storeSize"].to_bytes(4, "big") + bytes(8)
        (folder / ("0" * 20)).write_bytes(unit.ljust(6_000_000, b"\0"))
    before, behind = spoil(tmp_path, items, 20, 80)
    found, _ = java(tmp_path)
    assert found.start == known * SIZE
    assert found.end == (behind if before["start"] < found.start else before)["start"]


# ------------------------------------------------------------------------------------------------ the end


def test_valid_files_after_the_damage_are_cut_off(tmp_path, caplog):
    items = write(tmp_path, messages(100))
    first, _ = spoil(tmp_path, items, 30, 60)
    with caplog.at_level(logging.WARNING, "rocketc.recovery"):
        found, offsets = java(tmp_path)
    assert found.end == found.cut == found.last_record_end == first["start"]
    assert found.damage == [(first["start"], first["stop"], "bad_body_crc")]
    assert found.timestamp == T0 + 29_000
    assert offsets == {("t", 0): 15, ("t", 1): 15}
    assert log(tmp_path) == [item for item in items if stop_of(item) <= first["start"]]
    behind = range(first["start"] // SIZE * SIZE + SIZE, items[-1]["stop"], SIZE)
    assert [int(os.path.basename(path)) for path in found.saved] == [first["start"], *behind]
    assert f"{first['start']} to {first['stop']} (bad_body_crc): cut off and kept" in caplog.text
    assert f"cut at physical offset {first['start']}; the bytes after it are kept in {found.saved[0]}" in caplog.text


def test_the_two_policies_on_the_same_store(tmp_path):
    """Damage in the durable part: one policy loses a record, the other all later records."""
    items = write(tmp_path / "keep", messages(100), checkpoint=T0 + 90_000)
    first = next(n for n, m in enumerate(oracle.records(items)) if m["start"] >= 5 * SIZE)
    checkpoint = T0 + 1000 * first + MARGIN
    _checkpoint.write(str(tmp_path / "keep" / "checkpoint"), Checkpoint(T0 + 99_000, checkpoint, 0, 0, 0))
    (victim,) = spoil(tmp_path / "keep", items, first + 3)
    shutil.copytree(tmp_path / "keep", tmp_path / "java")
    with rocketc.open(tmp_path / "keep") as store:
        assert store.max_phy_offset == oracle.log_end(items)
    with rocketc.open(tmp_path / "java", recovery="java") as store:
        assert store.max_phy_offset == victim["start"]
    assert not (tmp_path / "keep" / "cut").exists()
    kept = [m.stored_body for m in rocketc.scan(tmp_path / "java" / "cut", errors="skip")]
    assert kept == [m["storedBody"] for m in oracle.records(items)[first + 4 :]]


def test_records_that_only_rocketmq_accepts_are_skipped(tmp_path):
    """RocketMQ does not check the stored physical offset."""
    items = write(tmp_path, messages(100))
    wrong, bad = oracle.records(items)[20], oracle.records(items)[60]
    damage(tmp_path, wrong["start"] + 30)
    damage(tmp_path, bad["start"] + 100)
    found, offsets = java(tmp_path)
    assert found.end == found.cut == bad["start"]
    assert found.damage == [
        (wrong["start"], wrong["stop"], "bad_physical_offset"),
        (bad["start"], bad["stop"], "bad_body_crc"),
    ]
    assert offsets == {("t", 0): 30, ("t", 1): 30}


def test_such_a_record_before_the_end_is_skipped_up_to_the_end(tmp_path):
    items = write(tmp_path, messages(100))
    wrong, bad = oracle.records(items)[59], oracle.records(items)[60]
    damage(tmp_path, wrong["start"] + 30)
    damage(tmp_path, bad["start"] + 100)
    found, _ = java(tmp_path)
    assert found.end == bad["start"]
    assert [d[:2] for d in found.damage] == [(m["start"], m["stop"]) for m in (wrong, bad)]


def test_zeros_before_the_end_of_a_file(tmp_path):
    """The log continued in the next file: all of that file is cut off."""
    items = write(tmp_path, messages(100))
    blank = oracle.blanks(items)[2]
    damage(tmp_path, blank.start, bytes(8))
    found, _ = java(tmp_path)
    assert found.end == blank.start
    assert found.damage == [(blank.start, blank.stop, "zeroed")]
    assert found.cut == blank.start


def test_a_log_that_ends_with_a_blank_record_continues_before_it(tmp_path):
    items = write(tmp_path, messages(14))
    first, blank = tmp_path / "commitlog" / ("0" * 20), oracle.blanks(items)[0]
    for path in (tmp_path / "commitlog").iterdir():
        if path != first:
            path.unlink()
    with rocketc.open(tmp_path, recovery="java") as store:
        assert store.max_phy_offset == blank.start
        assert store.put("t", b"next").phy_offset == blank.start
    assert not oracle.damage(log(tmp_path))


def test_a_log_that_continues_in_a_prepared_file(tmp_path):
    items = write(tmp_path, messages(14))
    for path in (tmp_path / "commitlog").iterdir():
        if path.name != "0" * 20:
            path.write_bytes(bytes(SIZE))
    found, _ = java(tmp_path)
    assert (found.end, found.cut, found.damage) == (SIZE, None, [])
    assert found.last_record_end == oracle.blanks(items)[0].start


@pytest.mark.parametrize("abort", [False, True], ids=["clean", "unclean"])
def test_no_log_and_no_record(tmp_path, abort):
    (tmp_path / "commitlog").mkdir()
    assert java(tmp_path, clean=not abort)[0].end == 0
    (tmp_path / "commitlog" / f"{3 * SIZE:020d}").write_bytes(bytes(SIZE))
    found, offsets = java(tmp_path, clean=not abort)
    assert (found.end, found.cut, offsets) == (3 * SIZE, None, {})


def test_an_invalid_first_record_ends_the_log(tmp_path):
    items = write(tmp_path, messages(100), base=3 * SIZE)
    damage(tmp_path, 3 * SIZE + 5)
    with rocketc.open(tmp_path, recovery="java") as store:
        assert (store.min_phy_offset, store.max_phy_offset) == (3 * SIZE, 3 * SIZE)
        assert store.put("t", b"new").queue_offset == 0
    kept = [m.stored_body for m in rocketc.scan(tmp_path / "cut", errors="skip")]
    assert kept == [m["storedBody"] for m in oracle.records(items)[1:]]


def test_a_missing_file_between_others(tmp_path):
    items = write(tmp_path, messages(100))
    (tmp_path / "commitlog" / f"{2 * SIZE:020d}").unlink()
    found, _ = java(tmp_path)
    assert (found.end, found.cut) == (oracle.log_end(items), None)


def test_checksums_are_configured(tmp_path):
    items = write(tmp_path / "a", messages(30, property_crc=True))
    record = oracle.records(items)[20]
    damage(tmp_path / "a", record["start"] + 16)  # a field that the body CRC does not cover
    for name in "bcd":
        shutil.copytree(tmp_path / "a", tmp_path / name)
    assert java(tmp_path / "a")[0].end == oracle.log_end(items)
    assert java(tmp_path / "b", property_crc=True)[0].damage == [(record["start"], record["stop"], "bad_property_crc")]
    damage(tmp_path / "c", record["start"] + 100)
    assert java(tmp_path / "c", crc=False)[0].end == oracle.log_end(items)
    write(tmp_path / "e", messages(30))
    assert java(tmp_path / "e", property_crc=True)[0].damage[0][2] == "missing_property_crc"


def test_consume_queues_and_index_are_cut_off_too(tmp_path):
    """They do not have units of the cut records, and the next messages get their queue offsets."""
    fields = {"mapped_file_size_commit_log": SIZE, "max_hash_slot_num": 100, "max_index_num": 400}
    with rocketc.open(tmp_path / "store", **fields) as store:
        results = [store.put("t", b"%d" % n * 100, keys=f"k{n}") for n in range(60)]
        files = remains.take(tmp_path / "store")
    root = remains.lay(files, tmp_path / "killed")
    (root / "checkpoint").unlink()
    damage(root, results[40].phy_offset + 100)
    with rocketc.open(root, recovery="java", **fields) as store:
        assert store.max_offset("t") == 40
        assert len(store.get("t", max_count=100)) == 40
        assert store.query("t", "k39").phy_offsets == [results[39].phy_offset]
        assert store.query("t", "k50").phy_offsets == []
        assert store.put("t", b"new").queue_offset == 40
    assert rocketc.verify(root).is_whole


@pytest.mark.parametrize("abort", [False, True], ids=["clean", "unclean"])
def test_of_a_large_log_only_the_end_is_read(tmp_path, monkeypatch, abort):
    """Queues before the start of recovery are read from the consume queues."""
    monkeypatch.setattr("rocketc.log.recovery.SMALL_BYTES", 0)
    monkeypatch.setattr("rocketc.store.catch_up.SMALL_BYTES", 0)
    fields = {"mapped_file_size_commit_log": SIZE, "max_hash_slot_num": 100, "max_index_num": 400}
    with rocketc.open(tmp_path / "store", **fields) as store:
        results = []
        for n in range(200):
            store._set_clock(T0 + 1000 * n)
            results.append(store.put(f"t{n % 7}", b"%d" % n * 50, keys=f"k{n}"))
        store.flush()
        store.wait_dispatched()
        files = remains.take(tmp_path / "store")
    root = remains.lay(files, tmp_path / "killed") if abort else tmp_path / "store"
    if abort:
        times = T0 + 180_000
        _checkpoint.write(str(root / "checkpoint"), Checkpoint(times, times, times, 0, 0))
    damage(root, results[198].phy_offset + 100)
    with rocketc.open(root, recovery="java", **fields) as store:
        assert store.max_phy_offset == results[198].phy_offset
        assert [store.max_offset(f"t{n}") for n in range(7)] == [29, 29, 28, 28, 28, 28, 28]
        assert store.query("t1", "k197").phy_offsets and not store.query("t2", "k198").phy_offsets
        assert store.put("t2", b"new").queue_offset == 28
    assert rocketc.verify(root).is_whole


def test_the_queue_offset_of_a_cut_record_is_used_again_after_a_clean_shutdown(tmp_path):
    """The consume queue still has a unit of the message."""
    with rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 20) as store:
        ends = [store.put(topic, b"x" * 100).phy_offset for topic in ("t", "rare", "rare", "t")]
    with open(tmp_path / "commitlog" / ("0" * 20), "r+b") as file:
        file.seek(ends[2] + 100)
        file.write(b"lost")
    with rocketc.open(tmp_path, recovery="java") as store:
        assert store.max_phy_offset == ends[2]
        assert (store.max_offset("t"), store.max_offset("rare")) == (1, 1)
        assert store.put("rare", b"new").queue_offset == 1


# ------------------------------------------------------------------------------------------------ interrupted


@pytest.mark.parametrize(
    "step",
    [
        (recovery, "sync_file"),
        (recovery, "truncate_and_backup"),
        (truncation, "_keep"),
        (truncation, "_link"),
        (truncation, "_clear"),
    ],
)
@pytest.mark.parametrize("calls", [1, 2, 3])
def test_an_interrupted_recovery_starts_again(tmp_path, monkeypatch, step, calls):
    """It starts in the same file and has the same result, also if the clock was set back. All cut bytes are kept."""
    sent = messages(60)
    for n in range(40, 60):
        sent[n]["store_timestamp"] = T0 + 5000 + n
    items = write(tmp_path, sent, checkpoint=T0 + MARGIN + 1)
    (victim,) = spoil(tmp_path, items, 20)
    always = {path.name: path.read_bytes() for path in (tmp_path / "commitlog").iterdir()}
    fields = {"recovery": "java", "mapped_file_size_commit_log": SIZE}
    with monkeypatch.context() as patch:
        patch.setattr(*step, stopping(getattr(*step), calls))
        try:
            rocketc.open(tmp_path, **fields).close()
        except Stop:
            assert (tmp_path / "abort").exists()
    with rocketc.open(tmp_path, **fields) as store:
        end = store.max_phy_offset
    assert end == victim["start"]
    for path in (tmp_path / "cut").iterdir():
        at = int(path.name)
        assert path.read_bytes() == always[f"{at // SIZE * SIZE:020d}"][at % SIZE :]
    assert len(list((tmp_path / "cut").iterdir())) == (items[-1]["stop"] - 1) // SIZE - end // SIZE + 1


NUMBERS = ["2147483647", "-2147483648", "+007", "0" * 30 + "3"]
NO_NUMBERS = ["2147483648", "-2147483649", "-", "+", "3 ", "0x3", "9" * 40, "1" + "0" * 19]


@pytest.mark.parametrize("text", [*NUMBERS, *NO_NUMBERS])
def test_a_delay_level_is_parsed_as_in_java(tmp_path, text):
    sent = messages(3)
    sent[1] |= {"topic": "SCHEDULE_TOPIC_XXXX", "queue_id": 2, "queue_offset": 0, "properties": {"DELAY": text}}
    record = oracle.records(write(tmp_path, sent))[1]
    found, _ = java(tmp_path)
    damage = [(record["start"], record["stop"], "bad_property")]
    assert found.damage == (damage if text in NO_NUMBERS else [])


@pytest.mark.parametrize("sectors", range(5))
def test_a_partly_cleared_record_does_not_become_valid(tmp_path, sectors):
    """The body is valid, and the unreadable property is cleared early: the head has to be cleared even before it."""
    delayed = {"topic": "SCHEDULE_TOPIC_XXXX", "queue_id": 2, "queue_offset": 0}
    sent = messages(30)
    sent[20] |= {**delayed, "body": b"x" * 1500, "properties": {"a": "b" * 1000, "DELAY": "q"}}
    root = tmp_path / "store"
    items = write(root, sent)
    record = oracle.records(items)[20]
    found, _ = java(shutil.copytree(root, tmp_path / "whole"))
    assert found.damage == [(record["start"], record["stop"], "bad_property")]
    (root / "cut").mkdir()
    assert found.saved[0].endswith(f"{record['start']:020d}")
    shutil.copy(found.saved[0], root / "cut")
    # a power cut while it was cleared: the head is cleared durably, and some sectors
    damage(root, record["start"], bytes(8))
    for n in range(sectors):
        mark = record["stop"] // 512 * 512 - 512 * n
        damage(root, mark, bytes(512))
    again, _ = java(root)
    assert again.end == record["start"]
    assert log(root) == [item for item in items if stop_of(item) <= record["start"]]
    assert not [name for name in os.listdir(root / "cut") if "." in name]


def test_the_checkpoint_stays_until_the_log_is_cut(tmp_path, monkeypatch):
    """The checkpoint determines where the next try starts."""
    items = write(tmp_path, messages(100), checkpoint=T0 + 30_000)
    spoil(tmp_path, items, 80)
    before = (tmp_path / "checkpoint").read_bytes()

    def stop(*_, **__):
        raise Stop

    monkeypatch.setattr(recovery, "truncate_and_backup", stop)
    with pytest.raises(Stop):
        rocketc.open(tmp_path, recovery="java")
    assert (tmp_path / "checkpoint").read_bytes() == before
