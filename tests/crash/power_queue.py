"""Power cuts under a rocketc.Queue: `python -m crash.power_queue FOLDER SEED`.

Checks what docs/howto/queue.md promises. A durable message is not lost before it is acked. A message that was taken and
not acked is delivered again. A message that was acked before flush() or close() is not delivered again. A message that
is put next is delivered to every group, whatever the group's position was.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash.disk import Recorder
from crash.power_cut import Known, Life, Put, as_put, body, main, number_of, records_of, settings_of

import rocketc

GROUPS = ["default", "audit"]
DEAD = "%DLQ%"
MOST_ATTEMPTS = 2


@dataclass
class Group:
    """What is known of a group, by number of the messages.

    acked   messages whose ack began
    buried  messages whose move to the dead letters began
    done    messages that must not be delivered again
    """

    acked: set[int] = field(default_factory=set)
    buried: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)


@dataclass
class Queued(Known):
    groups: dict[str, Group] = field(default_factory=lambda: {name: Group() for name in GROUPS})

    def acking(self, group: str, numbers: Iterable[int]) -> None:
        self.groups[group].acked.update(numbers)

    def burying(self, group: str, number: int) -> None:
        self.groups[group].buried.add(number)

    def done(self, group: str, numbers: Iterable[int]) -> None:
        self.groups[group].done.update(numbers)

    def found(self, puts: Iterable[Put]) -> None:
        """Missing messages were acked by all groups; a kill may bring them back."""
        self.must, self.acked = set(), set()
        self.acknowledged(puts, durable=True, kept=True)


class QueueLife(Life):
    KNOWN = Queued

    @staticmethod
    def settings(chance: random.Random) -> dict[str, Any]:
        fields = settings_of(chance)
        return {
            **fields,
            "mapped_file_size_commit_log": chance.choice([4096, 4096, 8192]),
            "position_interval": chance.choice([0.002, 3600.0]),
            "visibility_timeout": None,
            "max_attempts": MOST_ATTEMPTS,
            "delete_acked": chance.random() < 0.8,
        }

    def __init__(self, recorder: Recorder, root: Path, fields: dict[str, Any], known: Queued, clock: int) -> None:
        super().__init__(recorder, root, fields, known, clock)
        self.finished = {name: group.acked | group.buried for name, group in known.groups.items()}

    def open(self) -> Any:
        queue = rocketc.Queue(self.root, **self.fields)
        queue.store._set_clock(self.clock)
        found = [as_put(record) for record in records_of(self.root)]
        self.put = {one.number: one for one in found if one.topic == queue.topic}
        missing = self.acked - self.put.keys() - set.intersection(*self.finished.values())
        assert missing == set(), ("lost by a kill", sorted(missing))
        self.acked = set(self.put)
        self.note("found", [one for one in found if one.topic == queue.topic])
        self.of = {name: queue.consumer(name) for name in GROUPS}
        self.taken: dict[str, dict[int, Any]] = {name: {} for name in GROUPS}
        self.gone: dict[str, set[int]] = {name: set() for name in GROUPS}  # since the queue was opened
        return queue

    def settle(self, store: Any) -> None:
        store.store.wait_dispatched()

    def step(self, store: Any, chance: random.Random) -> Any:
        what = chance.choice(
            ["put"] * 4 + ["put_many"] + ["take"] * 5 + ["ack"] * 5 + ["nack", "flush", "pause", "close"]
        )
        name = chance.choice(GROUPS)
        if what.startswith("put"):
            self.put_to(store, chance, 1 if what == "put" else chance.randrange(1, 8))
        elif what == "take":
            self.take(name, chance.randrange(1, 8))
        elif what == "ack" and self.taken[name]:
            some = sorted(self.taken[name])
            self.ack(name, some if chance.random() < 0.6 else chance.sample(some, chance.randrange(1, len(some) + 1)))
        elif what == "nack" and self.taken[name]:
            self.nack(name, chance.choice(sorted(self.taken[name])))
        elif what == "flush":
            self.flush(store)
        elif what == "pause":
            time.sleep(0.006)
        elif what == "close" and chance.random() < 0.5:
            self.close(store)
            self.note("state", closed=False)
            return self.open()
        return None

    def put_to(self, queue: Any, chance: random.Random, count: int) -> None:
        first, self.next = self.next, self.next + count
        puts = [Put(queue.topic, 0, body(first + n, chance)) for n in range(count)]
        self.note("begun", puts)
        found = queue.put(puts[0].body, keys="k") if count == 1 else queue.put_many([one.body for one in puts])
        assert found.status.name == "PUT_OK" and found.count == count, found
        placed = [
            Put(one.topic, 0, one.body, found.phy_offset if n == 0 else -1, found.queue_offset + n)
            for n, one in enumerate(puts)
        ]
        self.put.update({one.number: one for one in placed})
        durable, kept = self.fields["flush"] == "sync", not self.fields["transient_store_pool_enable"]
        self.acked.update(one.number for one in placed if durable or kept)
        self.note("acknowledged", placed, durable=durable, kept=kept)

    def take(self, name: str, most: int) -> None:
        if self.of[name].empty():
            return
        for item in self.of[name].get_many(most, timeout=5):
            number = number_of(item)
            assert number not in self.taken[name] and number not in self.gone[name], ("twice", name, number)
            assert bytes(item) == self.put[number].body, ("changed", number)
            self.taken[name][number] = item

    def ack(self, name: str, numbers: list[int]) -> None:
        self.note("acking", name, numbers)
        self.of[name].ack(*(self.taken[name].pop(number) for number in numbers))
        self.gone[name].update(numbers)
        self.finished[name].update(numbers)

    def nack(self, name: str, number: int) -> None:
        item = self.taken[name].pop(number)
        if item.attempts == MOST_ATTEMPTS:
            self.note("burying", name, number)
            self.gone[name].add(number)
            self.finished[name].add(number)
        self.of[name].nack(item)

    def behind(self) -> dict[str, list[int]]:
        """The messages before each group's position: they are not delivered again once the position is written."""
        return {
            name: [n for n, one in self.put.items() if one.queue_offset < self.of[name].position] for name in GROUPS
        }

    def flush(self, queue: Any) -> None:
        before, done = list(self.put), self.behind()
        queue.flush()
        self.acked.update(before)
        self.wrote(before, done)

    def close(self, store: Any) -> None:
        before, done = list(self.put), self.behind()
        store.close()
        self.wrote(before, done)
        self.note("state", closed=True)

    def wrote(self, put: list[int], done: dict[str, list[int]]) -> None:
        self.note("durable", put)
        for name in GROUPS:
            self.note("done", name, done[name])

    def survives(self, root: Path, known: Queued) -> None:
        with rocketc.Queue(root, **self.fields) as queue:
            queue.store._set_clock(self.clock)
            taken = {name: take_all(queue.consumer(name)) for name in GROUPS}
            dead = {name: take_all(queue.consumer(name, DEAD + name)) for name in GROUPS}
            for name, items in taken.items():
                numbers = [number_of(item) for item in items]
                assert len(numbers) == len(set(numbers)), ("twice", name, numbers)
                for number, item in zip(numbers, items, strict=True):
                    assert number in known.put and known.put[number].body == item, ("never put, or changed", number)
                    wanted = known.put[number].queue_offset
                    assert wanted in (-1, item.message.queue_offset), ("renumbered", number)
                group = known.groups[name]
                lost = known.must - set(numbers) - group.acked - (group.buried & set(map(number_of, dead[name])))
                assert not lost, ("lost", name, sorted(lost))
                again = set(numbers) & group.done
                assert not again, ("comes again", name, sorted(again))
                offsets = [item.message.queue_offset for item in items]
                assert offsets == list(range(offsets[0], offsets[0] + len(offsets))) if offsets else True, offsets
            queue.put(b"%d.next" % self.next)
            for name in GROUPS:
                assert [number_of(item) for item in take_all(queue.consumer(name))] == [self.next], ("not taken", name)
            queue.consumer("audit").ack(*taken["audit"])
        with rocketc.Queue(root, **self.fields) as queue:
            again = [number_of(item) for item in take_all(queue)]
            assert again == [number_of(item) for item in taken["default"]] + [self.next], again
            assert [number_of(item) for item in take_all(queue.consumer("audit"))] == [self.next]


def take_all(consumer: Any) -> list[Any]:
    """Take all waiting messages without acking them."""
    found: list[Any] = []
    while not consumer.empty():
        found += consumer.get_many(1000, timeout=5)
    return found


if __name__ == "__main__":
    main(QueueLife)
