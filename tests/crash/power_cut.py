"""Power cuts: a store is used, and each image in which a power cut may leave its disk is opened and checked.

`python -m crash.power_cut FOLDER SEED`, with disk.c loaded before libc. The environment has ROCKETC_IMAGES, the number
of images at least, or ROCKETC_SECONDS, the time to run. It writes a line of JSON that says what was tried. A failure
leaves in FOLDER its image and the store after it was opened, and prints where they are.

A store has several lives. Each starts with what a power cut or a kill left of the one before, so recoveries are cut off
as well. After a kill the files are as the process had written them, and nothing more of them is durable than before.

Here messages are put in many ways. Other operations have a Life of their own: crash.power_cleaning and others.
"""

from __future__ import annotations

import copy
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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from crash.disk import NOTE, Disk, Event, Image, Recorder, lay
from crash.small import SMALL
from support import oracle
from support.store_checks import assert_answers, assert_files, opened

import rocketc
from rocketc.log import recovery, recovery_parts
from rocketc.store import catch_up

TOPICS = ["orders", "a", "%RETRY%" + "g" * 140]
NEVER = 1 << 30  # ms


@dataclass(frozen=True)
class Put:
    """A message that was put; without offsets it may be in the store or not."""

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
    """What has happened to a store's messages up to some moment, by number.

    put     all messages whose put began
    must    those that must survive a power cut
    acked   those that must survive a kill
    closed  the store was closed then
    """

    put: dict[int, Put] = field(default_factory=dict)
    must: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)
    closed: bool = True

    def begun(self, puts: Iterable[Put]) -> None:
        self.put.update({one.number: one for one in puts})

    def acknowledged(self, puts: Iterable[Put], *, durable: bool, kept: bool) -> None:
        self.begun(puts)
        self.must.update(one.number for one in puts if durable)
        self.acked.update(one.number for one in puts if durable or kept)

    def durable(self, numbers: Iterable[int]) -> None:
        self.must.update(numbers)
        self.acked.update(numbers)

    def found(self, puts: Iterable[Put]) -> None:
        """The store was opened: messages that a reader may have seen stay, and no other message comes back."""
        self.put, self.must, self.acked = {}, set(), set()
        self.acknowledged(puts, durable=True, kept=True)

    def state(self, *, closed: bool) -> None:
        self.closed = closed


