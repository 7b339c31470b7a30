"""rocketc.Queue compared with a list and sets, for items put, taken, acked, nacked and deleted, in any order.

The queue is closed or killed in between.
"""

import contextlib
import queue as python_queue
import tempfile
from pathlib import Path
from typing import Any

import pytest
from crash import remains
from crash.small import SMALL
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.replaced import MAKERS, is_named, no_hang, replace

import rocketc
from rocketc import Item, Queue

pytestmark = pytest.mark.promise(1)

GROUPS = ["default", "audit"]
MOST_ATTEMPTS = 3
groups = st.sampled_from(GROUPS)
chosen = st.integers(0, 1 << 30)  # selects one of the existing items


class Group:
    """The state that a group must have. Offsets are places in the list of all items that were put."""

    def __init__(self) -> None:
        self.acked: set[int] = set()  # or moved to the dead letters
        self.taken: dict[int, Item] = {}
        self.again: dict[int, int] = {}  # offset -> attempts
        self.next = 0  # of the items never taken since the queue was opened
        self.written = 0  # the position on the disk
        self.dead: list[int] = []

    def position(self) -> int:
        position = 0
        while position in self.acked:
            position += 1
        return position

    def restart(self, position: int) -> None:
        """All items after the position are delivered again; acks after it are forgotten."""
        self.acked = set(range(position))
        self.taken.clear()
        self.again.clear()
        self.next = self.written = position


class QueueModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.memory: tempfile.TemporaryDirectory[str] = remains.memory()
        self.root = Path(self.memory.name, "jobs")
        self.put_so_far: list[bytes] = []
        self.groups = {name: Group() for name in GROUPS}
        self.queue: Any = None

    @initialize(flush=st.sampled_from(["sync", "async"]), most=st.sampled_from([None, MOST_ATTEMPTS]))
    def start(self, flush: str, most: int | None) -> None:
        self.options = {"flush": flush, "max_attempts": most, "position_interval": 3600}
        self.most = most
        self.open()

    def teardown(self) -> None:
        if self.queue is not None:
            with contextlib.closing(self.queue):
                dead = {name: [int(m) for m in self.queue.dead_letters(name).items(timeout=0)] for name in GROUPS}
            assert dead == {name: group.dead for name, group in self.groups.items()}
        self.memory.cleanup()

    def open(self) -> None:
        self.queue = Queue(
            self.root, mapped_file_size_commit_log=65536, visibility_timeout=None, **SMALL, **self.options
        )
        for name in GROUPS:
            self.queue.consumer(name)

    def of(self, name: str) -> tuple[Any, Group]:
        return self.queue.consumer(name), self.groups[name]

    @rule(count=st.integers(1, 5), many=st.booleans())
    def put(self, count: int, many: bool) -> None:
        bodies = [b"%d" % (len(self.put_so_far) + n) for n in range(count)]
        if many:
            assert self.queue.put_many(bodies).queue_offset == len(self.put_so_far)
        else:
            assert [self.queue.put(body).queue_offset for body in bodies] == [int(body) for body in bodies]
        self.put_so_far += bodies

    def took(self, group: Group, item: Item) -> None:
        offset = item.message.queue_offset
        assert item == self.put_so_far[offset]
        if group.again:
            attempts = group.again.pop(offset)
        else:
            assert offset == group.next
            group.next += 1
            attempts = 0
        assert item.attempts == attempts + 1
        group.taken[offset] = item

    @rule(name=groups)
    def get(self, name: str) -> None:
        consumer, group = self.of(name)
        if group.again or group.next < len(self.put_so_far):
            self.took(group, consumer.get_nowait())
        else:
            with pytest.raises(python_queue.Empty):
                consumer.get_nowait()

    @rule(name=groups, most=st.integers(1, 8))
    def get_many(self, name: str, most: int) -> None:
        consumer, group = self.of(name)
        there = len(group.again) + len(self.put_so_far) - group.next
        if there:
            items = consumer.get_many(most, False)
            assert len(items) == min(most, there)
            for item in items:
                self.took(group, item)

    @precondition(lambda self: any(group.taken for group in self.groups.values()))
    @rule(name=groups, which=chosen, many=st.booleans())
    def ack(self, name: str, which: int, many: bool) -> None:
        consumer, group = self.of(name)
        if group.taken:
            offsets = sorted(group.taken)[which % len(group.taken) :] if many else []
            offsets = offsets or [sorted(group.taken)[which % len(group.taken)]]
            consumer.ack(*(group.taken.pop(offset) for offset in offsets))
            group.acked.update(offsets)

    @precondition(lambda self: any(group.taken for group in self.groups.values()))
    @rule(name=groups, which=chosen)
    def nack(self, name: str, which: int) -> None:
        consumer, group = self.of(name)
        if group.taken:
            offset = sorted(group.taken)[which % len(group.taken)]
            item = group.taken.pop(offset)
            consumer.nack(item)
            if item.attempts == self.most:
                group.acked.add(offset)
                group.dead.append(offset)
            else:
                group.again[offset] = item.attempts

    @rule()
    def flush(self) -> None:
        self.queue.flush()
        for group in self.groups.values():
            group.written = group.position()

    @precondition(lambda self: len(self.put_so_far) > 5)
    @rule()
    def delete(self) -> None:
        self.queue.store.delete_topics("queue")
        self.put_so_far = []
        for group in self.groups.values():
            group.restart(0)

    @rule()
    def close_and_open(self) -> None:
        self.queue.close()
        self.open()
        for group in self.groups.values():
            group.restart(group.position())

    @rule()
    def kill(self) -> None:
        """Nothing is lost; items that were acked since the positions were written are delivered again."""
        files = remains.take(self.root)
        self.queue.close()
        remains.lay(files, self.root)
        self.open()
        for group in self.groups.values():
            group.restart(group.written)

    @rule(which=chosen, kind=st.sampled_from(sorted(MAKERS)))
    def replace_a_file(self, which: int, kind: str) -> None:
        """Something else is in the place of a file of the closed queue. Nothing outside of its store is changed."""
        self.queue.close()
        files = remains.take(self.root)
        path = self.root / sorted(files)[which % len(files)]
        outside = Path(self.memory.name, "outside")
        before = replace(path, kind, outside)
        with no_hang():
            try:
                self.open()
                self.queue.close()  # writes the positions
            except rocketc.RocketcError as error:
                assert is_named(path, error)
        assert outside.read_bytes() == before and not (path.parent / "nowhere").exists()
        remains.lay(files, self.root)
        self.open()
        for group in self.groups.values():
            group.restart(group.position())

    @invariant()
    def sizes_and_positions_are_right(self) -> None:
        if self.queue is None:
            return
        for name in GROUPS:
            consumer, group = self.of(name)
            assert consumer.position == group.position()
            assert consumer.qsize() == len(group.again) + len(self.put_so_far) - group.next


TestQueueModel = QueueModel.TestCase
TestQueueModel.settings = settings(max_examples=30, stateful_step_count=40)


@pytest.mark.long
@pytest.mark.timeout(1200)
class TestQueueModelForLong(QueueModel.TestCase):
    settings = settings(max_examples=500, stateful_step_count=60)
