"""The jobs that run on stores, queues and tables while calls fail: see crash.faults."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from queue import Empty
from typing import Any

from crash import remains
from crash.fault_transactions import survives_transactions, transact, with_open_ones
from crash.faults import Job, Story, body_of, main
from crash.power_cleaning import Cleaned, CleaningLife
from crash.power_cut import Known, Put, as_put, assert_survives
from crash.power_queue import GROUPS, Queued, QueueLife
from crash.power_tables import NAMES, Tables, TablesLife, opened, shown
from support import oracle

import rocketc
from rocketc.tables.groups import SubscriptionGroupConfig

CLOCK = 1_700_000_000_000


# ---------------------------------------------------------------- a store's messages
def nothing(root: Path, fields: dict[str, Any]) -> Known:
    return Known(closed=False)


def write(root: Path, story: Story) -> None:
    """Open a store that may be new, put until the log has rolled twice, flush, read, close."""
    store = story.do(rocketc.open, root, **story.fields)
    if store is None:
        return
    for number in range(9):
        story.put(store, number)
        if number == 5:
            story.flush(store)
    story.flush(store)
    story.do(store.wait_dispatched, timeout=20)
    story.close(store)


def recover(root: Path, story: Story) -> None:
    """Open a store that crashed, and close it."""
    store = story.do(rocketc.open, root, **story.fields)
    if store is not None:
        story.close(store)


def crashed(root: Path, fields: dict[str, Any]) -> Known:
    with rocketc.open(root, **fields) as store:
        ends = [store.put("orders", body_of(n), tags="A", keys=f"k{n % 3} l{n}").end for n in range(9)]
        store.flush()
        store.wait_dispatched()
        files = remains.take(root)
    # A record that never reached the disk, and later ones that did: recovery cuts all of them off and keeps the bytes
    files = {**remains.zeroed(files, ends[4] - 100, ends[4] - 50), "abort": b"1"}
    files.pop("checkpoint")
    remains.lay(files, root)
    items = oracle.walk_log(oracle.read_log(root / "commitlog"))
    damage = oracle.damage(items)
    known = Known(closed=False)
    known.found([as_put(r) for r in oracle.records(items) if not damage or r["physicalOffset"] < damage[0].start])
    return known


def survives(root: Path, story: Story) -> None:
    assert_survives(root, story.fields, story.known, CLOCK)


# ---------------------------------------------------------------- cleaning, and deleting topics
def filled(root: Path, fields: dict[str, Any]) -> Cleaned:
    """Three log files; `a` has messages in the first and in the last one."""
    known = Cleaned()
    with rocketc.open(root, **fields) as store:
        store.create_topic("a")
        for number in range(9):
            topic = "a" if number in (0, 1, 8) else "orders"
            result = store.put(topic, body_of(number), keys=f"k{number % 3}")
            put = Put(topic, 0, body_of(number), result.phy_offset, result.queue_offset)
            known.acknowledged([put], durable=True, kept=True)
    known.created("a")
    known.closed = False
    return known


def clean(root: Path, story: Story) -> None:
    """Clean a store twice, and use it afterwards."""
    store = story.do(rocketc.open, root, **story.fields)
    if store is None:
        return
    for number in range(9, 12):
        story.put(store, number)
    for number in (12, 13):
        story.known.cleaning(store.max_phy_offset // 4096 * 4096)
        if (report := story.do(store.clean, expired_ms=-1)) is not None:
            story.known.cleaned(max(report.min_phy_offset, 0))
        story.put(store, number, "a")
    story.do(store.clean_expired_queues)
    story.do(store.wait_dispatched, timeout=20)
    story.close(store)


def delete(root: Path, story: Story) -> None:
    """Delete a topic, retry if that failed, and put to it again."""
    store = story.do(rocketc.open, root, **story.fields)
    if store is None:
        return
    story.put(store, 9, "a")
    end = store.max_phy_offset
    story.known.to_delete(["a"], end)
    if any(story.do(store.delete_topics, ["a"]) is not None for _ in range(2)):
        story.known.deleted(["a"], end)
        story.known.ended()
        for number in (10, 11):
            story.put(store, number, "a")
    story.put(store, 12)
    story.do(store.wait_dispatched, timeout=20)
    story.close(store)


def survives_cleaning(root: Path, story: Story) -> None:
    life = CleaningLife(None, root, story.fields, story.known, CLOCK)
    life.survives(root, story.known)


# ---------------------------------------------------------------- tables
def tables_written(root: Path, fields: dict[str, Any]) -> Tables:
    root.mkdir()
    story = Story(fields, None, Tables())
    for number in (1, 2):  # so that a .bak exists
        write_tables(root, story, number)
    return story.known


def write_tables(root: Path, story: Story, round_number: int = 3) -> None:
    """Open the tables, change each, and write them."""
    tables = story.do(opened, root)
    if tables is None:
        return
    if not has_copy(story):
        for kind, table in tables.items():
            assert shown(kind, table) in story.known.may[kind], ("another table was read", kind, table.load_error)
    name, number = NAMES[round_number], 100 * round_number
    topics, groups, deleted = tables["topics"], tables["groups"], tables["deleted"]
    topics.create(name, queues=3, persist=False)
    tables["offsets"].commit("orders", "audit", 0, number)
    tables["delays"].commit(2, number)
    for kind in ("topics", "offsets", "delays"):
        write_table(story, kind, tables[kind], tables[kind].persist, shown(kind, tables[kind]))
    group = SubscriptionGroupConfig(name)
    write_table(story, "groups", groups, lambda: groups.create(group), {**groups, name: group})
    write_table(story, "deleted", deleted, lambda: deleted.add([name], number), {**deleted.ends, name: number})


def write_table(story: Story, kind: str, table: Any, call: Callable[[], Any], after: Any) -> None:
    story.known.writing(kind, after)
    count = len(story.errors)
    story.do(call)
    if len(story.errors) == count:
        assert shown(kind, table) == after
        story.known.written(kind, after)


def has_copy(story: Story) -> bool:
    """Whether the .bak is read because the disk cannot read the file."""
    return story.case is not None and story.case.error == errno.EIO and story.case.call in ("open", "read", "pread")


def survives_tables(root: Path, story: Story) -> None:
    if has_copy(story):
        story.known.may = story.known.before
    TablesLife(None, root, story.fields, story.known, CLOCK).survives(root, story.known)


# ---------------------------------------------------------------- a rocketc.Queue
def queue_fields(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "position_interval": 3600.0, "visibility_timeout": None}


def queued(root: Path, fields: dict[str, Any]) -> Queued:
    known = Queued()
    with rocketc.Queue(root, **queue_fields(fields)) as queue:
        put_to(queue, range(8), known)
        for name, count in zip(GROUPS, (5, 4), strict=True):
            items = queue.consumer(name).get_many(count)
            queue.consumer(name).ack(*items)
            known.acking(name, range(count))
            known.done(name, range(count))
    known.closed = False
    return known


def put_to(queue: Any, numbers: range, known: Queued) -> None:
    known.begun([Put("queue", 0, body_of(number)) for number in numbers])
    found = queue.put_many([body_of(number) for number in numbers])
    puts = [Put("queue", 0, body_of(number), -1, found.queue_offset + n) for n, number in enumerate(numbers)]
    known.acknowledged(puts, durable=queue.store.config.flush == "sync", kept=True)


def take(queue: Any, name: str, known: Queued) -> None:
    if not queue.store.wait_dispatched(timeout=0.1):
        return
    consumer = queue.consumer(name)
    try:
        items = consumer.get_many(3, timeout=0.1)
    except Empty:  # the messages could not be dispatched
        return
    known.acking(name, [int(item.partition(b".")[0]) for item in items])
    consumer.ack(*items)


def use_queue(root: Path, story: Story) -> None:
    """Put, take, ack and flush in rounds; log files are deleted meanwhile."""
    queue = story.do(rocketc.Queue, root, **queue_fields(story.fields))
    if queue is None:
        return
    for turn in range(3):
        story.do(put_to, queue, range(8 + 2 * turn, 10 + 2 * turn), story.known)
        for name in GROUPS:
            story.do(take, queue, name, story.known)
        before = set(story.known.acked)
        done = story.do(positions_of, queue) or {}
        was_failed = queue.store.failed is not None
        if story.do(flushed, queue):
            assert not was_failed, "a failed store reports everything as durable"
            wrote(story.known, before, done)
    before = set(story.known.acked)
    done = story.do(positions_of, queue) or {}
    count = len(story.errors)
    story.do(queue.close)
    assert queue.closed
    if len(story.errors) == count:
        wrote(story.known, before, done)


def positions_of(queue: Any) -> dict[str, int]:
    return {name: queue.consumer(name).position for name in GROUPS}


def flushed(queue: Any) -> bool:
    queue.flush()
    return True


def wrote(known: Queued, put: set[int], done: dict[str, int]) -> None:
    known.durable(put)
    for name, position in done.items():
        known.done(name, [n for n, one in known.put.items() if 0 <= one.queue_offset < position])


def survives_queue(root: Path, story: Story) -> None:
    life = QueueLife(None, root, queue_fields(story.fields), story.known, CLOCK)
    life.survives(root, story.known)


JOBS = {
    "write": Job(nothing, write, survives),
    "recover": Job(crashed, recover, survives),
    "clean": Job(filled, clean, survives_cleaning),
    "delete": Job(filled, delete, survives_cleaning),
    "tables": Job(tables_written, write_tables, survives_tables),
    "queue": Job(queued, use_queue, survives_queue),
    "transactions": Job(with_open_ones, transact, survives_transactions),
}


if __name__ == "__main__":
    main(JOBS)
