"""Filters that consumer groups have registered, config/consumerFilter.json: the expression of each topic and group."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rocketc.tables.config_manager import Clock, ConfigManager, now_ms, path_of
from rocketc.tables.fastjson import LARGEST, in_java_order, to_bytes

CONSUMERS = 32  # expectConsumerNumUseFilter
ERROR_RATE = 20  # maxErrorRateOfBloomFilter
_BYTES_MOST = LARGEST // 2  # of all entries in the file, without their tabs
_BIT_NUMBER = 8  # the bits are whole bytes
_64 = (1 << 64) - 1


@dataclass(frozen=True)
class ConsumerFilterData:
    """The filter of a group for a topic.

    client_version  version of the subscription that it is from
    born_time       ms: when the expression was registered first
    dead_time       ms: when the last consumer left; 0: there are consumers
    Raises ValueError for a value of another type.

    >>> ConsumerFilterData("orders", "audit", "price > 10", born_time=1000, dead_time=2000).is_dead
    True
    """

    topic: str
    consumer_group: str
    expression: str
    expression_type: str = "SQL92"
    client_version: int = 0
    born_time: int = 0
    dead_time: int = 0

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            value = getattr(self, one.name)
            if type(value) is not {"str": str, "int": int}[str(one.type)]:
                raise ValueError(f"{one.name} is {value!r}, not {one.type}")

    @property
    def is_dead(self) -> bool:
        return self.dead_time >= self.born_time


@dataclass(frozen=True)
class BloomFilter:
    """The sizes of RocketMQ's bloom filter: it maps a group and a topic to some bits of a bitmap.

    This store does not make bitmaps, but a broker of RocketMQ drops the whole table if the sizes in it are not its own.

    consumers   that are expected: expectConsumerNumUseFilter
    error_rate  in percent: maxErrorRateOfBloomFilter
    Source: RocketMQ BloomFilter.

    >>> BloomFilter().bit_num, BloomFilter().hashes
    (112, 3)
    """

    consumers: int = CONSUMERS
    error_rate: int = ERROR_RATE

    @property
    def hashes(self) -> int:
        """Bits of one group and topic."""
        return math.ceil(math.log(self.error_rate / 100, 0.5))

    @property
    def bit_num(self) -> int:
        """Bits of the bitmap."""
        bits = math.ceil(self.consumers * math.log(100 / self.error_rate, 2) * math.log(math.e, 2))
        return -(-bits // _BIT_NUMBER) * _BIT_NUMBER

    def positions(self, group: str, topic: str) -> list[int]:
        """Return the bits of a group and a topic.

        >>> BloomFilter().positions("audit", "orders")
        [97, 13, 70]
        """
        code = _code_of(group, topic)
        first, second = _signed(code), _signed(code >> 32)
        found = (_signed(first + i * second) for i in range(1, self.hashes + 1))
        return [(~one if one < 0 else one) % self.bit_num for one in found]


class ConsumerFilters(ConfigManager):
    """The filters of a store. A change is in memory at first; persist() writes it.

    root   folder of the store; the file is config/consumerFilter.json
    bloom  sizes for the file
    A filter that had consumers when the file was written is dead after it is read, until its group registers again.

    >>> import tempfile
    >>> root = tempfile.mkdtemp()
    >>> filters = ConsumerFilters(root)
    >>> filters.put(ConsumerFilterData("orders", "audit", "price > 10"))
    True
    >>> filters.persist(), ConsumerFilters(root).get("orders", "audit").expression
    (True, 'price > 10')
    """

    NAME = "consumerFilter.json"

    def __init__(
        self, root: str | os.PathLike[str], *, clock: Clock = now_ms, bloom: BloomFilter | None = None
    ) -> None:
        super().__init__(path_of(root, self.NAME), clock=clock)
        self._bloom = BloomFilter() if bloom is None else bloom
        self._table: dict[str, dict[str, ConsumerFilterData]] = {}  # by group and topic
        self._sizes: dict[tuple[str, str], int] = {}  # bytes of each entry, by topic and group
        self._size = 0  # bytes of all entries
        since = clock() - 30_000
        for topic, found in self._part("filterDataByTopic").items():
            groups = found.get("groupFilterData") if isinstance(found, dict) else None
            if not isinstance(groups, dict):
                self._warn(f"{self.path}: {topic}: not a map of filters; it is skipped")
                continue
            for group, raw in groups.items():
                self._read(str(topic), str(group), raw, since)

    def _read(self, topic: str, group: str, raw: object, since: int) -> None:
        fields: dict[Any, Any] = raw if isinstance(raw, dict) else {"expression": raw}
        try:
            data = ConsumerFilterData(
                topic,
                group,
                fields.get("expression", ""),
                fields.get("expressionType", ""),
                fields.get("clientVersion", 0),
                fields.get("bornTime", 0),
                fields.get("deadTime", 0),
            )
        except ValueError as error:
            self._warn(f"{self.path}: {topic}: {group}: {error}; it is skipped")
            return
        if data.dead_time == 0:
            data = dataclasses.replace(data, dead_time=max(since, data.born_time))
        if not self.put(data):
            self._warn(f"{self.path}: {topic}: {group}: the filters are too large; it is skipped")
        self._changed = False

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._table.values()))

    def get(self, topic: str, group: str) -> ConsumerFilterData | None:
        """Return the filter of a group for a topic."""
        return self._table.get(group, {}).get(topic)

    def of_group(self, group: str) -> list[ConsumerFilterData]:
        """Return all filters of a group."""
        with self._lock:
            return list(self._table.get(group, {}).values())

    def items(self) -> Iterator[ConsumerFilterData]:
        """Yield all filters."""
        with self._lock:
            found = [data for topics in self._table.values() for data in topics.values()]
        yield from found

    def put(self, data: ConsumerFilterData) -> bool:
        """Add a filter, or replace the one of its topic and group. Returns False if the table is full."""
        key = (data.topic, data.consumer_group)
        with self._lock:
            old, before = self.get(*key), self._sizes.get(key, 0)
            is_same = old is not None and old.expression == data.expression
            size = before if is_same else _size_of(data)
            grown = self._size + size - before
            if grown > _BYTES_MOST:
                return False
            self._sizes[key] = size
            self._table.setdefault(data.consumer_group, {})[data.topic] = data
            self._size = grown
            self._changed = True
            return True

    def remove(self, topic: str, group: str) -> bool:
        """Remove a filter. Returns False if there is no such filter."""
        with self._lock:
            topics = self._table.get(group, {})
            old = topics.pop(topic, None)
            if old is None:
                return False
            if not topics:
                del self._table[group]
            self._size -= self._sizes.pop((topic, group))
            self._changed = True
            return True

    def to_file(self, data: ConsumerFilterData) -> dict[str, Any]:
        """Return the object of a filter for the file, and for tools.

        >>> import tempfile
        >>> sorted(ConsumerFilters(tempfile.mkdtemp()).to_file(ConsumerFilterData("orders", "audit", "a > 1")))[:2]
        ['bloomFilterData', 'bornTime']
        """
        positions = self._bloom.positions(data.consumer_group, data.topic)
        return {
            "bloomFilterData": {"bitNum": self._bloom.bit_num, "bitPos": positions},
            "bornTime": data.born_time,
            "clientVersion": data.client_version,
            "consumerGroup": data.consumer_group,
            "dead": data.is_dead,
            "deadTime": data.dead_time,
            "expression": data.expression,
            "expressionType": data.expression_type,
            "topic": data.topic,
        }

    def _to_write(self) -> dict[str, Any]:
        by_topic: dict[str, dict[str, Any]] = {}
        for topics in self._table.values():
            for data in topics.values():
                by_topic.setdefault(data.topic, {})[data.consumer_group] = self.to_file(data)
        table = {
            topic: {"groupFilterData": in_java_order(groups, 16), "topic": topic} for topic, groups in by_topic.items()
        }
        others = {key: value for key, value in self._data.items() if key != "dataVersion"}
        return {**others, "filterDataByTopic": in_java_order(table, 256)}


def _size_of(data: ConsumerFilterData) -> int:
    texts = (data.topic, data.consumer_group, data.expression, data.expression_type)
    return 256 + sum(len(to_bytes(text)) for text in texts)


@functools.lru_cache(10_000)
def _code_of(group: str, topic: str) -> int:
    return _murmur3(f"{group}#{topic}".encode("utf-8", "surrogatepass"))


def _signed(number: int) -> int:
    """Return the low 32 bits as a Java int."""
    return (number & 0xFFFFFFFF) - ((number & 0x80000000) << 1)


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> 64 - bits) & _64


def _mixed(number: int) -> int:
    number = (number ^ number >> 33) * 0xFF51AFD7ED558CCD & _64
    number = (number ^ number >> 33) * 0xC4CEB9FE1A85EC53 & _64
    return number ^ number >> 33


def _murmur3(data: bytes) -> int:
    """Return the first half of the murmur3 hash of 128 bits, with seed 0."""
    one, two = 0x87C37B91114253D5, 0x4CF5AD432745937F
    first = second = 0
    for at in range(0, len(data) + 1, 16):
        low, high = (int.from_bytes(data[at + skip : at + skip + 8], "little") for skip in (0, 8))
        first ^= _rotated(low * one & _64, 31) * two & _64
        if at + 16 <= len(data):
            first = (_rotated(first, 27) + second) * 5 + 0x52DCE729 & _64
        second ^= _rotated(high * two & _64, 33) * one & _64
        if at + 16 <= len(data):
            second = (_rotated(second, 31) + first) * 5 + 0x38495AB5 & _64
    first, second = first ^ len(data), second ^ len(data)
    first = first + second & _64
    second = second + first & _64
    return _mixed(first) + _mixed(second) & _64
