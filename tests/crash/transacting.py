"""A short script of transactions on a broker, which is killed; and what a broker of a later life makes of the store.

The broker runs without threads, and its clients are in its process. So the job `transact` of crash.zygote makes the
same system calls each time. What a body's first letter means: see crash.fault_transactions.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from crash.fault_transactions import CHECKED_SECONDS, HOST, SETTINGS, Decided, Producer
from crash.faults import Story
from simulation import virtual

import rocketc
from rocketc.broker import names
from rocketc.broker.config import BrokerConfig
from rocketc.broker.controller import BrokerController
from rocketc.broker.half_messages import op_offsets
from rocketc.tables.offsets import ConsumerOffsets

FIRST, LATER = ("c0", "r1", "l2", "d3", "k4", "c5"), ("c6", "r7", "l8")  # transactions before and after a pause
LAST = ("c9", "r10")  # after the checks: closing the broker stores their marks
LARGE = ("c5", "l8")  # two of their records do not fit into a file: there are calls between the half and the commit
PAUSE_SECONDS = 0.25  # the marks are stored meanwhile, but no producer is asked
QUEUED_SECONDS = 0.02  # a half message is in its queue then: the compiled way takes only such ends
PERSISTED_MS = 300


def body_of(name: str) -> bytes:
    return b"%s." % name.encode() + b"x" * (1900 if name in LARGE else 200 + 60 * int(name[1:]))


def name_of(body: bytes) -> str:
    return body.partition(b".")[0].decode()


class TellingProducer(Producer):
    """Tells what was answered: half, ended; and what it was asked."""

    def __init__(self, broker: BrokerController, story: Story, tell: Callable[[str], None]) -> None:
        super().__init__(broker, story)
        self._tell = tell

    async def transaction(self, body: bytes, known: Decided) -> None:
        await super().transaction(body, known)
        assert body in known.halves
        if body[:1] not in b"cr":
            self._tell(f"half {name_of(body)}")

    async def _end(self, body: bytes, offset: int, place: int, is_checked: bool) -> None:
        if not is_checked:
            self._tell(f"half {name_of(body)}")
            await asyncio.sleep(QUEUED_SECONDS)
        await super()._end(body, offset, place, is_checked)
        self._tell(f"ended {name_of(body)}")

    def _check(self, request: Any) -> None:
        [half] = rocketc.decode(request.body, None)
        self._tell(f"asked {name_of(half.body)}")
        super()._check(request)


async def lived(
    root: Path, fields: dict[str, Any], life: int, tell: Callable[[str], None], *turns: tuple[str, ...]
) -> None:
    """Run a broker until all that can be ended is: send half messages, end some, answer checks.

    turns   FIRST, LATER and LAST, or nothing
    fields  arguments of rocketc.open(); is_compiled: whether the compiled way takes the ends
    """
    fields = dict(fields)
    is_compiled = fields.pop("is_compiled", True)
    story = Story(fields, None, Decided(lives=life))  # type: ignore[arg-type]
    clock = story.known.clock
    how = {"background": False, "clock": clock, "store_host": HOST, "auto_create_topic_enable": True}
    store = rocketc.open(root, **{**fields, **how})
    config = BrokerConfig(**SETTINGS, flush_consumer_offset_interval=PERSISTED_MS)  # type: ignore[arg-type]
    broker = BrokerController(store, config, HOST, clock=clock, chance=random.Random(1))
    if not is_compiled:
        broker.pulls.path.ends = None
    await broker.start()
    producer = TellingProducer(broker, story, tell)
    await producer.begin()
    for seconds, turn in zip((0, PAUSE_SECONDS, CHECKED_SECONDS), turns or [()] * 3, strict=True):
        await asyncio.sleep(seconds)
        tell(f"marks {store.max_offset(names.OP_HALF_TOPIC, 0)}")
        for name in turn:
            await producer.transaction(body_of(name), story.known)
    await producer.end()
    await broker.close()
    store.close()
    # A killed broker leaves copies of a half message: the producer is asked about each, and its first answer counts.
    assert [error for error in story.errors if life == 1 or "is ended already" not in str(error)] == []
    tell("closed")


def transact(root: str, fields: dict[str, Any], tell: Callable[[str], None]) -> None:
    """The job of a process that is killed."""
    virtual.run(lived(Path(root), fields, 1, tell, FIRST, LATER, LAST))


class Left(NamedTuple):
    """What a store has of transactions, by the names of their bodies.

    delivered  how often each is in its topic
    halves     how often each is in the half topic: a check adds a copy
    marked     those whose half message, or a copy of it, is marked as ended
    open       how many half messages of each a check will ask about
    marks      op messages
    """

    delivered: Counter[str]
    halves: Counter[str]
    marked: set[str]
    open: Counter[str]
    marks: int


def left_in(root: Path, fields: dict[str, Any]) -> Left:
    """Read a store without running a broker."""
    fields = {name: value for name, value in fields.items() if name != "is_compiled"}
    with rocketc.open(root, **fields, background=False) as store:
        bodies = {
            topic: [(m.queue_offset, bytes(m.body)) for m in store.get(topic, 0, 0, 1000)]
            for topic in ("orders", names.HALF_TOPIC, names.OP_HALF_TOPIC)
        }
    halves = {offset: name_of(body) for offset, body in bodies[names.HALF_TOPIC]}
    ended = {offset for _, body in bodies[names.OP_HALF_TOPIC] for offset in op_offsets(body)}
    assert ended <= halves.keys(), "a mark of a half message that does not exist"
    first = ConsumerOffsets(root).get(names.HALF_TOPIC, names.TRANSACTION_GROUP, 0)
    return Left(
        Counter(name_of(body) for _, body in bodies["orders"]),
        Counter(halves.values()),
        {halves[offset] for offset in ended},
        Counter(name for offset, name in halves.items() if offset >= first and offset not in ended),
        len(bodies[names.OP_HALF_TOPIC]),
    )


def assert_survives(root: Path, fields: dict[str, Any], told: list[str], says: object) -> None:
    """Check the store of a killed broker, run a broker on it until each transaction is ended, and check it again."""
    words = [line.split() for line in told]
    of = {kind: {word[1] for word in words if word[0] == kind} for kind in ("half", "ended", "asked")}
    committed = {name for name in of["ended"] if name[0] in "cl"}
    before = left_in(root, fields)
    assert of["half"] <= before.halves.keys(), (says, "a half message is lost")
    assert max([int(word[1]) for word in words if word[0] == "marks"], default=0) <= before.marks, (says, "a mark")
    assert committed <= before.delivered.keys(), (says, "a commit is lost", committed, before)
    assert {name for name in before.marked if name[0] in "cl"} <= before.delivered.keys(), (says, before)
    assert {name for name in before.delivered if name[0] not in "cl"} == set(), (says, before)
    assert set(before.delivered.values()) <= {1}, (says, before)
    assert told[-1:] != ["closed"] or {name[0] for name in before.open} == {"k"}, (says, "a mark is lost", before)
    asked: list[str] = []
    virtual.run(lived(root, fields, 2, asked.append))
    asked_names = Counter(line.split()[1] for line in asked if line.startswith("asked"))
    after = left_in(root, fields)
    undecided = {name for name in before.open if name[0] == "k"}
    assert undecided <= asked_names.keys(), (says, "not asked", asked_names)
    # The committed message counts as a decision if the mark is lost: its producer is not asked.
    assert {n: c for n, c in asked_names.items() if n not in undecided} == {
        n: c for n, c in before.open.items() if n not in undecided and n not in before.delivered
    }, (says, before, asked_names)
    wanted = before.delivered.keys() | {n for n in before.open if n[0] in "cl"}
    assert after.delivered == Counter(wanted), (says, before, after)
    assert {name for name in of["half"] if name[0] in "cl"} <= after.delivered.keys(), (says, after)
    assert set(after.open) == undecided, (says, after)
    assert rocketc.verify(root).is_whole, says
