"""From rows of Arrow batches to messages for a cluster: which columns a row may have, and what they mean.

It knows neither Spark nor the network.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketc._arguments import shown
from rocketc._layout import FLAG_COMPRESSED, PROPERTY_KEYS, PROPERTY_TAGS
from rocketc.client.batching import BulkMessage, NewMessage
from rocketc.client.names import RESERVED, SHARDING_KEY
from rocketc.log.message_copy import copied_flags

if TYPE_CHECKING:
    import pyarrow

CHUNK_ROWS, CHUNK_BYTES = 1000, 8 << 20  # that become Python objects at a time
_KEPT_CHUNKS = 32  # whose rows an error can describe; more than the producer has under way
_SHOWN, _SHOWN_CHARACTERS = 4, 60  # columns of a row in an error, and of each of them

# Columns of a write, besides the columns of messages that are read -> their types in Spark.
OWN_COLUMNS: dict[str, tuple[str, ...]] = {
    "shard": ("string",),
    "delayLevel": ("int", "string"),
    "delay": ("double", "float", "int", "bigint"),
    "deliverAt": ("timestamp",),
}
_DELAYS = ("delayLevel", "delay", "deliverAt")
_RARE = {"queueId", "shard", "properties", "sysFlag", *_DELAYS}  # without these, a row is a NewMessage


class RowFault(Exception):
    """A row that cannot be a message. row: its number"""

    def __init__(self, row: int, text: str) -> None:
        super().__init__(text)
        self.row = row


class Group(NamedTuple):
    """Messages of one topic, and the numbers of their rows."""

    topic: str
    messages: list[bytes | NewMessage]
    rows: list[int]


class Rows:
    """Makes messages of the rows of one task.

    topic      of all rows; None: the column topic
    id_column  the column with the unique ids; None: the producer makes them

    >>> import pyarrow
    >>> batch = pyarrow.record_batch({"topic": ["a", "b", "a"], "body": [b"1", b"2", b"3"]})
    >>> [[one.topic, one.messages, one.rows] for one in Rows().groups(batch)]
    [['a', [b'1', b'3'], [0, 2]], ['b', [b'2'], [1]]]
    """

    def __init__(self, topic: str | None = None, id_column: str | None = None) -> None:
        self._topic, self._id_column = topic, id_column
        self._chunks: deque[tuple[int, pyarrow.RecordBatch]] = deque(maxlen=_KEPT_CHUNKS)
        self.count = 0

    def groups(self, batch: pyarrow.RecordBatch) -> Iterator[Group]:
        """Yield the messages of a batch, by topic. Raises RowFault."""
        step = max(1, min(CHUNK_ROWS, batch.num_rows * CHUNK_BYTES // max(1, batch.nbytes)))
        for at in range(0, batch.num_rows, step):
            chunk = batch.slice(at, step)
            self._chunks.append((self.count, chunk.select(self._shown_names(chunk))))  # without the bodies
            first, self.count = self.count, self.count + chunk.num_rows
            yield from self._of_chunk(chunk, first)

    def _of_chunk(self, chunk: pyarrow.RecordBatch, first: int) -> list[Group]:
        names = chunk.schema.names
        body = self._column(chunk, "body", first)
        topics = [self._topic] * len(body) if self._topic is not None else self._column(chunk, "topic", first)
        if self._id_column is None and not _RARE & set(names):
            messages = _plain(chunk, body)
        else:
            messages = self._with_all(chunk, body, first)
        found: dict[str, Group] = {}
        if len(set(topics)) == 1:
            return [Group(topics[0], messages, list(range(first, first + len(messages))))]
        for row, (topic, message) in enumerate(zip(topics, messages, strict=True), first):
            group = found.get(topic)
            if group is None:
                group = found[topic] = Group(topic, [], [])
            group.messages.append(message)
            group.rows.append(row)
        return list(found.values())

    @staticmethod
    def _column(chunk: pyarrow.RecordBatch, name: str, first: int) -> list[Any]:
        """Return the values of a column that every row needs. Raises RowFault."""
        values: list[Any] = chunk.column(name).to_pylist()
        if None in values:
            raise RowFault(first + values.index(None), f"the column {name} is null")
        return values

    def _with_all(self, chunk: pyarrow.RecordBatch, body: list[bytes], first: int) -> list[Any]:
        """Return the messages of rows that have more than a body, tags and keys."""
        has = set(chunk.schema.names)
        columns: dict[str, Sequence[Any]] = {
            name: _values(chunk, name) for name in ("tags", "keys", "flag", "bodyCRC", *_RARE) if name in has
        }
        if self._id_column is not None:
            columns["key"] = [str(one) for one in self._column(chunk, self._id_column, first)]
        nothing = [None] * len(body)
        taken = [columns.get(name, nothing) for name in (*_FIELDS, "sysFlag", "bodyCRC")]
        found: list[Any] = []
        for i, (one, *values, sys_flag, crc) in enumerate(zip(body, *taken, strict=True)):
            if sys_flag and copied_flags(sys_flag, crc, one) & FLAG_COMPRESSED:
                raise RowFault(first + i, "the body is compressed: read the message with decompress=true")
            found.append(_message(one, *values))
        return found

    def _shown_names(self, chunk: pyarrow.RecordBatch) -> list[str]:
        names = [name for name in chunk.schema.names if name not in ("body", "properties", self._id_column)]
        return (names if self._id_column is None else [self._id_column, *names])[:_SHOWN]

    def describe(self, row: int) -> str:
        """Return the number of a row in its task, and its first columns, but not its body.

        >>> import pyarrow
        >>> rows = Rows()
        >>> _ = list(rows.groups(pyarrow.record_batch({"topic": ["a"], "body": [b"secret"], "keys": ["o-1"]})))
        >>> rows.describe(0)
        "row 0 (topic='a', keys='o-1')"
        """
        for first, chunk in self._chunks:
            if first <= row < first + chunk.num_rows:
                texts = [f"{name}={_short(chunk.column(name)[row - first].as_py())}" for name in chunk.schema.names]
                return f"row {row} ({', '.join(texts)})" if texts else f"row {row}"
        return f"row {row}"


def _short(value: object) -> str:
    text = shown(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


_FIELDS = (
    "tags", "keys", "properties", "flag", "key", "queueId", "shard", "delayLevel", "delay", "deliverAt"
)  # fmt: skip


def _message(
    body: bytes,
    tags: str | None,
    keys: str | None,
    properties: list[tuple[str, str]] | None,
    flag: int | None,
    key: str | None,
    queue_id: int | None,
    shard: str | None,
    delay_level: int | str | None,
    delay: float | None,
    deliver_at: int | None,
) -> BulkMessage:
    """Return the message of a row. Tags, keys and the shard come from the properties if the row has them only there."""
    own: dict[str, str] | None = None
    if properties:
        given = dict(properties)
        tags = given.get(PROPERTY_TAGS) if tags is None else tags
        keys = given.get(PROPERTY_KEYS) if keys is None else keys
        shard = given.get(SHARDING_KEY) if shard is None else shard
        # The client and the broker give the others new values.
        own = {name: value for name, value in given.items() if name not in RESERVED and name != SHARDING_KEY} or None
    return BulkMessage(
        body, tags or None, keys or None, own, flag or 0, key, queue_id, shard or None, delay_level or 0, delay,
        deliver_at,
    )  # fmt: skip


def _plain(chunk: pyarrow.RecordBatch, body: list[bytes]) -> list[Any]:
    """Return the messages of rows that have nothing but a body, tags, keys and a flag."""
    has = set(chunk.schema.names)
    if not {"tags", "keys", "flag"} & has:
        return body
    nothing: list[Any] = [None] * len(body)
    tags, keys, flags = (
        chunk.column(name).to_pylist() if name in has else nothing for name in ("tags", "keys", "flag")
    )
    return [
        NewMessage(one, tag or None, key or None, None, flag or 0)
        for one, tag, key, flag in zip(body, tags, keys, flags, strict=True)
    ]


def _values(chunk: pyarrow.RecordBatch, name: str) -> list[Any]:
    """Return the values of a column; of deliverAt, ms since 1970."""
    column = chunk.column(name)
    if name != "deliverAt":
        return list(column.to_pylist())
    import pyarrow as pa

    to_ms: Callable[[int | None], int | None] = lambda us: None if us is None else us // 1000  # noqa: E731
    return [to_ms(us) for us in column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()]
