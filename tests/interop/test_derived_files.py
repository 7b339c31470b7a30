"""Each side takes the consume queues and the index of a closed store as they are, and rebuilds nothing.

After any number of turns the files are equal to those of a single writer.
"""

import shutil

import pytest
from interop import ours
from interop.ledger import of_size, plan
from interop.turns import SYNC, Turns
from support import oracle
from support.derived import files_of, from_log, same_files, without_names

pytestmark = pytest.mark.promise(9)

DERIVED = ("consumequeue", "index")
EXT = {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": 1000}


def puts(seed, count, **options):
    """Puts whose last one is in a queue: RocketMQ dispatches half messages after it again, and indexes them twice."""
    return [*plan(seed, count, **options), of_size(200)]


def state(root):
    """What changes when queues or index are written. RocketMQ writes each index file's header when it closes."""
    queues = [path for path in (root / "consumequeue").rglob("*") if path.is_file()]
    times = {path: path.stat().st_mtime_ns for path in queues}
    return files_of(root, "commitlog", *DERIVED), times


def same_as_from_log(turns):
    """Assert that the files are those that RocketMQ makes of the log."""
    records = oracle.records(oracle.walk_log(oracle.read_log(turns.root / "commitlog"), crc="body"))
    same_files(without_names(files_of(turns.root, *DERIVED)), from_log(records, turns.settings))


@pytest.mark.some(2)
@pytest.mark.parametrize("settings", [{}, SYNC], ids=["async", "sync"])
def test_rocketmq_opens_our_closed_store_without_changing_it(peer, tmp_path, settings):
    turns = Turns(tmp_path / "store", settings)
    for n in range(2):
        turns.rocketc_puts(puts(n, 200, v2=peer.knows_v2))
    assert not (turns.root / "abort").exists()
    before = state(turns.root)
    assert len(list((turns.root / "index").iterdir())) > 1
    turns.rocketmq_puts(peer, [])
    turns.both_answer(peer)
    after = state(turns.root)
    assert sorted(after[0]) == sorted(before[0])
    assert [path for path in after[0] if after[0][path] != before[0][path]] == []
    assert after[1] == before[1]
    same_as_from_log(turns)


def test_we_open_its_closed_store_without_changing_it(peer, tmp_path):
    turns = Turns(tmp_path / "store")
    turns.rocketmq_puts(peer, puts(1, 200, v2=peer.knows_v2))
    before, times = state(turns.root)
    ours.open_store(turns.root, turns.settings).close()
    assert state(turns.root) == (before, times)
    same_as_from_log(turns)
    turns.both_answer(peer)


@pytest.mark.parametrize("log", ["small", pytest.param("large", marks=pytest.mark.long)])
def test_files_after_turns_are_those_of_one_writer(peer, tmp_path, monkeypatch, log):
    if log == "large":  # then only its end is dispatched again
        monkeypatch.setattr("rocketc.store.catch_up.SMALL_BYTES", 0)
    turns = Turns(tmp_path / "store")
    for n in range(4):
        turns.rocketc_puts(puts(2 * n, 60, v2=peer.knows_v2))
        same_as_from_log(turns)
        turns.rocketmq_puts(peer, puts(2 * n + 1, 60, v2=peer.knows_v2))
        same_as_from_log(turns)


@pytest.mark.some(1)
@pytest.mark.parametrize("log", ["small", "large"])
def test_we_finish_the_dispatch_of_a_killed_process(start, peer, tmp_path, monkeypatch, log):
    if log == "large":
        monkeypatch.setattr("rocketc.store.catch_up.SMALL_BYTES", 0)
    turns = Turns(tmp_path / "store")
    for n in range(3):
        turns.rocketmq_is_killed(start(peer.release), puts(2 * n, 300, v2=peer.knows_v2), 100)
        turns.rocketc_puts([])
        same_as_from_log(turns)
        turns.rocketc_is_killed(puts(2 * n + 1, 300, v2=peer.knows_v2), 100)
        turns.rocketc_puts([])
        same_as_from_log(turns)
    turns.both_answer(peer)


@pytest.mark.long
def test_extension_files(peer, tmp_path):
    """consumequeue_ext: extension units that a queue's units refer to instead of holding the hash of the tags."""
    turns = Turns(tmp_path / "store", EXT)
    for n in range(3):
        turns.rocketc_puts(puts(2 * n, 100))
        before = state(turns.root), files_of(turns.root, "consumequeue_ext")
        turns.rocketmq_puts(peer, [])
        assert (state(turns.root), files_of(turns.root, "consumequeue_ext")) == before
        turns.rocketmq_puts(peer, puts(2 * n + 1, 100))
        before = state(turns.root), files_of(turns.root, "consumequeue_ext")
        turns.rocketc_puts([])
        assert (state(turns.root), files_of(turns.root, "consumequeue_ext")) == before
        turns.both_answer(peer, n)
    assert len(list((turns.root / "consumequeue_ext").rglob("0*0"))) > 3


NOTE = slice(4032, 4096)  # of the checkpoint: rocketc's note of the queues, written when it closes a store


@pytest.mark.some(2)
@pytest.mark.parametrize("note", ["kept", "zeroed"])
@pytest.mark.parametrize("log", ["small", "large"])
def test_our_note_of_the_queues(peer, tmp_path, monkeypatch, caplog, log, note):
    """RocketMQ keeps rocketc's note, so the note may name fewer queues and a shorter log. No opening needs the note."""
    if log == "large":
        monkeypatch.setattr("rocketc.store.catch_up.SMALL_BYTES", 0)
    turns = Turns(tmp_path / "store")
    checkpoint = turns.root / "checkpoint"
    turns.rocketc_puts(puts(1, 100))
    for turn, count in enumerate((0, 100, 0)):
        noted = checkpoint.read_bytes()[NOTE]
        assert noted[:8] == b"rcqueues"
        turns.rocketmq_puts(peer, puts(turn + 2, count) if count else [])
        assert checkpoint.read_bytes()[NOTE] == noted
        if note == "zeroed":
            checkpoint.write_bytes(checkpoint.read_bytes()[: NOTE.start] + bytes(64))
        before = state(turns.root)
        ours.open_store(turns.root, turns.settings).close()
        assert state(turns.root) == before
        assert checkpoint.read_bytes()[NOTE][:8] == b"rcqueues"
        same_as_from_log(turns)
    turns.both_answer(peer)
    assert caplog.text == "", "nothing had to be repaired"


def test_our_note_misses_a_queue_after_a_turn_of_rocketmq(peer, tmp_path, monkeypatch, caplog):
    """The part of the log that is dispatched again does not have a record of the queue."""
    monkeypatch.setattr("rocketc.store.catch_up.SMALL_BYTES", 0)
    turns = Turns(tmp_path / "store")
    turns.rocketc_puts([of_size(200, topic="early"), *puts(1, 300)])
    turns.rocketmq_puts(peer, puts(2, 10))
    shutil.rmtree(turns.root / "consumequeue/early")
    ours.open_store(turns.root, turns.settings).close()
    assert "consume queues or files of them are missing" in caplog.text
    same_as_from_log(turns)
    turns.both_answer(peer)