def settings_of(chance: random.Random) -> dict[str, Any]:
    """Arguments of rocketc.open() for a store with small files."""
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
    """One life of a store below `root`: what is done to it, and the notes about its files."""

    KNOWN: ClassVar[type[Any]] = Known
    LIVES = 3  # of a store
    KILLED = 0.3  # the share of lives that end with a kill

    def __init__(self, recorder: Recorder, root: Path, fields: dict[str, Any], known: Any, clock: int) -> None:
        self.recorder = recorder
        self.root = root
        self.fields = fields
        self.clock = clock
        self.known = known  # at the start of this life
        self.notes: list[Callable[[Any], object]] = [lambda known: None]
        self.events: list[Event] = []
        self.put: dict[int, Put] = dict(known.put)  # the messages that a reader sees now
        self.next = max(known.put, default=-1) + 1
        self.acked: set[int] = set(known.acked)

    @staticmethod
    def settings(chance: random.Random) -> dict[str, Any]:
        return settings_of(chance)

    def run(self, chance: random.Random, steps: int) -> None:
        self.recorder.watch(self.root)
        self.note("state", closed=False)
        store = self.open()
        try:
            for _ in range(steps):
                store = self.step(store, chance) or store
                if chance.random() < 0.8:
                    self.settle(store)
            if chance.random() < 0.5:
                self.close(store)
            self.events = self.recorder.take()
        finally:
            store.close()

    def note(self, what: str, *arguments: Any, **named: Any) -> None:
        """Leave a note that a method of Known must be called."""
        self.notes.append(lambda known: getattr(known, what)(*arguments, **named))
        self.recorder.note(len(self.notes) - 1)

    def settle(self, store: Any) -> None:
        store.wait_dispatched()

    def open(self) -> Any:
        store = rocketc.open(self.root, **self.fields)
        store._set_clock(self.clock)
        found = [as_put(record) for record in records_of(self.root)]
        self.put = {one.number: one for one in found}
        self.assert_acked(found)
        self.acked = set(self.put)
        self.note("found", found)
        return store

    def assert_acked(self, found: list[Put]) -> None:
        """Assert that no message is missing that the previous process has acknowledged."""
        missing = self.acked - self.put.keys()
        assert not missing, ("lost by a kill", sorted(missing))

    def close(self, store: Any) -> None:
        store.close()
        self.note("durable", list(self.put))
        self.note("state", closed=True)

    def step(self, store: Any, chance: random.Random) -> Any:
        what = chance.choice(["put"] * 4 + ["put_many", "put_batch", "flush", "roll", "clock", "pause", "close"])
        if what.startswith("put"):
            self.put_some(store, chance, what)
        elif what == "flush":
            before = list(self.put)
            store.flush()
            self.acked.update(before)
            self.note("durable", before)
        elif what == "roll":
            store._roll()
        elif what == "clock":
            self.clock = max(self.clock + chance.choice([1, 10, 5_000, 100_000, -10, -5_000, -100_000]), 1)
            store._set_clock(self.clock)
        elif what == "pause":
            time.sleep(0.006)
        elif chance.random() < 0.5:
            self.close(store)
            self.note("state", closed=False)
            return self.open()
        return None

    def put_some(self, store: Any, chance: random.Random, how: str) -> None:
        topic, queue_id = chance.choice(TOPICS), chance.randrange(2)
        if how == "put_batch" and topic.startswith("%RETRY%"):
            topic = "orders"
        count = 1 if how == "put" else chance.randrange(1, 6)
        first, self.next = self.next, self.next + count
        bodies = [body(first + n, chance)[: 600 if how == "put_batch" else None] for n in range(count)]
        puts = [Put(topic, queue_id, one) for one in bodies]
        self.note("begun", puts)
        where = {"queue_id": queue_id}
        if how == "put":
            found = store.put(topic, bodies[0], tags=chance.choice("AB"), keys=f"k{first % 7} l", **where)
        elif how == "put_many":
            found = store.put_many(topic, bodies, tags="A", **where)
        else:
            found = store.put_batch(topic, [(0, one, {"TAGS": "A"}) for one in bodies], **where)
        assert found.status.name == "PUT_OK" and found.count == count, found
        placed = [dataclasses.replace(one, queue_offset=found.queue_offset + n) for n, one in enumerate(puts)]
        placed[0] = dataclasses.replace(placed[0], phy_offset=found.phy_offset)
        self.put.update({one.number: one for one in placed})
        durable = self.fields["flush"] == "sync"
        kept = not self.fields["transient_store_pool_enable"]
        self.acked.update(one.number for one in placed if durable or kept)
        self.note("acknowledged", placed, durable=durable, kept=kept)

    def survives(self, root: Path, known: Any) -> None:
        """Open an image, and check that it has the messages that it must have."""
        assert_survives(root, self.fields, known, self.clock)


def records_of(root: Path) -> list[oracle.Record]:
    """All messages of a log, which must be whole."""
    items = oracle.walk_log(oracle.read_log(root / "commitlog"))
    assert oracle.damage(items) == [], oracle.damage(items)
    return oracle.records(items)


def as_put(record: oracle.Record) -> Put:
    where = record["physicalOffset"], record["queueOffset"]
    return Put(record["topic"], record["queueId"], record["storedBody"], *where)


