"""The notes in the checkpoint: an opening of a large store does not read the durable part again."""

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from support.damaged_logs import Stop

import rocketc
from rocketc.files import _checkpoint
from rocketc.store import catch_up, opening

pytestmark = pytest.mark.promise(5)

FAR = 200_000  # bytes after which the checkpoint is written early; 64 MiB by default
FILES = {"mapped_file_size_commit_log": 2 << 20, "mapped_file_size_consume_queue": 6000, "max_hash_slot_num": 100}
SMALL = 20_000  # at least this much of the end of a log is read; 128 MiB by default
BODY = b"x" * 1000
COUNT = 700


class Read:
    """What the last open() has read."""

    from_offset = -1  # by recovery
    dispatched_from = -1
    damage: list[Any]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> type[Read]:
    monkeypatch.setattr("rocketc.log.recovery.SMALL_BYTES", SMALL)
    monkeypatch.setattr("rocketc.store.catch_up.SMALL_BYTES", SMALL)
    really_recover, really_take = opening.recover, catch_up._take

    def recover(*args: Any, **options: Any) -> Any:
        found, offsets = really_recover(*args, **options)
        Read.from_offset, Read.damage = found.start, found.damage
        return found, offsets

    def take(dispatcher: Any, files: Any, start: int, end: int) -> None:
        Read.dispatched_from = start
        really_take(dispatcher, files, start, end)

    monkeypatch.setattr(opening, "recover", recover)
    monkeypatch.setattr(catch_up, "_take", take)
    return Read


def put(store: Any, first: int, count: int, *, keys: int = 0, body: bytes = BODY) -> list[Any]:
    return [
        store.put("t", body, queue_id=n % 3, keys=f"k{n}" if n < keys else None) for n in range(first, first + count)
    ]


def kill(store: Any, root: Path, into: Path) -> Path:
    """Copy an open store; the copy is a store whose process was killed."""
    shutil.copytree(root, into)
    (into / "lock").unlink()
    store.close()
    shutil.rmtree(root)
    return into


def checkpoint_of(root: Path) -> tuple[int, int, int]:
    path = root / "checkpoint"
    one = _checkpoint.read(path)
    return tuple(
        f(path, one) for f in (_checkpoint.flushed_offset, _checkpoint.queued_offset, _checkpoint.indexed_offset)
    )


@pytest.fixture
def killed(open_store: Any, tmp_path: Path) -> Path:
    """A store that was killed after a flush and ten more messages."""
    store = open_store(tmp_path / "one", **FILES)
    store._hook("far", FAR)
    put(store, 0, COUNT)
    store.flush()
    put(store, COUNT, 10)
    assert store.wait_dispatched(30)
    return kill(store, tmp_path / "one", tmp_path / "killed")


def test_after_a_flush_only_the_end_is_read(open_store, killed, read):
    flushed, queued, indexed = checkpoint_of(killed)
    assert flushed == queued > COUNT * len(BODY)
    assert indexed == 0
    with open_store(killed, **FILES) as store:
        assert flushed - 2 * SMALL < read.from_offset < flushed - SMALL
        assert read.from_offset <= read.dispatched_from <= flushed - SMALL
        assert [store.max_offset("t", n) for n in range(3)] == [237, 237, 236]
        assert store.put("t", b"next", queue_id=2).queue_offset == 236
        assert sum(len(store.get("t", n, 0, 1000).messages) for n in range(3)) > 0
    assert rocketc.scan(killed).count() == COUNT + 11


def test_after_a_close_only_the_end_is_read(open_store, killed, read):
    open_store(killed, **FILES).close()
    end = max(m.phy_offset + m.store_size for m in rocketc.scan(killed))
    with open_store(killed, **FILES) as store:
        assert end - 2 * SMALL < read.from_offset < end - SMALL
        assert store.put("t", b"next", queue_id=2).queue_offset == 236


def test_the_keeper_does_not_wait_a_minute(open_store, tmp_path):
    """Queues and index become durable after each 64 MiB, too."""
    store = open_store(**FILES, flush_interval_consume_queue=10)
    store._hook("far", FAR)
    end = put(store, 0, COUNT)[-1].end
    until = time.monotonic() + 20
    while checkpoint_of(tmp_path)[1] < end - FAR and time.monotonic() < until:
        time.sleep(0.01)
    assert checkpoint_of(tmp_path)[1] >= end - FAR


def test_a_store_without_threads_notes_it_too(open_store, tmp_path):
    times = iter(range(1_700_000_000_000, 1_800_000_000_000, 5))
    store = open_store(**FILES, background=False, clock=lambda: next(times))
    store._hook("far", FAR)
    end = put(store, 0, COUNT)[-1].end
    for _ in range(500):
        store.step()
    assert checkpoint_of(tmp_path)[1] == end


