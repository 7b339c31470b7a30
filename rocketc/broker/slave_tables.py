"""The tables that a slave takes over from its master: the body of each answer, and what a slave does with it.

Source: RocketMQ SlaveSynchronize; observed on slaves of 4.9.7 and 5.3.3.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rocketc.broker.bodies import LONGS, number_of, object_of
from rocketc.derived import timer_check
from rocketc.derived.timer_check import TimerCheck
from rocketc.errors import BadRequestError
from rocketc.tables.config_manager import Clock
from rocketc.tables.fastjson import parse
from rocketc.tables.groups import SubscriptionGroups
from rocketc.tables.offsets import ConsumerOffsets, DelayOffsets
from rocketc.tables.topic_counts import TimerCounts
from rocketc.tables.topics import Topics

_log = logging.getLogger("rocketc.broker")

TOPICS, GROUPS, OFFSETS, DELAYS, TIMER_CHECK, TIMER_COUNTS = 21, 201, 43, 45, 60, 61
_SLOW_MOST = 1 << 16  # characters of a text in which errors are searched
_FAULTS_MOST = 5  # entries that a message names

Version = Mapping[str, int]


class Entries(NamedTuple):
    """A table of settings.

    version    its `dataVersion`
    table      objects by name
    forbidden  of groups: bits by group and topic; None: the master does not have the table
    """

    version: Version
    table: dict[str, Any]
    forbidden: dict[str, dict[str, int]] | None = None


def decode_topics(body: bytes) -> Entries:
    """Read the answer to GET_ALL_TOPIC_CONFIG (21). Raises BadRequestError.

    >>> decode_topics(b'{"dataVersion":{"counter":2,"timestamp":9},"topicConfigTable":{"t":{"topicName":"t"}}}').table
    {'t': {'topicName': 't'}}
    """
    return _entries(body, "topicConfigTable")


def decode_groups(body: bytes) -> Entries:
    """Read the answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201). Raises BadRequestError.

    >>> body = b'{"dataVersion":{"counter":2},"subscriptionGroupTable":{"g":{"groupName":"g"}}}'
    >>> decode_groups(body).forbidden is None
    True
    """
    found = _entries(body, "subscriptionGroupTable")
    bits = _read(body).get("forbiddenTable")
    if bits is None:
        return found
    forbidden = {
        str(group): {str(topic): number_of(topics, topic) for topic in object_of(topics, f"forbiddenTable: {group}")}
        for group, topics in object_of(bits, "the member forbiddenTable").items()
    }
    return found._replace(forbidden=forbidden)


def decode_offsets(body: bytes) -> tuple[Version | None, dict[str, dict[int, int]]]:
    """Read the answer to GET_ALL_CONSUMER_OFFSET (43): version, and offsets by `topic@group` and queue id.

    Raises BadRequestError.

    >>> decode_offsets(b'{"offsetTable":{"orders@audit":{0:12,1:9}}}')
    (None, {'orders@audit': {0: 12, 1: 9}})
    """
    data = _read(body)
    table = object_of(data.get("offsetTable"), "the member offsetTable")
    return _version(data), {str(name): _numbers(queues, str(name)) for name, queues in table.items()}


def decode_delays(body: bytes) -> tuple[Version | None, dict[int, int]]:
    """Read the answer to GET_ALL_DELAY_OFFSET (45): version, and offsets by delay level. Raises BadRequestError.

    >>> decode_delays(b'{"offsetTable":{3:51}}')
    (None, {3: 51})
    """
    data = _read(body)
    levels = _numbers(data.get("offsetTable"), "the member offsetTable")
    for level, offset in levels.items():
        if level < 1 or offset < 0:
            raise BadRequestError(f"offsetTable: delay level {level} is at {offset}, which is impossible")
    return _version(data), levels


def decode_timer_counts(body: bytes) -> tuple[Version | None, dict[str, tuple[int, int]]]:
    """Read the answer to GET_TIMER_METRICS (61): version, and (count, ms of the change) by topic.

    Raises BadRequestError.

    >>> decode_timer_counts(b'{"timingCount":{"orders":{"count":3,"timeStamp":9}}}')
    (None, {'orders': (3, 9)})
    """
    data = _read(body)
    counts = object_of(data.get("timingCount"), "the member timingCount")
    return _version(data), {str(topic): _count(found, str(topic)) for topic, found in counts.items()}


def _count(found: object, topic: str) -> tuple[int, int]:
    one = object_of(found, f"timingCount: {topic}")
    return number_of(one, "count", LONGS), number_of(one, "timeStamp", LONGS)


def decode_timer_check(body: bytes) -> TimerCheck:
    """Read the answer to GET_TIMER_CHECK_POINT (60). Raises BadRequestError.

    >>> decode_timer_check(TimerCheck(1_700_000_000_000, 52, 1).encode()).last_timer_queue_offset
    1
    """
    try:
        return timer_check.decode(body)
    except ValueError as error:
        raise BadRequestError(str(error)) from None


def _read(body: bytes) -> dict[str, Any]:
    try:
        found = parse(body, slow_most=_SLOW_MOST)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the answer is not JSON: {error}") from None
    return object_of(found, "the answer")


def _entries(body: bytes, member: str) -> Entries:
    data = _read(body)
    version = _version(data)
    if version is None:
        raise BadRequestError("the answer lacks dataVersion")
    table = object_of(data.get(member), f"the member {member}")
    if not table:  # each broker has its own topics and groups
        raise BadRequestError(f"{member} is empty, which no broker's is")
    return Entries(version, {str(name): found for name, found in table.items()})


def _version(data: dict[str, Any]) -> Version | None:
    found = data.get("dataVersion")
    if found is None:
        return None
    numbers = object_of(found, "the member dataVersion")
    if "timestatmp" in numbers:  # the spelling of RocketMQ 4.0
        numbers = {**numbers, "timestamp": numbers["timestatmp"]}
    names = ("counter", "stateVersion", "timestamp") if "stateVersion" in numbers else ("counter", "timestamp")
    return {name: number_of(numbers, name, LONGS) for name in names}


def _numbers(found: object, what: str) -> dict[int, int]:
    numbers = object_of(found, what)
    keys = {str(name): name for name in numbers}
    out = {}
    for text, name in keys.items():
        key = number_of({what: text}, what)
        out[key] = number_of({what: numbers[name]}, what, LONGS)
    return out


class SlaveTables:
    """The tables of a slave, which it takes over from its master. take() may run on any thread, one call at a time.

    path    root folder of the store
    clock   ms since the epoch

    >>> import tempfile
    >>> root = tempfile.mkdtemp()
    >>> kept = [kind(root) for kind in (Topics, SubscriptionGroups, ConsumerOffsets, TimerCounts)]
    >>> tables = SlaveTables(root, *kept, clock=lambda: 1_700_000_000_000)
    >>> tables.take(DELAYS, b'{"offsetTable":{3:51}}'), DelayOffsets(root).get(3)
    (True, 51)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        topics: Topics,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        counts: TimerCounts,
        *,
        clock: Clock,
    ) -> None:
        self._topics, self._groups, self._offsets = topics, groups, offsets
        self._delays, self._counts = DelayOffsets(path, clock=clock), counts
        self._check_path = os.path.join(os.fspath(path), "config", "timercheck")
        self._check = timer_check.read(self._check_path)
        self._clock = clock
        self._by_code: dict[int, Callable[[bytes], bool]] = {
            TOPICS: self._take_topics,
            GROUPS: self._take_groups,
            OFFSETS: self._take_offsets,
            DELAYS: self._take_delays,
            TIMER_CHECK: self._take_timer_check,
            TIMER_COUNTS: self._take_timer_counts,
        }

    def take(self, code: int, body: bytes) -> bool:
        """Take over the table in the body of an answer, and write it to the disk. Return whether it changed.

        code  of the request
        Raises BadRequestError for a body that is not this table, and changes nothing then. Raises StoreIOError and
        StoreFullError; then the table has changed in memory only.
        """
        return self._by_code[code](body)

    def _take_topics(self, body: bytes) -> bool:
        found = decode_topics(body)
        if self._topics.has_version(found.version):
            return self._topics.persist()
        is_changed, faults = self._topics.take(found.table, found.version)
        _note("topics", faults)
        self._topics.persist()
        return is_changed

    def _take_groups(self, body: bytes) -> bool:
        found = decode_groups(body)
        if self._groups.has_version(found.version):
            return self._groups.persist()
        is_changed, faults = self._groups.take(found.table, found.version)
        if found.forbidden is not None:
            self._groups.take_forbidden(found.forbidden)
        _note("consumer groups", faults)
        self._groups.persist()
        return is_changed

    def _take_offsets(self, body: bytes) -> bool:
        version, table = decode_offsets(body)
        self._offsets.take(table, version)
        return self._offsets.persist()

    def _take_delays(self, body: bytes) -> bool:
        version, table = decode_delays(body)
        self._delays.take(table, version)
        return self._delays.persist()

    def _take_timer_counts(self, body: bytes) -> bool:
        version, table = decode_timer_counts(body)
        if version is not None and self._counts.has_version(version):
            return self._counts.persist()
        self._counts.take(table, version)
        return self._counts.persist()

    def _take_timer_check(self, body: bytes) -> bool:
        """Write the master's timercheck, so that this broker can continue as the master.

        A slave does not keep a timer wheel: a broker makes it from the timer topic when it starts as a master. The
        position in the timer log is one that the slave's own log does not have, which makes the broker do so. A time
        of the write that is later than the master's makes sure that its read time is used.
        """
        found = decode_timer_check(body)
        check = dataclasses.replace(
            found,
            last_timer_log_flush_pos=max(found.last_timer_log_flush_pos, 1),
            master_timer_queue_offset=found.last_timer_queue_offset,
            timestamp=max(found.timestamp, found.last_read_time_ms, self._clock()),
        )
        before = self._check
        if before is not None and dataclasses.replace(check, timestamp=before.timestamp) == before:
            return False
        timer_check.write(self._check_path, check)
        self._check = check
        return True


def _note(what: str, faults: list[str]) -> None:
    if faults:
        shown = "; ".join(one[:200] for one in faults[:_FAULTS_MOST])
        _log.warning("%d %s of the master can't be used: %s", len(faults), what, shown)
