"""A log that is too large to be dispatched again as a whole at each opening.

Only its end is dispatched again; after a crash, the part from the checkpoint on. Queues and index must follow from the
log.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crash import remains
from support.store_checks import assert_answers, assert_files, by_queue, opened, records_of
from test_derived_damage import FIELDS, QUEUES, derived_files, fill

import rocketc
from rocketc.files import _checkpoint

STEPS, STEP = 10, 25  # this number of steps, each with this number of messages


@pytest.fixture(autouse=True, params=["file", "record"])
def small_is_smaller(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Dispatching again begins at a file, or at any record in it."""
    monkeypatch.setattr("rocketc.store.catch_up.SMALL_BYTES", 5000)
    monkeypatch.setattr("rocketc.log.recovery.SMALL_BYTES", 5000)
    if request.param == "record":
        monkeypatch.setattr("rocketc.log.recovery.APART", 0)


@pytest.fixture(scope="module")
def steps() -> list[remains.Files]:
    """A store after each step, with all records dispatched; the last one is closed."""
    found = []
    with remains.memory() as folder:
        root = Path(folder, "store")
        store = rocketc.open(root, **FIELDS)
        store.put("once", b"upon", keys="a time")
        for step in range(STEPS):
            fill(store, step, STEP, first=step * STEP)
            assert store.wait_dispatched(30)
            found.append(remains.take(root))
        store.close()
        found.append(remains.take(root))
    assert len(remains.log(found[-1])) > 8
    return found


@pytest.fixture
def root() -> Iterator[Path]:
    with remains.memory() as folder:
        yield Path(folder, "store")


def last_time(files: remains.Files) -> int:
    return 1_700_000_000_000 + 350 * (len(remains.messages(files)) - 2)


def checkpoint_of(files: remains.Files, index_time: int) -> bytes:
    time = last_time(files)
    return _checkpoint.encode((time, time, index_time, 0, 0))


def assert_sound(root: Path, says: object) -> list[str]:
    records = records_of(root)
    with opened(root, **FIELDS) as one:
        told = one.told
        assert_answers(one.store, records, says)
        for topic, queue_id in QUEUES:
            number = one.store.put(topic, b"next", queue_id=queue_id, keys="next").queue_offset
            assert number == by_queue(records)[topic, queue_id][-1]["queueOffset"] + 1, (says, topic, queue_id)
        assert one.store.wait_dispatched(30)
        assert_answers(one.store, records_of(root), says)
    assert_files(root, FIELDS)
    return told


def test_closed(steps, root):
    remains.lay(steps[-1], root)
    assert assert_sound(root, "closed") == []
    with opened(root, **FIELDS) as one:
        assert one.told == []
        assert_answers(one.store, records_of(root))


@pytest.mark.some(10)
@pytest.mark.parametrize("durable", range(STEPS))
def test_killed(steps, root, durable):
    """The checkpoint is from step `durable`; each other file is from that step or a later one."""
    chance = random.Random(durable)
    for way in range(4):
        files = dict(steps[STEPS - 1])
        for name in derived_files(files):
            step = chance.randrange(durable, STEPS) if way else STEPS - 1
            if way == 3:
                step = durable
            if name.startswith("index/"):
                step = STEPS - 1
            files[name] = steps[step].get(name, b"")
            if not files[name]:
                del files[name]
        files["checkpoint"] = checkpoint_of(steps[durable], 0)
        remains.lay(files, root)
        assert_sound(root, (durable, way))


@pytest.mark.parametrize("queue", ["orders/0", "orders/1", "Aa/0", "BB/3", "once/0", ""])
def test_a_queue_is_deleted(steps, root, queue):
    gone = f"consumequeue/{queue}".rstrip("/")
    remains.lay({name: data for name, data in steps[-1].items() if not name.startswith(f"{gone}/")}, root)
    assert assert_sound(root, gone)


