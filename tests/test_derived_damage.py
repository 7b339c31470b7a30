"""Damage to the files that are derived from the log: the store opens, reports its repairs, and answers correctly.

Queue offsets continue, and the repaired files follow from the log.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crash import remains
from support import oracle
from support.store_checks import assert_answers, assert_files, by_queue, opened, records_of

import rocketc

pytestmark = pytest.mark.promise(6)

FIELDS: dict[str, Any] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 4,
    "max_index_num": 8,
}
QUEUES = [("orders", 0), ("orders", 1), ("Aa", 0), ("BB", 3)]  # topics with the same hash
COUNT = 100
ENDS = ["closed", "killed"]


def fill(store: Any, seed: int, count: int, first: int = 0) -> None:
    chance = random.Random(seed)
    for n in range(first, first + count):
        store._set_clock(1_700_000_000_000 + 350 * n)
        topic, queue_id = QUEUES[chance.choice([0, 0, 0, 1, 2, 3])]
        keys = chance.choice([None, f"k{n % 7}", f"k{n % 5} Aa", "BB"])
        store.put(topic, b"%d." % n * 12, queue_id=queue_id, tags=chance.choice(["Aa", "BB", None]), keys=keys)


@pytest.fixture(scope="module")
def made() -> dict[str, remains.Files]:
    """Stores: `closed` and `killed` hold the same messages, `other` has different ones."""
    found = {}
    with remains.memory() as folder:
        for name, seed in (("closed", 1), ("other", 2)):
            root = Path(folder, name)
            with rocketc.open(root, **FIELDS) as store:
                fill(store, seed, COUNT)
                assert store.wait_dispatched(30)
                if name == "closed":
                    found["killed"] = remains.take(root)
            found[name] = remains.take(root)
    assert len([name for name in found["closed"] if name.startswith("index/")]) > 5
    assert len(remains.log(found["closed"])) > 3
    return found


@pytest.fixture
def root() -> Iterator[Path]:
    with remains.memory() as folder:
        yield Path(folder, "store")


def derived_files(files: remains.Files, *folders: str) -> list[str]:
    return sorted(name for name in files if name.split("/")[0] in (folders or ("consumequeue", "index")))


def assert_mended(root: Path, says: object, *, told: bool | None = None, folder: str = "") -> None:
    """Open the files in root, and check answers, puts and the files afterwards.

    `told`  whether the opening must log something; None: it may
    """
    records = records_of(root)
    queues = by_queue(records)
    with opened(root, **FIELDS) as one:
        if told is not None:
            assert bool(one.told) == told, (says, one.told)
        if folder:
            assert any(folder in text for text in one.told), (says, one.told)
        assert_answers(one.store, records, says)
        for topic, queue_id in QUEUES:
            known = queues.get((topic, queue_id))
            number = one.store.put(topic, b"next", queue_id=queue_id, keys="next").queue_offset
            assert number == (known[-1]["queueOffset"] + 1 if known else 0), (says, topic, queue_id)
        assert one.store.wait_dispatched(30)
        assert_answers(one.store, records_of(root), says)
    assert_files(root, FIELDS)
    with opened(root, **FIELDS) as one:
        assert one.told == [], says


@pytest.mark.parametrize("end", ENDS)
def test_undamaged_files(made, root, end):
    remains.lay(made[end], root)
    assert_files(root, FIELDS)
    assert_mended(root, end, told=False)


@pytest.mark.parametrize("end", ENDS)
def test_a_file_is_deleted(made, root, end):
    for name in [*derived_files(made[end]), "checkpoint"]:
        files = dict(made[end])
        del files[name]
        remains.lay(files, root)
        assert_mended(root, name, told=True if end == "closed" and name != "checkpoint" else None)


@pytest.mark.parametrize("end", ENDS)
def test_folders_are_deleted(made, root, end):
    for gone in ("consumequeue", "index", "consumequeue/orders", "consumequeue/orders/1", "consumequeue/BB/3"):
        remains.lay({name: data for name, data in made[end].items() if not name.startswith(f"{gone}/")}, root)
        assert_mended(root, gone, told=True if end == "closed" else None)


def cuts(files: remains.Files) -> list[tuple[str, int]]:
    """Every length of a full consume queue file, of the queue's last file, of a full index file and of the last one."""
    found = []
    for names in (derived_files(files, "index"), [n for n in derived_files(files) if "orders/0" in n]):
        for name in (names[1], names[-1]):
            found += [(name, size) for size in range(len(files[name]))]
    return found


