"""Power cuts: a store is used, and every image that its disk may be left with is opened and looked at.

`python -m crash.power_cut FOLDER SEED`, with disk.c loaded before libc, and in the environment ROCKETC_IMAGES or
ROCKETC_SECONDS: how many images at least, or for how long. It writes a line of JSON: what was tried. A failure leaves
its image, and the store as it was after it was opened, in FOLDER, and says where.

A store has several lives: each begins with what a power cut left of the one before, so recoveries are cut off as well.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import random
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import oracle
from crash.disk import NOTE, Disk, Event, Image, Recorder, lay
from crash.small import SMALL
from reopened import assert_answers, assert_files, opened

import rocketc
from rocketc import catch_up, recovery

TOPICS = ["orders", "a", "%RETRY%" + "g" * 140]
LIVES = 3
NEVER = 1 << 30  # ms


@dataclass(frozen=True)
class Put:
    """A message that was put; without its places it may be there or not."""

    topic: str
    queue_id: int
    body: bytes = field(repr=False)
    phy_offset: int = -1
    queue_offset: int = -1

    @property
    def number(self) -> int:
        return number_of(self.body)


def number_of(body: bytes) -> int:
    return int(body.partition(b".")[0])


def body(number: int, chance: random.Random) -> bytes:
    size = chance.choice([0, 20, chance.randrange(400), chance.randrange(400), chance.randrange(1500), 3000])
    return b"%d." % number + chance.randbytes(size)


@dataclass
class Known:
    """What has happened to a store's messages until some moment, by number.

    put     all that were begun
    must    those that a power cut must spare
    closed  it was closed then
    """

    put: dict[int, Put] = field(default_factory=dict)
    must: set[int] = field(default_factory=set)
    closed: bool = True


def settings_of(chance: random.Random) -> dict[str, Any]:
    """Fields of rocketc.open() for a store with small files."""
    fields: dict[str, Any] = {
        **SMALL,
        "mapped_file_size_commit_log": chance.choice([4096, 8192, 16384]),
        "mapped_file_size_consume_queue": chance.choice([60, 200, 2000]),
        "max_hash_slot_num": chance.choice([4, 50]),
        "max_index_num": chance.choice([8, 200]),
        "flush": chance.choice(["sync", "sync", "async"]),
        "lock": chance.choice(["spin", "reentrant", "adaptive"]),
        "prepare": chance.choice(["allocate", "populate", "write", "auto"]),
        "transient_store_pool_enable": chance.random() < 0.3,
        "enabled_append_prop_crc": chance.random() < 0.3,
        "message_index_safe": chance.random() < 0.3,
        "flush_interval_consume_queue": chance.choice([5, NEVER]),
        "flush_consume_queue_least_pages": chance.choice([0, 2]),
        "flush_consume_queue_thorough_interval": chance.choice([5, NEVER]),
        "flush_interval_commit_log": chance.choice([5, NEVER]),
        "flush_commit_log_least_pages": chance.choice([0, 4]),
        "max_message_size": 3500,
    }
    return fields


class Life:
    """One life of a store below `root`: what is done to it, and the notes of what became of its files."""

    def __init__(self, recorder: Recorder, root: Path, fields: dict[str, Any], known: Known, clock: int) -> None:
        self.recorder = recorder
        self.root = root
        self.fields = fields
        self.clock = clock
        self.known = known
        self.notes: list[dict[str, Any]] = [{}]
        self.events: list[Event] = []
        self.put = dict(known.put)

    def run(self, chance: random.Random, steps: int) -> None:
        self.recorder.watch(self.root)
        self.note(closed=False)
        store = self.open()
        try:
            for _ in range(steps):
                store = self.step(store, chance) or store
                if chance.random() < 0.8:
                    store.wait_dispatched()
            if chance.random() < 0.5:
                self.close(store)
            self.events = self.recorder.take()
        finally:
            store.close()

    def note(self, *, put: Iterable[Put] = (), must: Iterable[int] = (), closed: bool | None = None) -> None:
        self.notes.append({"put": list(put), "must": set(must), "closed": closed})
        self.recorder.note(len(self.notes) - 1)

    def open(self) -> Any:
        store = rocketc.open(self.root, **self.fields)
        store._set_clock(self.clock)
        found = [as_put(record) for record in records_of(self.root)]
        self.put = {one.number: one for one in found}  # what was lost may be put again
        self.note(put=found, must=self.put)  # what a reader may have seen stays
        return store

    def close(self, store: Any) -> None:
        store.close()
        self.note(must=self.put, closed=True)

    def step(self, store: Any, chance: random.Random) -> Any:
        what = chance.choice(["put"] * 4 + ["put_many", "put_batch", "flush", "roll", "clock", "pause", "close"])
        if what.startswith("put"):
            self.put_some(store, chance, what)
        elif what == "flush":
            before = set(self.put)
            store.flush()
            self.note(must=before)
        elif what == "roll":
            store._roll()
        elif what == "clock":
            self.clock = max(self.clock + chance.choice([1, 10, 5_000, 100_000, -10, -5_000, -100_000]), 1)
            store._set_clock(self.clock)
        elif what == "pause":
            time.sleep(0.006)
        elif chance.random() < 0.5:
            self.close(store)
            self.note(closed=False)
            return self.open()
        return None

    def put_some(self, store: Any, chance: random.Random, how: str) -> None:
        topic, queue_id = chance.choice(TOPICS), chance.randrange(2)
        if how == "put_batch" and topic.startswith("%RETRY%"):
            topic = "orders"
        count = 1 if how == "put" else chance.randrange(1, 6)
        first = max(self.put, default=-1) + 1
        bodies = [body(first + n, chance)[: 600 if how == "put_batch" else None] for n in range(count)]
        puts = [Put(topic, queue_id, one) for one in bodies]
        self.note(put=puts)
        where = {"queue_id": queue_id}
        if how == "put":
            found = store.put(topic, bodies[0], tags=chance.choice("AB"), keys=f"k{first % 7} l", **where)
        elif how == "put_many":
            found = store.put_many(topic, bodies, tags="A", **where)
        else:
            found = store.put_batch(topic, [(0, one, {"TAGS": "A"}) for one in bodies], **where)
        assert found.status.name == "PUT_OK" and found.count == count, found
        self.put.update({one.number: one for one in puts})
        placed = [dataclasses.replace(one, queue_offset=found.queue_offset + n) for n, one in enumerate(puts)]
        placed[0] = dataclasses.replace(placed[0], phy_offset=found.phy_offset)
        self.put.update({one.number: one for one in placed})
        self.note(put=placed, must=[one.number for one in placed] if self.fields["flush"] == "sync" else ())

    def known_after(self, known: Known, note: int) -> None:
        """Bring up what was known to what a note says."""
        said = self.notes[note]
        if not said:
            return
        if said["closed"] is not None:
            known.closed = said["closed"]
        known.put.update({one.number: one for one in said["put"]})
        known.must |= said["must"]


def records_of(root: Path) -> list[oracle.Record]:
    """All messages of a log, which is whole."""
    items = oracle.walk_log(oracle.read_log(root / "commitlog"))
    assert oracle.damage(items) == [], oracle.damage(items)
    return oracle.records(items)


def as_put(record: oracle.Record) -> Put:
    where = record["physicalOffset"], record["queueOffset"]
    return Put(record["topic"], record["queueId"], record["storedBody"], *where)


def assert_messages(records: list[oracle.Record], known: Known) -> None:
    """Each message that must be there is, once, unchanged, where it was; and none that nobody put."""
    found: dict[int, Put] = {}
    lengths: Counter[tuple[str, int]] = Counter()
    for record in records:
        one = as_put(record)
        assert one.number not in found, ("twice", one)
        found[one.number] = one
        wanted = known.put.get(one.number)
        assert wanted is not None, ("never put", one)
        assert (one.topic, one.queue_id, one.body) == (wanted.topic, wanted.queue_id, wanted.body), ("changed", one)
        assert wanted.queue_offset in (-1, one.queue_offset), ("renumbered", one, wanted)
        assert wanted.phy_offset in (-1, one.phy_offset), ("moved", one, wanted)
        queue = one.topic, one.queue_id
        assert one.queue_offset == lengths.setdefault(queue, one.queue_offset), ("a gap in its queue", one)
        lengths[queue] += 1
    missing = known.must - found.keys()
    assert not missing, ("lost", [known.put[number] for number in sorted(missing)])


def assert_survives(root: Path, fields: dict[str, Any], known: Known, clock: int) -> None:
    """The real engine opens it, has what it must have, says of it what the log says, goes on, and is clean then."""
    with opened(root, **fields) as one:
        assert one.told == [] or not known.closed, ("it was closed", one.told)
        records = records_of(root)
        assert_messages(records, known)
        assert_answers(one.store, records)
        one.store._set_clock(clock)
        queue = [record["queueOffset"] for record in records if (record["topic"], record["queueId"]) == ("orders", 0)]
        result = one.store.put("orders", b"%d.next" % NEVER, keys="next")
        # A queue that has lost all its messages may go on behind them.
        assert result.queue_offset == queue[-1] + 1 if queue else result.queue_offset >= 0, ("given twice", result)
        assert result.phy_offset >= max((r["physicalOffset"] + r["storeSize"] for r in records), default=0), (
            "written over"
        )
    assert_files(root, fields)
    after = records_of(root)
    assert after[:-1] == records and after[-1]["storedBody"] == b"%d.next" % NEVER
    assert not (root / "abort").exists()
    with opened(root, **fields) as one:
        assert one.told == [], ("not clean", one.told)
        assert_answers(one.store, after)
    assert records_of(root) == after


class Run:
    """All stores of one seed, one behind the other."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.seed = seed
        self.recorder = Recorder()
        self.images = self.looked_for = self.lives = 0

    def store(self, number: int, images: int) -> None:
        """A store's lives; of each so many images are opened."""
        known, clock = Known(), 1_700_000_000_000
        root = self.folder / "store"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        chance = random.Random(f"{self.seed}/{number}")
        fields = settings_of(chance)
        # Of a log that is larger not all is looked at.
        catch_up.SMALL_BYTES = recovery.SMALL_BYTES = chance.choice([128 << 20, 5000, 0])
        for life in range(LIVES):
            chance = random.Random(f"{self.seed}/{number}/{life}")
            fields = {**fields, "flush": settings_of(chance)["flush"]}
            one = Life(self.recorder, root, fields, known, clock)
            one.run(chance, chance.choice([1, 5, 15, 30]))
            self.lives += 1
            left, known = self.cut(one, chance, images, f"seed {self.seed}, store {number}, life {life}")
            lay(left, root)
            clock = one.clock

    def cut(self, life: Life, chance: random.Random, count: int, says: str) -> tuple[Image, Known]:
        """Cut the power at some moments of a life; one of the images, and what is known of it."""
        disk = Disk()
        known = Known(dict(life.known.put), set(life.known.must), life.known.closed)
        begun = next(n for n, event in enumerate(life.events) if event.kind == NOTE)
        near = [n for n, event in enumerate(life.events[:-1], 1) if event.is_sync or event.kind == NOTE]
        near += [n - 1 for n in near] + list(range(begun + 1, len(life.events) + 1))
        moments = sorted(chance.choice(near) for _ in range(count))
        moments = [max(n, begun + 1) for n in moments]
        chosen = chance.randrange(count)
        left: tuple[Image, Known] | None = None
        for at, event in enumerate(life.events, 1):
            disk.follow(event)
            if event.kind == NOTE:
                life.known_after(known, event.file)
            while moments and moments[0] == at:
                moments.pop(0)
                image = disk.image(chance)
                self.look(image, life, known, f"{says}, note {at} of {len(life.events)}")
                if len(moments) == count - 1 - chosen:
                    left = image, Known(dict(known.put), set(known.must), known.closed)
        disk.assert_is(life.root) if known.closed else None
        assert left is not None
        return left

    def look(self, image: Image, life: Life, known: Known, says: str) -> None:
        root = self.folder / "image"
        lay(image, root)
        try:
            assert_survives(root, life.fields, known, life.clock)
        except BaseException:
            shutil.rmtree(self.folder / "before", ignore_errors=True)
            lay(image, self.folder / "before")
            print(f"{says}: the image is in {self.folder / 'before'}, what became of it in {root}", file=sys.stderr)
            print(f"settings: {life.fields}", file=sys.stderr)
            print(f"must: {sorted(known.must)}, put: {sorted(known.put)}, closed: {known.closed}", file=sys.stderr)
            raise
        self.images += 1
        self.looked_for += len(known.must)


def main() -> None:
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    most, seconds = int(os.environ.get("ROCKETC_IMAGES", "0")), float(os.environ.get("ROCKETC_SECONDS", "0"))
    logging.getLogger("rocketc").addHandler(logging.NullHandler())
    run, start, number = Run(folder, seed), time.monotonic(), 0
    try:
        while run.images < most or time.monotonic() < start + seconds:
            run.store(number, 20)
            number += 1
    except BaseException:
        traceback.print_exc()
        print(f"run it again with ROCKETC_SEED={seed}", file=sys.stderr)
        os._exit(1)
    took = time.monotonic() - start
    told = {"images": run.images, "acknowledged": run.looked_for, "stores": number, "lives": run.lives}
    print(json.dumps({**told, "seconds": round(took, 2), "a_minute": round(run.images / took * 60)}))


if __name__ == "__main__":
    main()
