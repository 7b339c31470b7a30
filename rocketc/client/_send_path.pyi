"""The compiled way of sends: from the arguments to the bytes of the request, and from the answer to the result."""

from asyncio import Future
from collections import deque
from collections.abc import Callable
from typing import Any, final

from rocketc.client.routes import MessageQueue
from rocketc.remoting._channel import Call, ChannelCore

class InFlightCore:
    messages: int
    bytes: int
    _waiting: deque[tuple[int, Future[None]]]
    _empty: Future[None] | None
    _is_closed: bool
    @property
    def _messages_most(self) -> int: ...
    @property
    def _bytes_most(self) -> int: ...
    def __init__(self, messages: int, bytes: int) -> None: ...
    def _has_room(self, size: int) -> bool: ...

class Turn:
    value: int
    def __init__(self, value: int) -> None: ...

@final
class QueueWay:
    @property
    def queue(self) -> MessageQueue: ...
    @property
    def address(self) -> str: ...
    @property
    def channel(self) -> ChannelCore | None: ...
    def __init__(
        self, queue: MessageQueue, address: str, one: tuple[bytes, bytes], batch: tuple[bytes, bytes]
    ) -> None: ...

@final
class TopicWay:
    @property
    def topic(self) -> str: ...
    @property
    def info(self) -> Any: ...
    @property
    def ways(self) -> list[QueueWay | None]: ...
    def __init__(self, topic: str, info: Any, ways: list[QueueWay | None], turn: Turn) -> None: ...

@final
class SendPath:
    @property
    def sent(self) -> int: ...
    def __init__(
        self,
        instance: Any,
        in_flight: InFlightCore,
        sends: Any,
        clock: Callable[[], float],
        way_of: Callable[[str, TopicWay | None], TopicWay | None],
        channel_to: Callable[[str], ChannelCore | None],
        end: bytes,
        most: int,
        timeout: float,
    ) -> None: ...
    def begin(
        self,
        topic: Any,
        body: Any,
        tags: Any,
        keys: Any,
        shard: Any,
        delay_level: Any,
        delay: Any,
        deliver_at: Any,
        properties: Any,
        flag: Any,
        queue: Any,
        selector: Any,
        timeout: Any,
        answer: Any = None,
    ) -> SentMessage | None: ...
    def begin_batch(
        self, topic: Any, body: bytes, keys: tuple[str, ...], timeout: Any, answer: Any = None
    ) -> SentMessage | None: ...

@final
class SentMessage(Call):
    @property
    def topic_way(self) -> TopicWay: ...
    @property
    def way(self) -> QueueWay: ...
    @property
    def body(self) -> bytes: ...
    @property
    def tags(self) -> str | None: ...
    @property
    def keys(self) -> str | None: ...
    @property
    def batch(self) -> tuple[str, ...] | None: ...
    @property
    def flag(self) -> int: ...
    @property
    def began(self) -> float: ...
    @property
    def born(self) -> int: ...
    is_done: bool
    @property
    def key(self) -> str: ...