@pytest.mark.some(1)
@pytest.mark.parametrize("end", ENDS)
def test_a_file_is_cut(made, root, end):
    every = cuts(made[end])
    for name, size in every if end == "closed" else every[::9]:
        remains.lay({**made[end], name: made[end][name][:size]}, root)
        with opened(root, **FIELDS) as one:
            assert one.told or end == "killed", (name, size)
            assert_answers(one.store, records_of(root), (name, size)) if size % 20 == 1 else None
        assert_files(root, FIELDS)


@pytest.mark.parametrize("end", ENDS)
def test_a_checkpoint_is_cut(made, root, end):
    for size in [*range(60), 4095]:
        remains.lay({**made[end], "checkpoint": made[end]["checkpoint"][:size]}, root)
        assert_mended(root, size)


def damaged(data: bytes, how: str, chance: random.Random) -> bytes:
    start = chance.randrange(len(data))
    stop = min(start + chance.choice([1, 4, 20, 60, len(data)]), len(data))
    if how == "zeros":
        return data[:start] + bytes(stop - start) + data[stop:]
    if how == "noise":
        return data[:start] + chance.randbytes(stop - start) + data[stop:]
    if how == "bit":
        return data[:start] + bytes([data[start] ^ 1 << chance.randrange(8)]) + data[start + 1 :]
    if how == "all noise":
        return chance.randbytes(len(data))
    if how == "longer":
        return data + chance.randbytes(chance.choice([1, 20, len(data)]))
    return b""


@pytest.mark.some(2)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("how", ["zeros", "noise", "bit", "all noise", "longer", "empty"])
def test_a_file_is_overwritten(made, root, end, how):
    chance = random.Random(how)
    for name in [*derived_files(made[end]), "checkpoint"] * 2:
        data = damaged(made[end][name], how, chance)
        changed = end == "closed" and data != made[end][name]
        remains.lay({**made[end], name: data}, root)
        assert_mended(root, (name, data), told=True if changed and name != "checkpoint" else None)


@pytest.mark.parametrize("end", ENDS)
def test_units_after_the_end_of_the_log_are_cleared(made, root, end):
    """Units without a record are cleared; other units in the same page are kept."""
    name = "consumequeue/Aa/0/00000000000000000400"
    data = made[end][name]
    stop = 20 * sum(any(data[at : at + 20]) for at in range(0, len(data), 20))
    data = data[:stop] + data[stop - 20 : stop] + data[stop + 20 :]
    remains.lay({**made[end], name: data}, root)
    assert_mended(root, name, told=True)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("shift", [200, 20_000, 1 << 60])
def test_files_of_a_queue_are_renamed(made, root, end, shift):
    """The queue offsets follow from the log, not from the file names."""
    for topic, queue_id in QUEUES:
        folder = f"consumequeue/{topic}/{queue_id}/"
        files = {name: data for name, data in made[end].items() if not name.startswith(folder)}
        for name in set(made[end]) - set(files):
            files[f"{folder}{int(name[-20:]) + shift - shift % 200:020}"] = made[end][name]
        remains.lay(files, root)
        assert_mended(root, (topic, queue_id, shift), told=True if end == "closed" else None)


@pytest.mark.some(1)
@pytest.mark.parametrize("end", ENDS)
def test_files_are_swapped(made, root, end):
    names = derived_files(made[end])
    chance = random.Random(7)
    for _ in range(60):
        one, other = chance.sample(names, 2)
        files = dict(made[end])
        files[one], files[other] = files[other], files[one]
        remains.lay(files, root)
        assert_mended(root, (one, other), told=True if end == "closed" and files != made[end] else None)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("folders", [["consumequeue"], ["index"], ["consumequeue", "index", "checkpoint"]])
def test_the_files_of_another_store(made, root, end, folders):
    files = {name: data for name, data in made[end].items() if name.split("/")[0] not in folders}
    files.update({name: data for name, data in made["other"].items() if name.split("/")[0] in folders})
    remains.lay(files, root)
    assert_mended(root, folders, told=True if end == "closed" else None)


@pytest.mark.parametrize("end", ENDS)
def test_queues_without_records_in_the_log(made, root, end):
    """The messages of these queues are gone."""
    files = dict(made[end])
    for name in derived_files(made["other"], "consumequeue"):
        if "/orders/0/" in name:
            files[name.replace("orders", "old")] = made["other"][name]
    remains.lay(files, root)
    with opened(root, **FIELDS) as one:
        assert_answers(one.store, records_of(root))
        got = one.store.get("old", 0, 0)
        assert got.phy_offsets == []
    with opened(root, **FIELDS) as one:
        assert one.told == []


