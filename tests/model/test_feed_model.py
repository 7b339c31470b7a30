"""The change feed compared with lists: the changes of each subscription, whatever is put, deleted, cleaned or rolled.

Subscribers may be slow.
"""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from crash import remains
from crash.small import SMALL
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import rocketc
from rocketc import QueueChange

ENTRIES = 16  # of the ring
CODES = 16  # most codes of one change
SOON = 30
topics = st.sampled_from(["a", "b"])
queues = st.integers(0, 3)
tags = st.sampled_from(["A", "B", None])
Key = tuple[str, int]


def code_of(tag: str | None) -> int:
    return ord(tag) if tag else 0


@dataclass
class Queue:
    """A queue from its creation to its deletion."""

    key: Key
    max_offset: int = 0
    is_gone: bool = False


@dataclass
class Subscriber:
    subscription: Any
    wanted: frozenset[Key] | None
    entries: list[tuple[Queue, int, int]] = field(default_factory=list)  # (queue, max offset, tags code), unfetched
    missed: int = 0
    is_told_all: bool = False

    def look(self) -> None:
        """Drop the entries that the ring has overwritten before the subscriber looks."""
        if not self.is_told_all and len(self.entries) >= ENTRIES:
            self.entries.clear()
            self.missed += 1
            self.is_told_all = True

    def wants(self, key: Key) -> bool:
        return self.wanted is None or key in self.wanted

    def fetch(self, there: list[Queue]) -> list[QueueChange]:
        """The changes that changes() must return."""
        self.look()
        if self.is_told_all:
            self.is_told_all = False
            found = [QueueChange(*q.key, q.max_offset, None) for q in there if self.wants(q.key)]
            if found:
                return found
            self.look()
            if self.is_told_all:  # again: a fetch of the model does not take time
                return self.fetch(there)
        changes: dict[int, tuple[Queue, int, list[int]]] = {}
        for queue, max_offset, code in self.entries:
            if not queue.is_gone and self.wants(queue.key):
                codes = changes[id(queue)][2] if id(queue) in changes else []
                changes[id(queue)] = (queue, max_offset, codes if code in codes else [*codes, code])
        self.entries.clear()
        return [
            QueueChange(*queue.key, end, tuple(codes) if len(codes) <= CODES else None)
            for queue, end, codes in changes.values()
        ]


class FeedModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.memory: tempfile.TemporaryDirectory[str] = remains.memory()
        self.subscribers: list[Subscriber] = []
        self.queues: list[Queue] = []
        self.store: Any = None

    @initialize()
    def start(self) -> None:
        self.fields = {**SMALL, "mapped_file_size_commit_log": 8192, "mapped_file_size_consume_queue": 100}
        self.open()

    def open(self) -> None:
        self.store = rocketc.open(Path(self.memory.name, "store"), **self.fields)
        self.store._hook("feed_entries", ENTRIES)

    def teardown(self) -> None:
        if self.store is not None:
            self.store.close()
        self.memory.cleanup()

    def there(self) -> list[Queue]:
        return [queue for queue in self.queues if not queue.is_gone]

    def note(self, key: Key, tag: str | None, count: int) -> None:
        queue = next((queue for queue in self.there() if queue.key == key), None)
        if queue is None:
            queue = Queue(key)
            self.queues.append(queue)
        for _ in range(count):
            queue.max_offset += 1
            for subscriber in self.subscribers:
                subscriber.entries.append((queue, queue.max_offset, code_of(tag)))

    @rule(topic=topics, queue_id=queues, tag=tags, count=st.integers(1, 20))
    def put(self, topic: str, queue_id: int, tag: str | None, count: int) -> None:
        self.store.put_many(topic, [b"x"] * count, queue_id=queue_id, tags=tag)
        assert self.store.wait_dispatched(SOON)
        self.note((topic, queue_id), tag, count)

    @rule(numbers=st.lists(st.integers(0, 24), min_size=17, max_size=20))
    def put_many_tags(self, numbers: list[int]) -> None:
        for number in numbers:
            self.store.put("a", b"x", tags=chr(97 + number))
        assert self.store.wait_dispatched(SOON)
        for number in numbers:
            self.note(("a", 0), chr(97 + number), 1)

    @rule(wanted=st.none() | st.frozensets(st.tuples(topics, queues), min_size=1, max_size=3))
    def subscribe(self, wanted: frozenset[Key] | None) -> None:
        if len(self.subscribers) < 6:
            self.subscribers.append(Subscriber(self.store.subscribe(wanted), wanted))

    @precondition(lambda self: self.subscribers)
    @rule(data=st.data())
    def fetch(self, data: st.DataObject) -> None:
        subscriber = self.subscribers[data.draw(st.integers(0, len(self.subscribers) - 1))]
        self.compare(subscriber)
        assert subscriber.subscription.missed == subscriber.missed

    def compare(self, subscriber: Subscriber) -> None:
        found, expected = subscriber.subscription.changes(), subscriber.fetch(self.there())
        if all(change.tags_codes is None for change in expected):  # all queues, in the order of the store's table
            found, expected = sorted(found), sorted(expected)
        assert found == expected

    @precondition(lambda self: self.subscribers)
    @rule(data=st.data())
    def wait(self, data: st.DataObject) -> None:
        subscriber = self.subscribers[data.draw(st.integers(0, len(self.subscribers) - 1))]
        if subscriber.wanted is None:
            subscriber.look()
            assert subscriber.subscription.wait(0) == bool(subscriber.entries or subscriber.is_told_all)
        elif any(subscriber.wants(queue.key) for queue, _, _ in subscriber.entries):
            assert subscriber.subscription.wait(0)
            self.compare(subscriber)

    @precondition(lambda self: self.subscribers)
    @rule(data=st.data())
    def descriptor(self, data: st.DataObject) -> None:
        subscriber = self.subscribers[data.draw(st.integers(0, len(self.subscribers) - 1))]
        assert subscriber.subscription.fileno() >= 0

    @precondition(lambda self: self.subscribers)
    @rule(data=st.data(), drop=st.booleans())
    def unsubscribe(self, data: st.DataObject, drop: bool) -> None:
        subscriber = self.subscribers.pop(data.draw(st.integers(0, len(self.subscribers) - 1)))
        if not drop:
            subscriber.subscription.close()
        del subscriber
        assert self.store.feed.subscriber_count == len(self.subscribers)

    @rule(topic=topics)
    def delete_topic(self, topic: str) -> None:
        self.store.delete_topics(topic)
        for queue in self.queues:
            queue.is_gone = queue.is_gone or queue.key[0] == topic

    @rule()
    def roll(self) -> None:
        self.store._roll()

    @rule()
    def clean(self) -> None:
        self.store.clean(expired_ms=-1)

    @rule()
    def reopen(self) -> None:
        """Reopen the store: the feed starts empty, and messages found at the opening are not reported."""
        self.store.close()
        for subscriber in self.subscribers:
            with pytest.raises(rocketc.ClosedError):
                subscriber.subscription.changes()
        self.subscribers.clear()
        self.open()
        self.queues = [queue for queue in self.queues if not queue.is_gone]


TestFeedModel = FeedModel.TestCase
TestFeedModel.settings = settings(max_examples=10, stateful_step_count=20)


@pytest.mark.long
@pytest.mark.timeout(1200)
class TestFeedModelForLong(FeedModel.TestCase):
    settings = settings(max_examples=1000, stateful_step_count=60)