@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_file_is_deleted(steps, root, place):
    names = [name for name in derived_files(steps[-1], "consumequeue") if "/orders/0/" in name]
    gone = {"first": names[0], "middle": names[len(names) // 2], "last": names[-1]}[place]
    remains.lay({name: data for name, data in steps[-1].items() if name != gone}, root)
    assert assert_sound(root, gone)


@pytest.fixture(scope="module")
def quiet() -> dict[str, remains.Files]:
    """Stores in which a queue got its last message long ago; a crash left them, and the checkpoint covers nearly all.

    new      never opened before
    again    opened again
    cleaned  opened again, and the first files of the log were deleted since
    """
    found = {}
    with remains.memory() as folder:
        root = Path(folder, "store")
        for name in ("new", "again", "cleaned"):
            store = rocketc.open(root, **FIELDS)
            if name == "new":
                for n in range(35):
                    store.put("once", b"upon %d" % n * 40, keys="a time")
            for n in range(150):
                store.put("often", b"%d" % n)
            if name == "cleaned":
                store.delete_before(FIELDS["mapped_file_size_commit_log"])
                assert 10 <= store.min_offset("once") < 20, "one of its files is deleted"
                for n in range(100):
                    store.put("often", b"%d" % n)
            assert store.wait_dispatched(30)
            taken = remains.take(root)
            assert "abort" in taken
            late = 1 << 41  # ms: the checkpoint says that everything is durable
            notes = taken["checkpoint"][40:]
            found[name] = {**taken, "checkpoint": _checkpoint.encode((late, late, late, 0, 0))[:40] + notes}
            store.close()
    return found


CRASHES = [
    (name, gone)
    for name in ("new", "again", "cleaned")
    for gone in ("nothing", "first", "middle", "last", "all but the folder", "all")
    if (name, gone) != ("new", "all")  # no note of the queue exists yet
]


@pytest.mark.parametrize(("name", "gone"), CRASHES)
def test_a_quiet_queue_lost_files_in_a_crash(quiet, root, name, gone):
    """The part that is dispatched again does not have a record of the queue, and the loss is still detected."""
    files = dict(quiet[name])
    names = sorted(path for path in files if path.startswith("consumequeue/once/0/"))
    assert len(names) >= 3
    lost = {"nothing": [], "first": names[:1], "middle": names[1:2], "last": names[-1:]}.get(gone, names)
    for path in lost:
        del files[path]
    remains.lay(files, root)
    if gone == "all but the folder":
        (root / "consumequeue/once/0").mkdir(parents=True)
    records = records_of(root)
    with opened(root, **FIELDS) as one:
        if gone not in ("last", "all but the folder"):  # a queue that the crash left incomplete is not reported
            assert bool(one.told) == bool(lost), one.told
        assert_answers(one.store, records, (name, gone))
        number = by_queue(records)["once", 0][-1]["queueOffset"] + 1
        assert one.store.put("once", b"again").queue_offset == number
    with opened(root, **FIELDS) as one:
        assert one.told == []
        assert_answers(one.store, records_of(root), (name, gone))


def honest(ask: Callable[[], Any]) -> Any:
    """The answer, or None if damage was reported instead."""
    try:
        return ask()
    except rocketc.CorruptRecordError:
        return None


@pytest.mark.parametrize("how", ["zeros", "noise"])
def test_damage_in_the_middle_is_reported_when_it_is_read(steps, root, how):
    chance = random.Random(how)
    names = derived_files(steps[-1], "consumequeue")
    for _ in range(40):
        name = chance.choice(names)
        data = bytearray(steps[-1][name])
        at = 20 * chance.randrange(len(data) // 20)
        if not any(data[at : at + 20]):
            continue
        data[at : at + 20] = bytes(20) if how == "zeros" else chance.randbytes(20)
        remains.lay({**steps[-1], name: bytes(data)}, root)
        with opened(root, **FIELDS) as one:
            for (topic, queue_id), known in by_queue(records_of(root)).items():
                for record in known:
                    offset = record["queueOffset"]
                    got = honest(lambda t=topic, q=queue_id, o=offset: one.store.get(t, q, o, 1).phy_offsets)
                    assert got in (None, [record["physicalOffset"]]), (name, at, topic, queue_id, offset)
