"""Pulls that find messages, from the frame to the answer."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from typing_extensions import Buffer

from rocketc.broker._delivered import Delivered
from rocketc.broker._end_path import EndPath
from rocketc.broker._send_back_path import SendBackPath
from rocketc.broker._send_path import SendPath
from rocketc.broker.offsets import ConsumerOffsetManager
from rocketc.broker.subscriptions import Subscription
from rocketc.remoting._connection import ConnectionCore, FastPath
from rocketc.store._gets import Getting
from rocketc.store._raw_records import RawGetResult
from rocketc.store._results import TagFilter
from rocketc.tables.groups import SubscriptionGroupConfig
from rocketc.tables.topics import TopicConfig

class _Table(Protocol):
    @property
    def generation(self) -> int: ...

def template(topic_sys_flag: int, group_sys_flag: int) -> tuple[bytes, ...]: ...

class CheckedPull:
    @property
    def group(self) -> SubscriptionGroupConfig: ...
    @property
    def topic(self) -> TopicConfig: ...
    @property
    def subscription(self) -> Subscription: ...
    @property
    def filter(self) -> TagFilter | None: ...
    def __init__(
        self,
        group: SubscriptionGroupConfig,
        topic: TopicConfig,
        subscription: Subscription,
        slow_broker: int,
        generation: int,
        filter: TagFilter | None = None,
    ) -> None: ...

class PullPath(FastPath):
    enabled: bool
    backs: SendBackPath | None
    ends: EndPath | None
    found: int
    missed: int
    pulled: int
    delivered: dict[tuple[str, str], Delivered]
    def __init__(
        self,
        sends: SendPath,
        store: Getting,
        offsets: ConsumerOffsetManager,
        tables: Iterable[_Table],
        check: Callable[[int, dict[str, Any]], CheckedPull | None],
    ) -> None: ...
    def generation(self) -> int: ...
    def forget(self) -> None: ...
    def is_current(self, checked: CheckedPull) -> bool: ...
    def read(
        self, checked: CheckedPull, queue_id: int, offset: int, max_count: int, opaque: int
    ) -> bytes | list[Buffer] | None: ...
    def take_unmatched(
        self, connection: ConnectionCore | None, opaque: int
    ) -> tuple[CheckedPull, RawGetResult] | None: ...
    def find(self, checked: CheckedPull, queue_id: int, offset: int) -> int: ...
    def count(self, topic: str, group: str, queue_id: int, messages: int, size: int, seconds: float) -> None: ...
