"""The SQL92 filters of consumer groups: registered by heartbeats, kept in a table, compiled for pulls.

Source: RocketMQ ConsumerFilterManager, ExpressionMessageFilter; what a broker of 5.3.3 answers.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rocketc._layout import RETRY_PREFIX
from rocketc.broker._property_filters import PropertyFilter, RetryFilter, property_filter, retry_filter
from rocketc.broker.subscriptions import Subscription
from rocketc.errors import RocketcError, SqlError
from rocketc.remoting.subscribing import is_tag_type
from rocketc.tables.config_manager import Clock
from rocketc.tables.filters import ConsumerFilterData, ConsumerFilters

if TYPE_CHECKING:
    from rocketc.read._sql_filter import SqlFilter

_log = logging.getLogger("rocketc.broker")

SQL92 = "SQL92"
CLEAN_MS = 86_400_000  # filterDataCleanTimeSpan
AT_ONCE = 1 << 14  # characters of new expressions that one heartbeat compiles; the others wait for their first pull
LONG = 2048  # characters of an expression that takes 20 ms
EACH = 512  # characters that a short expression costs as much as
REFUSED_MOST = 10_000  # filters whose refusal is remembered, to log it once


def compiled(text: str) -> SqlFilter | SqlError:
    """Return a compiled filter, or what is wrong with its text. The last results are cached.

    Raises RocketcError if lark is not installed.

    >>> compiled("price > 10").text, str(compiled("price >"))[:24]
    ('price > 10', 'SQL filter, column 8: ex')
    """
    from rocketc.read.sql import sql_result  # late: most brokers do not need it

    return sql_result(text)


def takes_long(expression_type: str | None, text: str | None) -> bool:
    """Whether an expression is so long that it should be compiled on a thread, and is not compiled yet.

    >>> takes_long("SQL92", "price > 10"), takes_long("SQL92", "price > 10 OR " * 500 + "TRUE")
    (False, True)
    """
    if expression_type != SQL92 or text is None or len(text) <= LONG:
        return False
    from rocketc.read.sql import has_result  # late, as above

    return not has_result(text)


def _is_too_long(text: str) -> bool:
    from rocketc.read.sql import TEXT_MAX  # late, as above

    return len(text) > TEXT_MAX


def filter_error(expression_type: str, text: str) -> str | None:
    """Return what is wrong with an expression; None: it is a filter. Raises RocketcError if lark is not installed.

    >>> filter_error("SQL92", "price > 10"), filter_error("OTHER", "price > 10")
    (None, 'there is no filter of type OTHER')
    """
    if expression_type != SQL92:
        return f"there is no filter of type {expression_type}"
    found = compiled(text)
    return str(found) if isinstance(found, SqlError) else None


def text_filter(expression_type: str, text: str) -> PropertyFilter | None:
    """Return the filter of an expression, for pulls; None: it is not valid. Raises RocketcError without lark.

    >>> text_filter("SQL92", "price >"), type(text_filter("SQL92", "price > 10")).__name__
    (None, 'PropertyFilter')
    """
    found = compiled(text) if expression_type == SQL92 else None
    return None if found is None or isinstance(found, SqlError) else property_filter(found)


class ConsumerFilterManager:
    """The filters of the groups of a broker. A filter stays when its consumers leave, and is dropped a day later.

    table    config/consumerFilter.json
    clock    gives ms
    changed  called after each change of the table; the caller writes table.persist(), which waits for the disk
    Its `generation` is greater after each change.

    >>> import tempfile
    >>> filters = ConsumerFilterManager(ConsumerFilters(tempfile.mkdtemp()), lambda: 1000)
    >>> wanted = Subscription("orders", "price > 10", sub_version=7, expression_type="SQL92")
    >>> filters.register("audit", [wanted]) < AT_ONCE
    True
    >>> filters.find("orders", "audit").client_version, type(filters.pull_filter("orders", "audit")).__name__
    (7, 'PropertyFilter')
    """

    def __init__(self, table: ConsumerFilters, clock: Clock, changed: Callable[[], object] = lambda: None) -> None:
        self.table, self._clock, self._changed = table, clock, changed
        self.generation = 0
        self._refused: dict[tuple[str, str], int] = {}  # versions of the last filters that were not valid

    def find(self, topic: str, group: str) -> ConsumerFilterData | None:
        """Return what a group has registered for a topic."""
        return self.table.get(topic, group)

    def pull_filter(self, topic: str, group: str) -> PropertyFilter | None:
        """Return the filter for pulls of a group from a topic; None: there is no filter, or it is not valid.

        Raises RocketcError if lark is not installed.
        """
        data = self.table.get(topic, group)
        return None if data is None else text_filter(data.expression_type, data.expression)

    def retry_filter(self, retry_topic: str) -> RetryFilter:
        """Return the filter for pulls from a retry topic: for each message, the one of the topic that it was sent to.

        Raises RocketcError if lark is not installed.
        """
        found: dict[str, SqlFilter] = {}
        for data in self.table.of_group(retry_topic.removeprefix(RETRY_PREFIX)):
            one = compiled(data.expression) if data.expression_type == SQL92 else None
            if one is not None and not isinstance(one, SqlError):
                found[data.topic] = one
        return retry_filter(found)

    def register(self, group: str, subscriptions: Iterable[Subscription], room: int = AT_ONCE) -> int:
        """Take the subscriptions of a heartbeat. Filters of the group's other topics are dead from now on.

        room  characters of new expressions that may be compiled now
        A later version of a subscription replaces the filter. The same version brings a dead one back, and an earlier
        one changes nothing. If the new expression is not valid, the filter for the topic is removed. Returns what is
        left of the room.
        """
        wanted, before = list(subscriptions), self.generation
        for one in wanted:
            if not is_tag_type(one.expression_type):
                room = self._register(group, one, room)
        self._bury(group, {one.topic for one in wanted})
        self._tell(before)
        return room

    def unregister(self, group: str) -> None:
        """Note that the last consumer of a group has left: all its filters are dead."""
        before = self.generation
        self._bury(group, frozenset())
        self._tell(before)

    def expire(self, span: int = CLEAN_MS) -> int:
        """Drop the filters that have been dead for longer than `span` ms. Return their number."""
        now, before = self._clock(), self.generation
        old = [data for data in self.table.items() if data.is_dead and now - data.dead_time > span]
        for data in old:
            self.table.remove(data.topic, data.consumer_group)
            self.generation += 1
        self._tell(before)
        return len(old)

    def _register(self, group: str, wanted: Subscription, room: int) -> int:
        old, version = self.table.get(wanted.topic, group), wanted.sub_version
        new = ConsumerFilterData(wanted.topic, group, wanted.sub_string, wanted.expression_type, version, self._clock())
        if old is not None and version <= old.client_version:
            if version == old.client_version and old.is_dead:
                self._put(dataclasses.replace(old, dead_time=0))
            return room
        if old is not None and (old.expression, old.expression_type) == (new.expression, new.expression_type):
            self._put(dataclasses.replace(old, client_version=version, dead_time=0))
            return room
        cost = EACH + len(new.expression)
        is_quick = new.expression_type != SQL92 or _is_too_long(new.expression)
        wrong = self._wrong(new) if is_quick or cost <= room else None
        if wrong is None and not self._put(new):
            wrong = "the table of filters is full"
        if wrong is not None:
            self._refuse(new, wrong)
        return room - cost

    def _wrong(self, new: ConsumerFilterData) -> str | None:
        try:
            return filter_error(new.expression_type, new.expression)
        except RocketcError as error:  # without lark
            return str(error)

    def _refuse(self, new: ConsumerFilterData, wrong: str) -> None:
        """Log it once, because each heartbeat comes again."""
        key = (new.topic, new.consumer_group)
        is_known = self._refused.get(key) == new.client_version
        _log.log(
            logging.DEBUG if is_known else logging.WARNING,
            "group %s, topic %s: the filter is not registered: %s",
            new.consumer_group,
            new.topic,
            wrong,
        )
        if len(self._refused) >= REFUSED_MOST:
            self._refused.clear()
        self._refused[key] = new.client_version
        self.generation += self.table.remove(*key)

    def _bury(self, group: str, topics: Iterable[str]) -> None:
        """Mark the filters of a group as dead, but for those of some topics."""
        for data in self.table.of_group(group):
            if data.topic not in topics and not data.is_dead:
                self._put(dataclasses.replace(data, dead_time=max(self._clock(), data.born_time)))

    def _put(self, data: ConsumerFilterData) -> bool:
        self.generation += 1
        return self.table.put(data)

    def _tell(self, before: int) -> None:
        if self.generation != before:
            self._changed()
