"""_consume_queues: which files are loaded, which units are valid, and which files are deleted when records expire."""

import os
import random
import threading
import time

import pytest
from support.derived import BATCH_UNIT, PRE_BLANK, UNIT, batch_files, files, files_of

from rocketc.derived._consume_queues import ConsumeQueues

SIZE = 200  # ten units
BATCH_SIZE = 460
ALL = 1 << 62  # a physical offset after all records


def unit(n, size=100):
    return UNIT.pack(n * 100, size, n)


def lay(root, numbers, topic="T", queue_id=0, size=SIZE, **others):
    """Write the files of a queue with these units. `others`: unit number -> bytes."""
    queue = {n: unit(n) for n in numbers} | {int(name.removeprefix("at")): data for name, data in others.items()}
    for name, data in files(queue, size).items():
        path = root / "consumequeue" / topic / str(queue_id) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def lay_batches(root, batches, topic="B"):
    """Write batch units of (physical offset, base offset, messages)."""
    units = [BATCH_UNIT.pack(phy, 100, 0, 10 * phy, base, count, -1, 0) for phy, base, count in batches]
    for name, data in batch_files(units, BATCH_SIZE).items():
        path = root / "batchconsumequeue" / topic / "0" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def load(root, believe=ALL, least=0, **fields):
    """Load the queues and adapt them to a log from `least` to `believe`. Return the queues and the repairs."""
    queues = ConsumeQueues(str(root), **{"file_size": SIZE, "batch_file_size": BATCH_SIZE, **fields})
    queues.load()
    queues.begin(believe)
    return queues, queues.finish(least)


def names(root, topic="T"):
    return sorted(int(path.name) for path in (root / "consumequeue" / topic / "0").iterdir())


def cut_to(queues, topic="T"):
    """Return the numbers of the existing units."""
    return [found[0] for found in queues.units(topic)]


# ---------------------------------------------------------------- loading


@pytest.mark.parametrize("count", [1, 9, 10, 11, 20, 95])
def test_units_of_full_and_partial_files_are_loaded(tmp_path, count):
    lay(tmp_path, range(count))
    before = files_of(tmp_path, "consumequeue")
    queues, mended = load(tmp_path)
    assert (queues.items(), queues.range("T"), mended, queues.errors) == ([("T", 0)], (0, count), [], [])
    assert queues.units("T") == [(n, n * 100, 100, n, n, 1, 0) for n in range(count)]
    assert queues.units("T", 0, 3, 4) == queues.units("T")[3:7]
    assert files_of(tmp_path, "consumequeue") == before


