"""Power cuts while a store is cleaned and topics are deleted: `python -m crash.power_cleaning FOLDER SEED`.

Log files are deleted by age, on request and because the disk is full; consume queues and index follow. Messages that
were not cleaned are still there. Cleaned messages do not come back, and their queue offsets are not assigned again.
Deleted topics stay deleted. Each deletion is complete or has not happened, and other topics lose nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash.power_cut import TOPICS, Known, Life, Put, as_put, main, records_of, settings_of
from support import derived, oracle
from support.store_checks import assert_answers, by_queue, opened

import rocketc
from rocketc.tables.deleted_topics import DeletedTopics

Queue = tuple[str, int]
QUEUES = [(topic, queue_id) for topic in TOPICS for queue_id in range(2)]
_EXPIRED_MS = 80 * 3_600_000  # a file expires when it was not changed for 72 hours


@dataclass
class Cleaned(Known):
    """What else has happened to the store.

    start     physical offset: the log begins there or later
    most      physical offset: the log begins there at the latest
    ends      by deleted topic: where the log ended at the deletion
    deleting  the same for topics that are being deleted
    floors    by queue: the next message has at least this queue offset
    expiring  queues without messages may be deleted
    table     by topic: whether it is in the table of topics, where that is known
    """

    start: int = 0
    most: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    deleting: dict[str, int] = field(default_factory=dict)
    floors: dict[Queue, int] = field(default_factory=dict)
    expiring: bool = False
    table: dict[str, bool] = field(default_factory=dict)

    def begun(self, puts: Iterable[Put]) -> None:
        super().begun(puts)
        for one in puts:
            if not self.table.get(one.topic, False):
                self.table.pop(one.topic, None)  # a put may create its topic

    def acknowledged(self, puts: Iterable[Put], *, durable: bool, kept: bool) -> None:
        super().acknowledged(puts, durable=durable, kept=kept)
        self.raise_floors(puts if durable else ())

    def durable(self, numbers: Iterable[int]) -> None:
        super().durable(numbers)
        self.raise_floors(self.put[number] for number in numbers)

    def raise_floors(self, puts: Iterable[Put]) -> None:
        for one in puts:
            if one.phy_offset < 0 or one.phy_offset >= max(self.ends.get(one.topic, 0), self.start):
                queue = one.topic, one.queue_id
                self.floors[queue] = max(self.floors.get(queue, 0), one.queue_offset + 1)

    def found(self, puts: Iterable[Put], start: int, ends: dict[str, int]) -> None:
        """The store was opened; `ends` says of which topics the deletion is finished."""
        for topic, end in self.deleting.items():
            if ends.get(topic) == end:  # otherwise `ends` has the end of an earlier deletion
                self.deleted([topic], end)
        self.deleting = {}
        self.must, self.acked = set(), set()
        self.acknowledged(puts, durable=True, kept=True)
        self.start = max(self.start, start)
        if self.expiring:
            there = {(one.topic, one.queue_id) for one in puts}
            self.floors = {queue: floor for queue, floor in self.floors.items() if queue in there}
            self.expiring = False

    def placed(self, puts: Iterable[Put]) -> None:
        self.put.update({one.number: one for one in puts})

    def cleaning(self, most: int) -> None:
        self.most = max(self.most, most)

    def is_gone(self, queue: Queue, ends: dict[str, int]) -> bool:
        """Whether the topic was deleted, and nothing was put to the queue since then."""
        end = ends.get(queue[0], -1)
        since = (one for one in self.put.values() if not 0 <= one.phy_offset < end)
        return end >= 0 and queue not in ((one.topic, one.queue_id) for one in since)

    def cleaned(self, start: int) -> None:
        self.raise_floors([self.put[n] for n in self.acked if 0 <= self.put[n].phy_offset < start])
        self.start = start

    def to_delete(self, topics: Iterable[str], end: int) -> None:
        self.deleting = dict.fromkeys(topics, end)
        for topic in topics:
            self.table.pop(topic, None)

    def deleted(self, topics: Iterable[str], end: int) -> None:
        for topic in topics:
            self.ends[topic] = end
            self.table[topic] = False
            for queue in [queue for queue in self.floors if queue[0] == topic]:
                del self.floors[queue]

    def ended(self) -> None:
        self.deleting = {}

    def expire(self) -> None:
        self.expiring = True

    def expired(self, queues: Iterable[Queue]) -> None:
        self.expiring = False
        for queue in queues:
            self.floors.pop(queue, None)

    def creating(self, topic: str) -> None:
        if not self.table.get(topic, False):
            self.table.pop(topic, None)

    def created(self, topic: str) -> None:
        self.table[topic] = True


class CleaningLife(Life):
    KNOWN = Cleaned

    @staticmethod
    def settings(chance: random.Random) -> dict[str, Any]:
        return {
            **settings_of(chance),
            "mapped_file_size_commit_log": chance.choice([4096, 4096, 8192]),
            "delete_when": ";".join(map(str, range(24))),
            "delete_commit_log_files_interval": 0,
            "delete_consume_queue_files_interval": 0,
        }

    def open(self) -> Any:
        store = rocketc.open(self.root, **self.fields)
        store._set_clock(self.clock)
        found = [as_put(record) for record in records_of(self.root)]
        start = store.min_phy_offset
        missing = [n for n in self.acked - {one.number for one in found} if not 0 <= self.put[n].phy_offset < start]
        assert missing == [], ("lost by a kill", missing, start)
        self.put = {one.number: one for one in found}
        self.acked = set(self.put)
        self.note("found", found, start, DeletedTopics(self.root).ends)
        return store

    def step(self, store: Any, chance: random.Random) -> Any:
        if chance.random() < 0.7:
            return super().step(store, chance)
        what = chance.choice(["clean", "clean", "age", "fill", "delete", "unused", "expired", "create"])
        if what in ("clean", "age", "fill"):
            self.clean(store, what)
        elif what == "delete":
            self.delete(store, chance.sample(TOPICS, chance.choice([1, 1, 2, 3])))
        elif what == "unused":
            store.wait_dispatched()  # topics without a consume queue are not deleted
            self.delete(store, TOPICS[1:], retain=TOPICS[:1])
        elif what == "expired":
            self.note("expire")
            self.note("expired", store.clean_expired_queues())
        else:
            topic = chance.choice(TOPICS[:2])
            self.note("creating", topic)
            store.create_topic(topic, queues=chance.choice([2, 4]))
            self.note("created", topic)
        return None

    def clean(self, store: Any, how: str) -> None:
        size = self.fields["mapped_file_size_commit_log"]
        most = store.max_phy_offset // size * size
        self.place(store)
        self.note("cleaning", most)
        if how == "clean":
            report = store.clean(expired_ms=-1)
        elif how == "age":
            report = store.clean(asked=False, now=time.time_ns() // 1_000_000 + _EXPIRED_MS)
        else:
            self.recorder.fill(87)
            report = store.clean(asked=False)
            self.recorder.fill(0)
        assert report.min_phy_offset <= most, report
        self.note("cleaned", max(report.min_phy_offset, 0))

    def place(self, store: Any) -> None:
        """Find out where each message is."""
        if self.fields["transient_store_pool_enable"]:
            store.flush()  # otherwise the log's files lack the bytes in the pool
        places = [as_put(record) for record in records_of(self.root)]
        self.put.update({one.number: one for one in places})
        self.note("placed", places)

    def delete(self, store: Any, topics: list[str], retain: list[str] | None = None) -> None:
        self.place(store)
        before = list(self.put)
        end = store.max_phy_offset
        self.note("to_delete", topics, end)
        if retain is None:
            store.delete_topics(topics)
        else:
            topics = store.clean_unused_topics(retain)
        self.acked.update(before)
        self.note("durable", before)
        self.note("deleted", topics, end)
        self.note("ended")

    def survives(self, root: Path, known: Cleaned) -> None:
        with opened(root, **self.fields) as one:
            store = one.store
            assert one.told == [] or not known.closed, ("it was closed", one.told)
            records = records_of(root)
            start = store.min_phy_offset
            assert known.start <= start <= max(known.most, known.start), ("begins at", start)
            assert_log(records, start, known)
            ends = self.ends_of(store, records, known)
            queued = queued_of(records, ends)
            assert_in_queues(store, records, queued, ends, known)
            store._set_clock(self.clock)
            for number, (topic, queue_id) in enumerate(QUEUES):
                live = by_queue(queued).get((topic, queue_id), [])
                low = known.floors.get((topic, queue_id), 0)
                if live:
                    low = live[-1]["queueOffset"] + 1
                elif topic in known.deleting or known.expiring:
                    low = 0
                got = store.put(topic, b"%d.next" % (self.next + number), queue_id=queue_id).queue_offset
                assert got == low if live else got >= low, ("given twice", topic, queue_id, got, low)
                if not live and known.is_gone((topic, queue_id), known.ends):
                    assert got == 0, ("deleted, but the queue offset continues", topic, queue_id, got)
        after = records_of(root)
        assert after[: len(records)] == records
        assert_verified(root)
        with opened(root, **self.fields) as one:
            assert one.told == [], ("not clean", one.told)
            assert_answers(one.store, after, queued=queued_of(after, ends))
        assert_units(root, queued_of(after, ends))
        assert records_of(root) == after

    def ends_of(self, store: Any, records: list[oracle.Record], known: Cleaned) -> dict[str, int]:
        """Where deleted topics ended: a deletion that was running is complete, or has not happened at all."""
        if not known.deleting:
            return known.ends
        last: AssertionError | None = None
        for ends in (known.ends, {**known.ends, **known.deleting}):
            try:
                assert_in_queues(store, records, queued_of(records, ends), ends, known)
                return ends
            except AssertionError as error:
                last = error
        raise AssertionError(("a part of the topics is deleted", known.deleting)) from last


def queued_of(records: list[oracle.Record], ends: dict[str, int]) -> list[oracle.Record]:
    return [record for record in records if record["physicalOffset"] >= ends.get(record["topic"], 0)]


def assert_log(records: list[oracle.Record], start: int, known: Cleaned) -> None:
    """Assert that each message is there that must be, unless it was cleaned, and no message that was never put."""
    found: set[int] = set()
    for record in records:
        one = as_put(record)
        wanted = known.put.get(one.number)
        assert wanted is not None, ("never put", one)
        assert one.number not in found, ("twice", one)
        found.add(one.number)
        assert (one.topic, one.queue_id, one.body) == (wanted.topic, wanted.queue_id, wanted.body), ("changed", one)
        assert wanted.queue_offset in (-1, one.queue_offset), ("renumbered", one, wanted)
        assert wanted.phy_offset in (-1, one.phy_offset), ("moved", one, wanted)
    lost = [known.put[number] for number in known.must - found if not 0 <= known.put[number].phy_offset < start]
    assert lost == [], ("lost", lost)


def assert_in_queues(
    store: Any, records: list[oracle.Record], queued: list[oracle.Record], ends: dict[str, int], known: Cleaned
) -> None:
    """Assert that queues have exactly the expected messages; an empty one begins and ends at its next offset."""
    for queue, live in by_queue(queued).items():
        offsets = [record["queueOffset"] for record in live]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets))), ("a gap", queue, offsets)
    assert_answers(store, records, queued=queued)
    for queue in QUEUES:
        if queue not in by_queue(queued):
            low, high = store.min_offset(*queue), store.max_offset(*queue)
            assert low == high, ("no message is left", queue, low, high)
            if known.is_gone(queue, ends):
                assert high == 0, ("deleted, and back", queue, high)
    for topic, listed in known.table.items():
        assert (topic in store.topics()) == listed, ("table of topics", topic, listed)


def assert_verified(root: Path) -> None:
    found = rocketc.verify(root)
    assert found.is_log_whole, found.to_dict()
    assert found.derived is not None
    # The clock was set back: deleted messages had later times. An index without keys does not record its size.
    known = "later than the last store timestamp", "with these settings, a file of the index"
    problems = [text for text in found.derived.problems if not any(part in text for part in known)]
    assert not problems and not found.derived.findings, found.to_dict()


def assert_units(root: Path, queued: list[oracle.Record]) -> None:
    """Assert that the units of all remaining messages are those that follow from the log."""
    for (topic, queue_id), units in derived.units(queued).items():
        folder = root / "consumequeue" / topic / str(queue_id)
        files = sorted((int(path.name), path.read_bytes()) for path in folder.iterdir())
        for number, unit in units.items():
            at = number * len(unit)
            start, data = next(one for one in reversed(files) if one[0] <= at)
            assert data[at - start : at - start + len(unit)] == unit, (topic, queue_id, number)


if __name__ == "__main__":
    main(CleaningLife)