def test_keys_that_are_noted_and_gone_are_put_again(open_store, tmp_path, read):
    """The last key is noted: if the index ends before it, all keys are put again."""
    store = open_store(tmp_path / "one", **FILES)
    store._hook("far", FAR)
    put(store, 0, COUNT, keys=20)
    store.flush()
    root = kill(store, tmp_path / "one", tmp_path / "killed")
    assert 0 < checkpoint_of(root)[2] < 20 * 2 * len(BODY)
    shutil.rmtree(root / "index")
    with open_store(root, **FILES) as store:
        assert [len(store.query("t", f"k{n}").messages) for n in range(20)] == [1] * 20
    assert read.from_offset > 0


@pytest.mark.parametrize("at", ["before the notes", "after the notes"])
def test_damage_at_the_end(open_store, killed, read, at):
    """Damage before the notes: the notes are not used, and the file is read from its start, as without notes."""
    flushed = checkpoint_of(killed)[0]
    records = [m for m in rocketc.scan(killed) if (m.phy_offset < flushed) == (at == "before the notes")]
    hit = records[-5]
    path = next((killed / "commitlog").iterdir())
    with path.open("r+b") as file:
        file.seek(hit.phy_offset + 500)
        file.write(b"damage")
    with open_store(killed, **FILES) as store:
        assert (read.from_offset == 0) == (at == "before the notes")
        assert read.damage[0][::2] == (hit.phy_offset, "bad_body_crc")
        lost = 1 if at == "before the notes" else 5
        assert sum(store.max_offset("t", n) for n in range(3)) == COUNT + 10 - (lost if at != "before the notes" else 0)


@pytest.mark.parametrize("what", ["younger", "another record size", "shorter"])
def test_notes_of_another_log_are_not_used(open_store, killed, read, tmp_path, what):
    """Another program has cut the log and written other records, and was killed before it wrote the checkpoint."""
    noted, mine = (killed / "checkpoint").read_bytes(), checkpoint_of(killed)
    clock = {"younger": time.time() + 60}.get(what, time.time() - 60)
    other = open_store(tmp_path / "two", **FILES, background=False, clock=lambda: int(clock * 1e3))
    body = BODY if what != "another record size" else BODY[:-1]
    put(other, 0, COUNT + 30 if what != "shorter" else 300, body=body)
    other.close()
    root = tmp_path / "two"
    (root / "checkpoint").write_bytes(noted)
    (root / "abort").touch()
    with open_store(root, **FILES) as store:
        assert read.from_offset == 0
        assert checkpoint_of(root)[0] == store.max_phy_offset or what != "shorter"
        assert sum(store.max_offset("t", n) for n in range(3)) == (300 if what == "shorter" else COUNT + 30)
    assert mine[0] > 0


@pytest.mark.parametrize("folder", ["consumequeue", "index", "consumequeue/t/1"])
def test_queues_that_are_gone_are_made_again(open_store, killed, read, folder):
    shutil.rmtree(killed / folder)
    with open_store(killed, **FILES) as store:
        assert [store.max_offset("t", n) for n in range(3)] == [237, 237, 236]
        assert [len(store.get("t", n, 230).messages) for n in range(3)] == [7, 7, 6]


def test_a_recovery_from_the_notes_can_be_interrupted(open_store, killed, read, monkeypatch):
    def stop(*_: Any, **__: Any) -> None:
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr("rocketc.log.recovery.truncate_and_backup", stop)
        with pytest.raises(Stop):
            open_store(killed, **FILES)
    with open_store(killed, **FILES) as store:
        assert read.from_offset > 0
        assert [store.max_offset("t", n) for n in range(3)] == [237, 237, 236]


def test_the_store_is_open_on_one_processor(open_store, killed, read):
    """Without a second processor no threads are started."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        open_store(killed, **FILES).close()
    finally:
        os.sched_setaffinity(0, allowed)
    assert read.from_offset > 0


@pytest.mark.parametrize("queues, are_durable", [(64, True), (65, False)])
def test_a_flush_makes_only_few_queues_durable(tmp_path, queues, are_durable):
    """With many queues that takes seconds: it is left to the thread that does it regularly."""
    with rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 20, flush_interval_consume_queue=60_000) as store:
        store._hook("far", 1000)
        for queue_id in range(queues):
            store.put("t", bytes(100), queue_id=queue_id)
        assert store.wait_dispatched(30)
        store.flush()
        checkpoint = _checkpoint.read(tmp_path / "checkpoint")
        assert (_checkpoint.queued_offset(tmp_path / "checkpoint", checkpoint) > 0) == are_durable