@pytest.mark.parametrize("processors", [1, 2, 5])
def test_many_queues_are_loaded_by_several_threads(tmp_path, monkeypatch, processors):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)), raising=False)
    lengths = {(f"T{n % 50}", n // 50): n % 23 + 1 for n in range(650)}
    for (topic, queue_id), units in lengths.items():
        lay(tmp_path, range(units), topic, queue_id)
    queues, mended = load(tmp_path)
    assert {queue: queues.range(*queue) for queue in queues.items()} == {queue: (0, n) for queue, n in lengths.items()}
    assert dict(zip(queues.items(), queues.ends(), strict=True)) == lengths
    assert mended == queues.errors == []


def test_queues_of_all_topics_are_loaded(tmp_path):
    wanted = [("%RETRY%g", 0), ("T", 0), ("T", 11), ("T", 2), ("Ł", 0)]
    for topic, queue_id in wanted:
        lay(tmp_path, range(3), topic, queue_id)
    lay_batches(tmp_path, [(0, 0, 5)])
    (tmp_path / "consumequeue" / "T" / "not-a-number").mkdir()
    (tmp_path / "consumequeue" / "T" / "2" / "note").touch()
    queues, _ = load(tmp_path)
    assert sorted(queues.items()) == sorted([*wanted, ("B", 0)])
    assert queues.range("T", 3) is None
    assert queues.range("U") is None


def test_a_queue_may_begin_later(tmp_path):
    lay(tmp_path, range(35, 42))
    queues, _ = load(tmp_path)
    assert queues.range("T") == (35, 42)
    assert names(tmp_path) == [600, 800]
    data = files_of(tmp_path, "consumequeue")
    assert data["consumequeue/T/0/00000000000000000600"][: 5 * 20] == 5 * PRE_BLANK


def test_the_size_of_existing_files_overrides_the_settings(tmp_path):
    lay(tmp_path, range(35))
    queues, _ = load(tmp_path, file_size=6000)
    assert queues.range("T") == (0, 35)


def test_an_impossible_file_name(tmp_path):
    lay(tmp_path, range(15))
    path = tmp_path / "consumequeue" / "T" / "0" / ("9" * 20)
    path.write_bytes(bytes(SIZE))
    queues, _ = load(tmp_path)
    assert queues.range("T") == (0, 15)
    assert str(path) in queues.errors[0]
    assert not path.exists()


def test_a_file_of_another_size_and_later_files_are_deleted(tmp_path):
    lay(tmp_path, range(45))
    path = tmp_path / "consumequeue" / "T" / "0" / "00000000000000000400"
    path.write_bytes(path.read_bytes()[:-1])
    queues, _ = load(tmp_path)
    assert queues.range("T") == (0, 20)
    assert names(tmp_path) == [0, 200]
    assert any("00000000000000000400" in text for text in queues.errors)


def test_files_after_a_gap_are_deleted(tmp_path):
    lay(tmp_path, range(45))
    (tmp_path / "consumequeue" / "T" / "0" / "00000000000000000200").unlink()
    queues, _ = load(tmp_path)
    assert queues.range("T") == (0, 10)
    assert names(tmp_path) == [0]
    assert len(queues.errors) > 0


def test_a_queue_of_both_kinds_is_used_once(tmp_path):
    lay(tmp_path, range(5))
    lay_batches(tmp_path, [(0, 0, 5)], "T")
    queues, _ = load(tmp_path)
    assert queues.items() == [("T", 0)]
    assert len(queues.errors) == 1


# ---------------------------------------------------------------- valid units: RocketMQ's truncateDirty


@pytest.mark.parametrize("end", [0, 100, 900, 1000, 1100, 2000, 4400, 4500])
def test_units_after_the_end_of_the_log_are_cut_off(tmp_path, end):
    lay(tmp_path, range(45))
    queues, mended = load(tmp_path, believe=end)
    keep = min(end // 100, 45)
    assert cut_to(queues) == list(range(keep))
    assert queues.range("T")[1] == keep
    assert (mended != []) == (keep < 45)
    assert names(tmp_path) == [n * SIZE for n in range(max(1, -(-keep // 10)))]
    data = b"".join(data for _, data in sorted(files_of(tmp_path, "consumequeue").items()))
    assert data == b"".join(unit(n) for n in range(keep)).ljust(len(data), b"\0")


def test_an_impossible_unit_ends_a_queue(tmp_path):
    for bad in (UNIT.pack(-1, 100, 0), UNIT.pack(2000, 0, 0), UNIT.pack(2000, -5, 0), UNIT.pack(1 << 62, 100, 0)):
        lay(tmp_path, range(45), at44=bad)
        queues, mended = load(tmp_path, believe=4400)
        assert queues.range("T") == (0, 44)
        assert mended


def test_random_bytes_do_not_break_loading(tmp_path):
    chance = random.Random(1)
    for _ in range(50):
        lay(tmp_path, range(45))
        for path in (tmp_path / "consumequeue" / "T" / "0").iterdir():
            path.write_bytes(chance.randbytes(SIZE))
        queues, _ = load(tmp_path, believe=chance.choice([0, 1, 1 << 40]))
        low, high = queues.range("T")
        assert 0 <= low <= high <= 50


def test_the_end_of_all_queues_before_a_physical_offset(tmp_path):
    lay(tmp_path, range(45))
    lay_batches(tmp_path, [(50, 0, 5), (150, 5, 2), (4450, 7, 2)])
    queues = ConsumeQueues(str(tmp_path), SIZE, BATCH_SIZE)
    queues.load()
    assert [queues.end_before(at) for at in (0, 1, 100, 101, 151, 4400, 4401, 4451, ALL)] == [
        0, 100, 150, 200, 250, 4400, 4500, 4550, 4550,
    ]  # fmt: skip


# ---------------------------------------------------------------- correctMinOffset of RocketMQ's ConsumeQueueTest


@pytest.mark.parametrize(
    ("least", "first"),
    [(0, 0), (1, 1), (100, 1), (2000, 20), (2001, 21), (999_900, 9999), (1_000_000, 10_000), (ALL, 10_000)],
)
def test_the_least_offset_is_that_of_the_first_remaining_record(tmp_path, least, first):
    lay(tmp_path, range(10_000), size=200_000)
    queues, _ = load(tmp_path, least=least, file_size=200_000)
    assert queues.range("T") == (first, 10_000)
    queues.finish(least)
    assert queues.range("T") == (first, 10_000)


def test_lost_records_do_not_hide_earlier_ones(tmp_path):
    """A lost record at the end of a queue is without a unit: RocketMQ 5 checks the last one first."""
    lay(tmp_path, range(35), at30=PRE_BLANK, at34=PRE_BLANK)
    queues, _ = load(tmp_path, least=2500)
    assert queues.range("T") == (25, 34)


# ---------------------------------------------------------------- expiry


def test_files_of_expired_records_are_deleted(tmp_path):
    lay(tmp_path, range(45))
    queues, _ = load(tmp_path)
    assert list(queues.delete_expired(999).values()) == [1]
    assert (names(tmp_path), queues.range("T")) == ([200, 400, 600, 800], (10, 45))
    assert queues.delete_expired(1900) == {}
    assert queues.range("T") == (19, 45)
    assert list(queues.delete_expired(2901).values()) == [2]
    assert (names(tmp_path), queues.range("T")) == ([600, 800], (30, 45))
    assert list(queues.delete_expired(ALL).values()) == [1]
    assert (names(tmp_path), queues.range("T")) == ([800], (45, 45)), "the last file is never deleted"
    again, _ = load(tmp_path, least=ALL)
    assert again.range("T") == (45, 45)


def test_a_pause_follows_each_queue_that_lost_files(tmp_path):
    for topic in ("A", "B", "C"):
        lay(tmp_path, range(45), topic=topic)
    lay(tmp_path, range(5), topic="short")
    queues, _ = load(tmp_path)
    paused = []
    assert len(queues.delete_expired(999, lambda: paused.append(1))) == 3 == len(paused)
    assert len(queues.delete_expired(1999, lambda: True)) == 1  # the pause ends the deletion
    assert len(queues.delete_expired(1999)) == 2


def test_a_file_that_ends_with_a_lost_record_stays_while_it_has_others(tmp_path):
    lay(tmp_path, range(45), at9=PRE_BLANK)
    queues, _ = load(tmp_path)
    assert queues.delete_expired(500) == {}
    assert (names(tmp_path)[0], queues.range("T")) == (0, (5, 45))
    assert list(queues.delete_expired(1001).values()) == [1]
    assert (names(tmp_path)[0], queues.range("T")) == (200, (11, 45))


def test_a_file_of_only_lost_records_is_deleted_with_the_next(tmp_path):
    lay(tmp_path, [*range(10), *range(20, 45)])
    queues, _ = load(tmp_path)
    assert list(queues.delete_expired(1000).values()) in ([1], [2])
    assert queues.range("T") == (20, 45)


# ---------------------------------------------------------------- batch queues


def test_batch_queue(tmp_path):
    lay_batches(tmp_path, [(n * 100, 1000 + 10 * n, 10) for n in range(25)])
    queues, _ = load(tmp_path)
    assert queues.range("B") == (1000, 1250)
    assert queues.units("B", 0, 11, 1) == [(11, 1100, 100, 0, 1110, 10, 11_000)]
    assert list(queues.delete_expired(1200).values()) == [1]
    assert queues.range("B") == (1120, 1250)


def test_the_least_offset_of_a_batch_queue_without_records(tmp_path):
    lay_batches(tmp_path, [(n * 100, 10 * n, 10) for n in range(5)])
    queues, _ = load(tmp_path, believe=0)
    assert queues.range("B") == (-1, 0)


# ---------------------------------------------------------------- with a writer


def test_a_reader_follows_what_another_process_writes(tmp_path):
    lay(tmp_path, range(5))
    queues = ConsumeQueues(str(tmp_path), SIZE, BATCH_SIZE, read_only=True)
    queues.load()
    assert queues.range("T") == (0, 5)
    for count in (6, 10, 11, 35):
        for name, data in files({n: unit(n) for n in range(count)}, SIZE).items():
            path = tmp_path / "consumequeue" / "T" / "0" / name
            with path.open("r+b" if path.exists() else "x+b") as file:
                file.write(data)
        assert queues.range("T") == (0, count)
        assert [found[0] for found in queues.units("T")] == list(range(count))
    lay(tmp_path, range(3), "New")
    assert queues.range("New") == (0, 3)


@pytest.mark.parametrize(
    ("units", "goes_on"),
    [([0, 1, 2], False), ([0, 1, 2, 30], True), ([0, None, None], False), ([0, None, 30], True), ([0, 30, None], True)],
)
@pytest.mark.parametrize("more", [False, True], ids=["", "another file"])
def test_units_left_of_a_deleted_topic(tmp_path, units, goes_on, more):
    """A power cut may remove units from an existing file: missing units are not records after the deletion.

    Found by crash.power_cleaning: the deleted topic was mistaken for a recreated one."""
    data = b"".join(bytes(20) if n is None else unit(n) for n in units)
    path = tmp_path / "consumequeue" / "T" / "0" / f"{0:020}"
    path.parent.mkdir(parents=True)
    path.write_bytes(data.ljust(SIZE, b"\0"))
    if more:
        path.with_name(f"{SIZE:020}").write_bytes(bytes(SIZE))
    queues = ConsumeQueues(str(tmp_path), SIZE, BATCH_SIZE)
    queues.load()
    assert queues.remaining({"T": 2500, "U": 2500}) == {"T": goes_on}


@pytest.mark.parametrize("before", ["nothing", "folder", "empty file"])
def test_a_reader_uses_the_size_of_the_first_file_that_it_finds(tmp_path, before):
    """There was no file when it opened the store, whose settings it does not know."""
    queues = ConsumeQueues(str(tmp_path), read_only=True)
    folder = tmp_path / "consumequeue" / "T" / "0"
    if before != "nothing":
        folder.mkdir(parents=True)
    if before == "empty file":
        (folder / f"{0:020}").touch()
    queues.load()
    assert queues.range("T") == (None if before == "nothing" else (0, 0))
    lay(tmp_path, range(5))
    assert queues.range("T") == (0, 5)
    lay(tmp_path, range(35))
    assert queues.range("T") == (0, 35)
    lay(tmp_path, range(13), "New")
    assert queues.range("New") == (0, 13)
    assert [found[0] for found in queues.units("New")] == list(range(13))
    lay_batches(tmp_path, [(10 * n, n, 1) for n in range(13)])
    assert queues.range("B") == (0, 13)


def test_many_threads_follow_what_another_process_writes(tmp_path, monkeypatch):
    """Each file is added once, whichever thread finds it first."""
    lay(tmp_path, range(5))
    queues = ConsumeQueues(str(tmp_path), SIZE, BATCH_SIZE, read_only=True)
    queues.load()
    really = os.scandir

    def scandir(path):
        found = really(path)
        time.sleep(0.001)  # give the other threads time to run
        return found

    monkeypatch.setattr(os, "scandir", scandir)
    lay(tmp_path, range(95))
    lay(tmp_path, range(25), "New")
    found = []
    threads = [
        threading.Thread(target=lambda: found.append((queues.range("T"), queues.range("New")))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [((0, 95), (0, 25))] * 4
    assert sorted(queues.items()) == [("New", 0), ("T", 0)]
    assert [unit[0] for unit in queues.units("T")] == list(range(95))


def test_a_reader_of_a_store_that_is_cleaned(tmp_path):
    lay(tmp_path, range(45))
    queues = ConsumeQueues(str(tmp_path), SIZE, BATCH_SIZE, read_only=True)
    queues.load()
    for name in names(tmp_path)[:2]:
        (tmp_path / "consumequeue" / "T" / "0" / f"{name:020}").unlink()
    assert queues.range("T")[1] == 45
    assert [found[0] for found in queues.units("T", 0, 20)] == list(range(20, 45))


@pytest.mark.parametrize("count", [2000, pytest.param(20_000, marks=pytest.mark.long)])
def test_many_queues_are_loaded_in_seconds(tmp_path, count):
    for n in range(count):
        folder = tmp_path / "consumequeue" / f"T{n // 100}" / str(n % 100)
        folder.mkdir(parents=True)
        (folder / "00000000000000000000").write_bytes(unit(n).ljust(SIZE, b"\0"))
    begun = time.monotonic()
    queues, mended = load(tmp_path)
    assert time.monotonic() - begun < 20
    assert (len(queues), mended) == (count, [])