@pytest.mark.parametrize("end", ENDS)
def test_other_things_in_the_folders(made, root, end):
    names = derived_files(made[end])
    for name in names[:: len(names) // 6]:
        remains.lay(made[end], root)
        (root / name).unlink()
        (root / name).mkdir()
        assert_files_mended(root, name)
    remains.lay(made[end], root)
    for odd in (
        "consumequeue/orders/0/x",
        "consumequeue/orders/0/00000000000000000200.tmp",
        "consumequeue/file",
        "consumequeue/orders/file",
        "index/x",
        "index/20261121000000000.tmp",
        "config/x",
    ):
        (root / odd).parent.mkdir(parents=True, exist_ok=True)
        (root / odd).write_bytes(b"odd")
    with opened(root, **FIELDS) as one:
        assert_answers(one.store, records_of(root))


def assert_files_mended(root: Path, name: str) -> None:
    with opened(root, **FIELDS) as one:
        assert_answers(one.store, records_of(root), name)


# ---------------------------------------------------------------- damage to the log itself
@pytest.mark.parametrize("derived", ["kept", "gone"])
@pytest.mark.parametrize("end", ENDS)
def test_later_messages_keep_their_offsets_when_the_log_loses_records(made, root, end, derived):
    """Damage in the middle, or a missing file: later messages keep their queue offsets."""
    log = remains.log(made[end])
    losses = [(log[1][0] + 300, log[1][0] + 320), (log[0][0], log[0][0] + 600)]
    for start, stop in losses:
        files = remains.zeroed(made[end], start, stop)
        if derived == "gone":
            files = {name: data for name, data in files.items() if name not in derived_files(files)}
        remains.lay(files, root)
        assert_numbered(root, (start, stop))
    files = dict(made[end])
    del files[f"commitlog/{log[1][0]:020d}"]
    if derived == "gone":
        files = {name: data for name, data in files.items() if name not in derived_files(files)}
    remains.lay(files, root)
    assert_numbered(root, "middle file")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("derived", ["kept", "gone"])
@pytest.mark.parametrize("count", [1, 2])
def test_the_first_files_of_the_log_are_missing(made, root, end, derived, count):
    files = dict(made[end])
    for base, _ in remains.log(files)[:count]:
        del files[f"commitlog/{base:020d}"]
    if derived == "gone":
        files = {name: data for name, data in files.items() if name not in derived_files(files)}
    remains.lay(files, root)
    assert_numbered(root, count)


@pytest.mark.parametrize("end", ENDS)
def test_the_whole_log_is_missing(made, root, end):
    """Queues keep their queue offsets. If a durable log is missing, a disk may be missing, so no new log is begun."""
    lengths = {
        queue: records[-1]["queueOffset"] + 1 for queue, records in by_queue(records_of_files(made[end])).items()
    }
    files = {name: data for name, data in made[end].items() if not name.startswith("commitlog/")}
    remains.lay(files, root)
    if end == "closed":
        with pytest.raises(rocketc.StoreIOError, match="is a disk missing"), opened(root, **FIELDS):
            pass
        remains.lay({name: data for name, data in files.items() if not name.startswith("consumequeue/")}, root)
    with opened(root, **FIELDS) as one:
        for topic, queue_id in QUEUES:
            assert one.store.get(topic, queue_id, 0).phy_offsets == []
            offset = one.store.put(topic, b"next", queue_id=queue_id).queue_offset
            assert offset in (0, lengths[topic, queue_id])


def records_of_files(files: remains.Files) -> list[oracle.Record]:
    return oracle.records(oracle.walk_log(remains.log(files)))


def assert_numbered(root: Path, says: object) -> None:
    """Assert that remaining messages have their offsets, answers are correct, and puts continue, now and later."""
    with opened(root, **FIELDS) as one:
        assert_answers(one.store, records_of(root), says)
        for (topic, queue_id), known in by_queue(records_of(root)).items():
            number = one.store.put(topic, b"next", queue_id=queue_id, keys="next").queue_offset
            assert number == known[-1]["queueOffset"] + 1, (says, topic, queue_id)
        assert one.store.wait_dispatched(30)
        assert_answers(one.store, records_of(root), says)
    with opened(root, **FIELDS) as one:
        assert one.told == [] or all("physical offsets" in text for text in one.told), (says, one.told)
        assert_answers(one.store, records_of(root), says)