def assert_messages(records: list[oracle.Record], known: Known) -> None:
    """Assert that each message that must be there is, once, unchanged, at its offset, and no unknown message."""
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
    """Assert that the engine opens the image, has the messages that it must have, and agrees with the log.

    A put works afterwards, and the next opening finds nothing to repair.
    """
    with opened(root, **fields) as one:
        assert one.told == [] or not known.closed, ("it was closed", one.told)
        records = records_of(root)
        assert_messages(records, known)
        assert_answers(one.store, records)
        one.store._set_clock(clock)
        queue = [record["queueOffset"] for record in records if (record["topic"], record["queueId"]) == ("orders", 0)]
        result = one.store.put("orders", b"%d.next" % NEVER, keys="next")
        # A queue that has lost all its messages may continue after their queue offsets.
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
    """All stores of one seed, one after the other."""

    def __init__(self, kind: type[Life], folder: Path, seed: int) -> None:
        self.kind = kind
        self.folder = folder
        self.seed = seed
        self.recorder = Recorder()
        self.images = self.looked_for = self.lives = self.kills = 0

    def store(self, number: int, images: int) -> None:
        """Run a store's lives, and open this number of images of each."""
        known, clock, disk = self.kind.KNOWN(), 1_700_000_000_000, Disk()
        root = self.folder / "store"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        chance = random.Random(f"{self.seed}/{number}")
        fields = self.kind.settings(chance)
        # Of a larger log, recovery and catch-up check only a part.
        catch_up.SMALL_BYTES = recovery.SMALL_BYTES = chance.choice([128 << 20, 5000, 0])
        recovery.APART = random.Random(f"{self.seed}/{number}/apart").choice([16 << 20, 3000, 0])
        recovery_parts.PART_BYTES = random.Random(f"{self.seed}/{number}/part").choice([32 << 20, 3000, 300])
        for life in range(self.kind.LIVES):
            chance = random.Random(f"{self.seed}/{number}/{life}")
            fields = {**fields, "flush": self.kind.settings(chance)["flush"]}
            one = self.kind(self.recorder, root, fields, known, clock)
            says = f"seed {self.seed}, store {number}, life {life}"
            try:
                one.run(chance, chance.choice([1, 5, 15, 30]))
            except BaseException:
                print(f"{says}: {fields}", file=sys.stderr)
                raise
            self.lives += 1
            if chance.random() < self.kind.KILLED:
                self.kills += 1
                left, known = self.cut(one, chance, images, says, disk, killed=True)
                disk.go_on()
            else:
                left, known = self.cut(one, chance, images, says, disk)
                known.acked, disk = set(known.must), Disk()
            lay(left, root)
            clock = one.clock

    def cut(
        self, life: Life, chance: random.Random, count: int, says: str, disk: Disk, *, killed: bool = False
    ) -> tuple[Image, Any]:
        """Cut the power at some moments of a life.

        Return what the next life starts with, one of the images or the files after a kill, and what is known of it.
        """
        known = copy.deepcopy(life.known)
        begun = next(n for n, event in enumerate(life.events) if event.kind == NOTE)
        near = [n for n, event in enumerate(life.events[:-1], 1) if event.is_sync or event.kind == NOTE]
        near += [n - 1 for n in near] + list(range(begun + 1, len(life.events) + 1))
        end = max(chance.choice(near), begun + 1) if killed else len(life.events)
        moments = sorted(min(max(chance.choice(near), begun + 1), end) for _ in range(count))
        chosen = chance.randrange(count)
        left: tuple[Image, Any] | None = None
        for at, event in enumerate(life.events[:end], 1):
            disk.follow(event)
            if event.kind == NOTE:
                life.notes[event.file](known)
            while moments and moments[0] == at:
                moments.pop(0)
                image = disk.image(chance)
                self.look(image, life, known, f"{says}, note {at} of {len(life.events)}")
                if len(moments) == count - 1 - chosen:
                    left = image, copy.deepcopy(known)
        if killed:
            return disk.latest(), known
        disk.assert_is(life.root) if known.closed else None
        assert left is not None
        return left

    def look(self, image: Image, life: Life, known: Any, says: str) -> None:
        root = self.folder / "image"
        lay(image, root)
        try:
            life.survives(root, known)
        except BaseException:
            shutil.rmtree(self.folder / "before", ignore_errors=True)
            lay(image, self.folder / "before")
            print(f"{says}: the image is in {self.folder / 'before'}, what became of it in {root}", file=sys.stderr)
            print(f"settings: {life.fields}", file=sys.stderr)
            print(f"known: {known}", file=sys.stderr)
            raise
        self.images += 1
        self.looked_for += len(known.must)


def main(kind: type[Life]) -> None:
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    most, seconds = int(os.environ.get("ROCKETC_IMAGES", "0")), float(os.environ.get("ROCKETC_SECONDS", "0"))
    logging.getLogger("rocketc").addHandler(logging.NullHandler())
    run, start, number = Run(kind, folder, seed), time.monotonic(), 0
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
    told |= {"killed": run.kills, "seconds": round(took, 2), "a_minute": round(run.images / took * 60)}
    print(json.dumps(told))


if __name__ == "__main__":
    main(Life)
