"""TopicScan: the messages of topics of a cluster, as a scan; it leaves nothing in the brokers."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import re
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from rocketc.client.access import Access
from rocketc.client.loop_thread import LoopThread, give_back_loop, shared_loop
from rocketc.client.queue_range import QueueRange
from rocketc.client.read_ahead import ReadAhead
from rocketc.client.routes import MessageQueue
from rocketc.client.topic_merge import TopicFollower, TopicMerge, may_select
from rocketc.client.topic_reader import TOOLS_CONSUMER, TopicReader
from rocketc.errors import ClosedError, TopicNotFoundError
from rocketc.read.record_block import RecordBlock
from rocketc.read.record_stream import RecordStream
from rocketc.read.scan_options import Texts
from rocketc.read.topics import Topic, missing_text
from rocketc.remoting.subscribing import ALL, SQL92, TAG

_log = logging.getLogger("rocketc.client")

_AT_ONCE = 64  # topics that are asked for at the same time
_IDLE = 0.2  # seconds between two calls of idle()
_TRIES = 3  # of the fast way, without a message
_UNUSUAL = 1.0  # seconds for which a scan stays on the general way after an answer that is not usual
_NEW_WORDS = re.compile("CONTAINS|STARTSWITH|ENDSWITH", re.IGNORECASE)  # brokers of 4.x read them as properties

Blocks = Generator[RecordBlock, None, None]
_passes = weakref.WeakSet[Blocks]()  # of this process, that are not at their end


@dataclass(frozen=True)
class TopicStart:
    """Where to begin in each queue.

    kind    first: at its beginning; offset: at this queue offset; last: with its last `number` messages; end: after
            its last message
    """

    kind: Literal["first", "offset", "last", "end"] = "first"
    number: int = 0

    def applied(self, range: QueueRange) -> QueueRange:
        """Return the part of a range from there on.

        >>> TopicStart("last", 3).applied(QueueRange(10, 20)), TopicStart("offset", 5).applied(QueueRange(10, 20))
        (QueueRange(begin=17, end=20), QueueRange(begin=10, end=20))
        """
        at = {"first": 0, "offset": self.number, "last": range.end - self.number, "end": range.end}[self.kind]
        return range.begun_at(at)


class TopicScan(RecordStream):
    """The messages that are in topics when a pass begins. follow() continues with later ones.

    Messages of one broker come in the order of its log, and those of several brokers by their store time. At most
    64 MiB of messages wait in the memory; each queue has at least one answer of its broker there.

    access   the way to the cluster
    topics   names, and compiled patterns that match the whole name
    group    of the pulls; another one than TOOLS_CONSUMER for accounts that may not use that
    start_at where to begin in each queue
    positions  queue offsets at which to begin, instead of start_at; those of `ends` of another scan
    options  queues, tags, keys, sql, begin, end, offsets, where, columns, errors, crc, decompress, unwrap, batch_bytes,
             max_decompressed: see rocketc.scan(). Brokers select by the tags, or by the SQL92 filter if there are none
    A pass raises TopicNotFoundError if none of the topics exists, and the errors of TopicReader.

    >>> import rocketc
    >>> from rocketc.client.access import access_to
    >>> with rocketc.Broker() as broker, rocketc.client.Producer("shop", broker.name_server) as producer:
    ...     _ = producer.send("orders", b"one", tags="web"), producer.send("orders", b"two", tags="app")
    ...     [message.body for message in TopicScan(access_to(broker.name_server), ["orders"], tags="app")]
    [b'two']
    """

    def __init__(
        self,
        access: Access,
        topics: Sequence[Topic],
        *,
        group: str = TOOLS_CONSUMER,
        all_topics: bool = False,
        start_at: TopicStart = TopicStart(),
        positions: Mapping[MessageQueue, int] | None = None,
        **options: Any,
    ) -> None:
        name = f"rocketmq://{';'.join(access.addresses)}/{','.join(map(_name, topics))}"
        super().__init__(name, self._read, **options)
        queues, sql = options.get("queues"), options.get("sql")
        self._access, self._topics, self._group, self._all_topics = access, list(topics), group, all_topics
        self._queue_ids = None if queues is None else frozenset((queues,) if isinstance(queues, int) else queues)
        self._tags, self._sql = options.get("tags"), sql if sql is None or isinstance(sql, str) else sql.text
        self._begin, self._end = _ms(options.get("begin")), _ms(options.get("end"))
        self._offsets = options.get("offsets") or {}
        narrowing = ("tags", "keys", "sql", "begin", "end", "offsets", "where")
        is_narrow = any(options.get(name) is not None for name in narrowing)
        # The last messages that match are not the last messages.
        self._start_at = TopicStart() if start_at.kind == "last" and is_narrow else start_at
        self._positions = positions
        self._passes = weakref.WeakKeyDictionary[Blocks, threading.Event]()
        self.ends: dict[MessageQueue, int] = {}  # queue offsets after the messages of the latest pass

    @property
    def bytes(self) -> int:
        """0: how many bytes a pass reads is not known before.

        >>> from rocketc.client.access import access_to
        >>> TopicScan(access_to("127.0.0.1:9876"), ["orders"]).bytes
        0
        """
        return 0

    def close(self) -> None:
        """End the passes that were not read to their end.

        A pass that another thread reads now raises ClosedError there, soon.

        >>> from rocketc.client.access import access_to
        >>> TopicScan(access_to("127.0.0.1:9876"), ["orders"]).close()
        """
        for reading, ends in list(self._passes.items()):
            ends.set()
            with contextlib.suppress(ValueError):  # another thread reads it
                reading.close()

    def _read(self, idle: Callable[[], None] | None) -> Blocks:
        ends = threading.Event()
        reading = self._blocks(idle, ends)
        self._passes[reading] = ends
        _passes.add(reading)
        return reading

    def _blocks(self, idle: Callable[[], None] | None, ends: threading.Event) -> Blocks:
        """Read on the loop of the clients of this process. ends: set by close()"""
        thread, opened = shared_loop(), list[_Closable]()

        async def begun(make: Callable[..., _C], *arguments: Any) -> _C:
            """Make something that reads, and note it before a signal can interrupt the thread that waits for it."""
            made = make(*arguments)
            opened.append(made)
            return made

        try:
            reader = TopicReader(self._access, group=self._group, all_topics=self._all_topics)
            thread.run(reader.start())
            opened.append(reader)
            topics = thread.run(find_topics(reader, self._topics, waits=idle is not None))
            left, tries = thread.run(self._ranges(reader, topics)), _TRIES
            while left:
                direct = reader.direct_pulls(left, check=lambda: _check_open(ends), **self._selection(left))
                if direct is not None:
                    with contextlib.closing(direct):
                        while block := direct.next():
                            tries = _TRIES
                            yield block
                    if not (left := direct.left()):
                        break
                tries = 0 if direct is None else tries - 1
                merge = thread.run(begun(self._merge, reader, left))
                if tries > 0:  # an answer that is not usual
                    until = time.monotonic() + _UNUSUAL
                    while block := thread.run(merge.next()):
                        _check_open(ends)
                        yield block
                        if time.monotonic() >= until:
                            break
                    left = merge.left()
                    thread.run(merge.close())
                    continue
                ahead = thread.run(begun(ReadAhead, merge.next))
                while block := thread.run(ahead.next()):
                    _check_open(ends)
                    yield block
                left = {}
            if idle is None:
                return
            follower = thread.run(begun(self._follower, reader, topics))
            while True:
                idle()
                block = thread.run(follower.next(_IDLE))
                _check_open(ends)
                if block:
                    yield block
        finally:
            _leave(thread, opened)

    async def _ranges(self, reader: TopicReader, topics: Iterable[str]) -> dict[MessageQueue, QueueRange]:
        queues = [
            queue
            for topic in topics
            if reader.is_known(topic)
            for queue in reader.known_queues(topic)
            if self._queue_ids is None or queue.queue_id in self._queue_ids
        ]
        ranges = await reader.ranges(queues)
        self.ends = {queue: range.end for queue, range in ranges.items()}
        if self._positions is not None:
            begun = self._positions
            return {queue: range.begun_at(begun.get(queue, 0)) for queue, range in ranges.items()}
        ranges = {queue: self._start_at.applied(range) for queue, range in ranges.items()}
        if (begin := self._begin) is not None:
            at = await reader.each(ranges, lambda queue: reader.offset_at(queue, begin))
            ranges = {queue: range.begun_at(at[queue]) for queue, range in ranges.items()}
        return {queue: self._bounded(queue, range) for queue, range in ranges.items()}

    def _bounded(self, queue: MessageQueue, range: QueueRange) -> QueueRange:
        """Return the part of a range that `offsets` asks for; the filter leaves out the same messages."""
        bounds = self._offsets.get(queue.topic)
        if bounds is None:
            return range
        begin, end = bounds.get(queue.queue_id, bounds.get(None, (0, 0)))
        range = range if begin is None else range.begun_at(begin)
        return range if end is None else QueueRange(range.begin, max(range.begin, min(end, range.end)))

    def _expression(self, topics: Iterable[str]) -> Expression:
        return expression_of(self._tags, self._sql, topics)

    def _merge(self, reader: TopicReader, ranges: Mapping[MessageQueue, QueueRange]) -> TopicMerge:
        return TopicMerge(reader, ranges, **self._selection(ranges))

    def _selection(self, ranges: Mapping[MessageQueue, QueueRange]) -> dict[str, Any]:
        expression = self._expression({queue.topic for queue in ranges})
        return {"until": None if self._end is None else self._end + 1, **expression._asdict()}

    def _follower(self, reader: TopicReader, topics: list[str]) -> TopicFollower:
        expression = self._expression(topics)
        patterns = [topic for topic in self._topics if not isinstance(topic, str)]
        return TopicFollower(
            reader, topics, self.ends, patterns=patterns, queue_ids=self._queue_ids, **expression._asdict()
        )


def _check_open(ends: threading.Event) -> None:
    if ends.is_set():
        raise ClosedError("the scan is closed")


class Expression(NamedTuple):
    """An expression for brokers, and its type."""

    expression: str = ALL
    expression_type: str = TAG


class _Closable(Protocol):
    async def close(self) -> None: ...


_C = TypeVar("_C", bound=_Closable)


def _leave(thread: LoopThread, opened: Sequence[_Closable]) -> None:
    """End a pass: close what it has opened, the last first.

    Garbage collection may end a pass in any thread. In that of the loop, which must not wait for itself, another
    thread does it.
    """
    if not thread.is_here:
        return  # of the parent of this process
    if thread.is_current:
        threading.Thread(target=_leave, args=(thread, opened), name="rocketc-scan-end").start()
        return
    try:
        for one in reversed(opened):
            thread.run(one.close())
    finally:
        give_back_loop(thread)


@atexit.register
def _end_passes() -> None:
    """End all passes before the interpreter stops the thread of the loop: later, nothing could wait for it."""
    for reading in list(_passes):
        with contextlib.suppress(ValueError):  # another thread reads it
            reading.close()


def expression_of(tags: Texts | None, sql: str | None, topics: Iterable[str]) -> Expression:
    """Return what brokers select by; the filter of a scan leaves out the other messages.

    topics  see may_select()

    >>> expression_of(["web", "app||tv"], None, ["orders"])
    Expression(expression='web||app||tv', expression_type='TAG')
    >>> expression_of(None, "n > 5", ["orders"]), expression_of(["*"], None, ["orders"]).expression
    (Expression(expression='n > 5', expression_type='SQL92'), '*')
    """
    topics = list(topics)
    if not all(may_select(topic, TAG) for topic in topics):
        return Expression()
    if tags is not None:
        tags = [tags] if isinstance(tags, str) else list(tags)
        return Expression() if ALL in tags or not any(tags) else Expression("||".join(tags))
    if sql is None or _NEW_WORDS.search(sql) or not all(may_select(topic, SQL92) for topic in topics):
        return Expression()
    return Expression(sql, SQL92)


async def find_topics(reader: TopicReader, topics: Iterable[Topic], *, waits: bool) -> list[str]:
    """Return the names of the topics that exist; with `waits`, also the names of those that do not exist yet.

    topics  names and patterns
    A warning names those that do not exist. Raises TopicNotFoundError if there are no others.

    >>> import asyncio, rocketc
    >>> from rocketc.client.access import access_to
    >>> async def main(name_server):
    ...     async with TopicReader(access_to(name_server)) as reader:
    ...         return await find_topics(reader, ["TBW102", re.compile(".*")], waits=False)
    >>> with rocketc.Broker() as broker:
    ...     _ = broker.topics.create("orders")
    ...     asyncio.run(main(broker.name_server))
    ['TBW102', 'orders']
    """
    topics, names, missing = list(topics), list[str](), list[Topic]()
    for topic in topics:
        if isinstance(topic, str):
            matching = [topic] if await reader.find(topic) is not None else []
            names += [topic] if waits and not matching else []
        else:
            matching = [name for name in await reader.matching([topic]) if await reader.find(name) is not None]
        names += matching
        missing += [] if matching else [topic]
    if missing:
        text = missing_text(missing, set(await reader.topics()), "this cluster")
        if not names:
            raise TopicNotFoundError(text)
        _log.warning("%s%s", text, "; waiting for it" if waits else "")
    return list(dict.fromkeys(names))


async def existing_topics(reader: TopicReader, topics: Iterable[Topic]) -> list[str]:
    """Return the names of the topics that exist now, of names and patterns.

    >>> import asyncio, rocketc
    >>> from rocketc.client.access import access_to
    >>> async def main(name_server):
    ...     async with TopicReader(access_to(name_server)) as reader:
    ...         return await existing_topics(reader, ["none", re.compile("or.*")])
    >>> with rocketc.Broker() as broker:
    ...     _ = broker.topics.create("orders")
    ...     asyncio.run(main(broker.name_server))
    ['orders']
    """
    topics = list(topics)
    names = [topic for topic in topics if isinstance(topic, str)]
    patterns = [topic for topic in topics if not isinstance(topic, str)]
    if patterns:
        names += await reader.matching(patterns)
    names = list(dict.fromkeys(names))
    found = list[str]()
    for at in range(0, len(names), _AT_ONCE):
        part = names[at : at + _AT_ONCE]
        routes = await asyncio.gather(*map(reader.find, part))
        found += [name for name, route in zip(part, routes, strict=True) if route is not None]
    return found


def _name(topic: Topic) -> str:
    return topic if isinstance(topic, str) else f"/{topic.pattern}/"


def _ms(when: Any) -> int | None:
    """A time of scan() in ms since 1970, rounded down: the filter is exact, and has checked it."""
    return when if when is None or isinstance(when, int) else int(when.timestamp() * 1000)
