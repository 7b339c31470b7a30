"""The options of format("rocketmq"), parsed into arguments of rocketc.scan()."""

from __future__ import annotations

import datetime
import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from rocketc.client.cluster_url import SCHEME as URL_SCHEME
from rocketc.config_fields import parse_size
from rocketc.errors import RocketcError, SqlError
from rocketc.files.remote import StorageOptions
from rocketc.read._sql_filter import SqlFilter
from rocketc.read.sql import whole_sql
from rocketc.spark import cluster_options
from rocketc.spark.cluster_offsets import NO_BOUNDS, Bounds, bounds_of
from rocketc.spark.cluster_options import Cluster, cluster_of
from rocketc.spark.offset_options import assigned
from rocketc.spark.schema import DAMAGE, KAFKA, SCHEMA

Use = Literal["read", "stream", "write"]

_NO_TABLES = (
    "Spark does not keep options of permanent tables for a Python source; use CREATE TEMPORARY VIEW ... USING rocketmq"
)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MS = datetime.timedelta(milliseconds=1)
_ISO = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d)?(?:\.(\d{1,6}))?(Z|[+-]\d\d:?\d\d)?", re.ASCII | re.I)


@dataclass(frozen=True)
class Options:
    """The parsed options of a load().

    paths    as the user gave them: local paths, file: URIs, URLs
    columns  column names in order, if the option lists names; None otherwise
    kafka    columns are those of Spark's Kafka source; headers: they include `headers`
    damage   damaged ranges are returned as rows
    pushdown use the filters of the query, if the session allows it
    scan     keyword arguments of rocketc.scan() except columns; can be pickled
    plan     keyword arguments of partitions.plan()
    store    keyword arguments of rocketc.open(), for writing
    given    names of the options that were given, except the path
    dropped  the number of the accumulator that counts dropped ranges
    stream   options for streams only: option -> its value
    fail_on_missing_topic   a topic of subscribe or assign that does not exist is an error
    cluster  a live cluster, which is read or written instead of files; None: files
    bounds   queues and offsets of a cluster
    topic    of all rows of a write to a cluster; None: their column
    id_column  the column with the unique ids of the messages that are written; None: they are made
    """

    paths: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    kafka: bool = False
    headers: bool = False
    damage: bool = False
    pushdown: bool = False
    scan: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    store: dict[str, int] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    stream: dict[str, Any] = field(default_factory=dict)
    dropped: int | None = None
    fail_on_missing_topic: bool = True
    cluster: Cluster | None = None
    bounds: Bounds = NO_BOUNDS
    topic: str | None = None
    id_column: str | None = None

    def row(self) -> tuple[str, ...]:
        """Return the columns of a row if the user does not give a schema.

        >>> Options(("store",), kafka=True).row()
        ('key', 'value', 'topic', 'partition', 'offset', 'timestamp', 'timestampType')
        """
        if self.columns is not None:
            return self.columns
        names = list(KAFKA.names if self.kafka else SCHEMA.names)
        if self.kafka and not self.headers:
            names.remove("headers")
        return (*names, *(DAMAGE.names if self.damage else ()))


def parse_options(given: Mapping[str, str], writing: bool = False) -> Options:
    """Parse all options of a load() or a save(). Option names are case-insensitive.

    given    the options from Spark: `path` from load(path), `paths` (a JSON list) from load([path, ...]), and those in
             docs/howto/spark.md
    writing  for the error of an unknown option: it lists the options of a save()
    Raises ValueError that names the option, its value, and the allowed values.

    >>> parse_options({"path": "store", "Subscribe": "orders, bills", "verifyCrc": "full"}).scan
    {'errors': 'raise', 'topics': ['orders', 'bills'], 'crc': 'full'}
    """
    if "provider" in given:  # these are the properties of a table that is created, not options
        raise ValueError(f"rocketmq: {_NO_TABLES}")
    values: dict[str, str] = {}
    storage = StorageOptions()
    is_cluster = any(name.lower() == cluster_options.NAME_SERVER.lower() for name in given)
    for name, value in given.items():
        if name.lower().startswith(_STORAGE):
            storage[name[len(_STORAGE) :]] = _storage_value(value)
        elif name.lower() not in _OF_SPARK:
            values[_known(name, writing, is_cluster)] = value
    cluster = cluster_of(values)
    of_files = [name for name in values if name in _OF_FILES] + [f"{_STORAGE}{name}" for name in storage]
    if cluster is not None and of_files:
        raise ValueError(f"rocketmq: option {of_files[0]}: not with nameServer; {_takes(writing, True)}")
    paths = _paths(values) if cluster is None else ()
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name in values]
    if len(ways) > 1:
        raise ValueError(f"rocketmq: options {' and '.join(ways)}: give one of them")
    kafka = values.get("columns", "").strip().lower() == "kafka"
    if "includeHeaders" in values and not kafka:
        _refuse("includeHeaders", values["includeHeaders"], "only with columns=kafka; use the column properties")
    headers = _one_of(_BOOL, "includeHeaders", values.get("includeHeaders", "false"))
    columns = _columns(values["columns"]) if "columns" in values and not kafka else None
    mode = _one_of({word: word for word in _MODES}, "mode", values.get("mode", "FAILFAST"))
    if cluster is not None and mode == "PERMISSIVE":
        _refuse("mode", values["mode"], "not with nameServer; use FAILFAST or DROPMALFORMED")
    scan: dict[str, Any] = {"errors": _MODES[mode]}
    for name, (argument, parse) in _TO_SCAN.items():
        if name in values:
            scan[argument] = parse(name, values[name])
    bounds = NO_BOUNDS
    if cluster is None:
        scan.update(assigned(values, scan.get("topics")))
    else:
        bounds = bounds_of(values, scan.get("topics"))
        if bounds.assigned is not None:
            scan["topics"] = list(bounds.assigned)
    if storage:
        scan["storage_options"] = storage
    begin, end = scan.get("begin"), scan.get("end")
    if begin is not None and end is not None and begin > end:
        _refuse(
            "startingTimestamp",
            values["startingTimestamp"],
            f"later than endingTimestamp={values['endingTimestamp']!r}",
        )
    plan = {argument: parse(name, values[name]) for name, (argument, parse) in _TO_PLAN.items() if name in values}
    stream = {name: parse(name, values[name]) for name, parse in _OF_STREAM.items() if name in values}
    if "endingOffsets" in values:
        _ending("endingOffsets", values["endingOffsets"])
    if "startingOffsets" in stream and "startingTimestamp" in values:
        raise ValueError("rocketmq: options startingOffsets and startingTimestamp: give one of them")
    pushdown = _one_of(_BOOL, "filterPushdown", values.get("filterPushdown", "false"))
    must_exist = _one_of(_BOOL, "failOnMissingTopic", values.get("failOnMissingTopic", "true"))
    dropped = None
    if "droppedAccumulator" in values:
        if mode != "DROPMALFORMED":
            _refuse("droppedAccumulator", values["droppedAccumulator"], "only with mode=DROPMALFORMED")
        dropped = _number("droppedAccumulator", values["droppedAccumulator"])
    store = {argument: parse(name, values[name]) for name, (argument, parse) in _TO_STORE.items() if name in values}
    names = tuple(name for name in values if name not in ("path", "paths"))
    return Options(
        paths, columns, kafka, headers, mode == "PERMISSIVE", pushdown, scan, plan, store, names, stream, dropped,
        must_exist, cluster, bounds, _name_in(values, "topic"), _name_in(values, "idColumn"),
    )  # fmt: skip


def check_use(options: Options, use: Use) -> None:
    """Raise ValueError for an option of another use.

    >>> check_use(parse_options({"path": "store", "subscribe": "orders"}), "write")
    Traceback (most recent call last):
        ...
    ValueError: rocketmq: option subscribe is for reading; a write takes path, mappedFileSizeCommitLog, idColumn
    """
    is_cluster = options.cluster is not None
    takes = _options_of(use, is_cluster)
    if is_cluster and use != "write" and not {"subscribe", "subscribePattern", "assign"} & {*options.given}:
        raise ValueError(
            "rocketmq: option subscribe: missing; with nameServer, give subscribe, subscribePattern or assign"
        )
    for name in options.given:
        why = None
        if name in takes:
            if use == "read" and name == "startingOffsets" and options.stream[name] != "earliest":
                raise ValueError("rocketmq: option startingOffsets: only for streams; a read takes earliest or JSON")
        elif name == "topic":
            why = ": only for writing with nameServer; to read, use subscribe"
        elif use == "write":
            why = " is for reading"
        elif name in _TO_STORE or name in ("producerGroup", "idColumn"):
            why = " is for writing"
        elif use == "read":
            why = ": only for streams (spark.readStream)"
        elif name == "partial":
            why = ": not for streams; use failOnDataLoss=false"
        elif name != "filterPushdown":
            why = ": not for streams, which do not end"
        elif options.pushdown:
            why = ": not for streams; use options such as subscribe and tags"
        if why is not None:
            raise ValueError(f"rocketmq: option {name}{why}; a {use} takes {', '.join(takes)}")


def near(name: str, known: Iterable[str]) -> str:
    """Return a hint for a name that is not known: the most similar known name; or an empty text.

    >>> near("toipc", ["topic", "body"]), near("BODY", ["topic", "body"]), near("x", ["topic", "body"])
    (' (did you mean topic?)', ' (did you mean body?)', '')
    """
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), by_lower, 1, cutoff=0.7)
    return f" (did you mean {by_lower[found[0]]}?)" if found else ""


def _refuse(name: str, value: str, why: str) -> NoReturn:
    raise ValueError(f"rocketmq: option {name}={value!r}: {why}")


def _known(name: str, writing: bool, is_cluster: bool) -> str:
    """Return the name of an option as docs/howto/spark.md spells it."""
    if known := _NAMES.get(name.lower()):
        return known
    options = [*_options_of("write", is_cluster)] if writing else _options_of("read", is_cluster)
    options += [] if writing else _options_of("stream", is_cluster)
    hint = near(name, options) or near(name, cluster_options.TO_WRITE if writing else cluster_options.TO_READ)
    raise ValueError(f"rocketmq: unknown option {name}{hint}; {_takes(writing, is_cluster)}")


def _takes(writing: bool, is_cluster: bool) -> str:
    """Return the options for an error in an option."""
    if writing:
        return f"a write takes {', '.join(_options_of('write', is_cluster))}"
    options = _options_of("read", is_cluster)  # Spark makes a source before it says whether it needs a stream
    more = [option for option in _options_of("stream", is_cluster) if option not in options]
    return f"a read takes {', '.join(options)}; a stream also takes {', '.join(more)}"


def _options_of(use: Use, is_cluster: bool = False) -> list[str]:
    """Return the names of the options for this use; `paths` is set by Spark."""
    if use == "write":
        return [*cluster_options.TO_WRITE, *_OF_ROWS] if is_cluster else ["path", *_TO_STORE, "idColumn"]
    other = {"paths", *_TO_STORE, *_OF_ROWS, *cluster_options.TO_WRITE}
    other |= {*_OF_FILES} if is_cluster else {*cluster_options.TO_READ}
    other -= {*cluster_options.TO_READ} if is_cluster else set()
    if use == "stream":
        other |= {"filterPushdown", "endingOffsets", "partial"}
    else:
        other |= _OF_STREAM.keys() - {"startingOffsets", *(["failOnDataLoss"] if is_cluster else [])}
    options = [name for name in _NAMES.values() if name not in other]
    return [*options, f"{_STORAGE}NAME"] if use == "read" and not is_cluster else options


def _paths(values: Mapping[str, str]) -> tuple[str, ...]:
    paths = [values["path"]] if "path" in values else []
    if "paths" in values:
        try:
            more = json.loads(values["paths"])
        except ValueError:
            more = None
        if not isinstance(more, list) or not all(isinstance(path, str) for path in more):
            _refuse("paths", values["paths"], "not a JSON list of texts; load([path, ...]) sets it")
        paths += more
    if not paths:
        raise ValueError(
            f"rocketmq: option path: missing; set it by load(path) or OPTIONS (path '...'). For tables: {_NO_TABLES}"
        )
    if "" in paths:
        _refuse("path", "", "it must be a store, a commit log folder, a file or a glob")
    for path in paths:
        if path.startswith(URL_SCHEME):
            _refuse("path", path, "a cluster is read with the options nameServer and subscribe, without a path")
    return tuple(paths)


def _name_in(values: Mapping[str, str], option: str) -> str | None:
    """Return the name that an option has; None if it is not given."""
    if option not in values:
        return None
    return values[option].strip() or _refuse(option, values[option], "it is empty")


def _columns(value: str) -> tuple[str, ...]:
    names = _list("columns", value)
    for name in names:
        if name not in _COLUMNS:
            _refuse("columns", value, f"unknown column {name!r}{near(name, _COLUMNS)}; use {', '.join(_COLUMNS)}")
        if names.count(name) > 1:
            _refuse("columns", value, f"{name} is given twice")
    return tuple(names)


def _list(name: str, value: str) -> list[str]:
    """Parse a comma-separated list; blanks around items are removed."""
    items = [item.strip() for item in value.split(",")]
    if "" in items:
        _refuse(name, value, "it has an empty item; items are separated by commas")
    return items


def _storage_value(value: str) -> Any:
    """Parse a value for fsspec: a short whole number, true, false, null, JSON in {}, [] or quotes; otherwise text."""
    if re.fullmatch(r'0|-?[1-9]\d{0,8}|true|false|null|[\[{"].*', value.strip(), re.ASCII | re.DOTALL):
        try:
            return json.loads(value)
        except ValueError:
            pass
    return value


def _pattern(name: str, value: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        _refuse(name, value, f"not a regular expression: {error}")


def _sql(name: str, value: str) -> SqlFilter:
    """Compile a filter here: the workers get the program, and do without lark."""
    try:
        return whole_sql(value)
    except SqlError as error:
        _refuse(name, value, str(error))
    except RocketcError as error:
        raise ValueError(f"rocketmq: option {name}: {error}") from None


def _time(name: str, value: str) -> int:
    """Parse milliseconds since the epoch, or an ISO-8601 time with a time zone."""
    text = value.strip()
    if re.fullmatch(r"\d{1,18}", text, re.ASCII):
        if len(text) == 8:
            _refuse(name, value, f"write a date with dashes and a time: {text[:4]}-{text[4:6]}-{text[6:]}T00:00Z")
        if len(text) in (9, 10, 11):
            _refuse(name, value, f"this looks like seconds; in epoch milliseconds it is {text}000")
        return int(text)
    iso = _ISO.fullmatch(text)
    if iso is None or iso[5] is None:
        why = "missing time zone" if iso or re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) else "not a time"
        _refuse(name, value, f"{why}; use epoch milliseconds, 2026-01-31T09:30:00Z or 2026-01-31T09:30+08:00")
    day, minutes, seconds, fraction, zone = iso.groups()
    zone = "+00:00" if zone in "zZ" else f"{zone[:3]}:{zone[-2:]}"
    try:
        when = datetime.datetime.fromisoformat(
            f"{day}T{minutes}{seconds or ':00'}.{(fraction or '').ljust(6, '0')}{zone}"
        )
    except ValueError as error:
        _refuse(name, value, str(error))
    return -((_EPOCH - when) // _MS)  # rounded up to a whole millisecond


def _count(name: str, value: str) -> int:
    if not re.fullmatch(r"\d{1,9}", value.strip(), re.ASCII) or int(value) < 1:
        _refuse(name, value, "it must be a whole number, 1 or more")
    return int(value)


def _number(name: str, value: str) -> int:
    if not re.fullmatch(r"\d{1,18}", value.strip(), re.ASCII):
        _refuse(name, value, "it must be the aid of an accumulator, rocketc.spark.dropped_accumulator(spark).aid")
    return int(value)


def _bytes(name: str, value: str) -> int:
    """Parse a size as in Spark's own options: 134217728, 128m, 128MB."""
    try:
        size = parse_size(value)
    except ValueError:
        size = 0
    if size < 1:
        _refuse(name, value, "it must be a number of bytes, 1 or more: 134217728, 128m, 1g")
    return min(size, 1 << 62)


def _one_of(allowed: Mapping[str, Any], name: str, value: str) -> Any:
    for word, meaning in allowed.items():
        if value.strip().lower() == word.lower():
            return meaning
    _refuse(name, value, f"it must be one of {', '.join(allowed)}")


def _starting(name: str, value: str) -> str:
    """Parse startingOffsets. assigned() parses JSON; a stream then begins with the first message that it selects."""
    words = {"earliest": "earliest", "latest": "latest"}
    return "earliest" if value.lstrip().startswith("{") else str(_one_of(words, name, value))


def _ending(name: str, value: str) -> str:
    return "latest" if value.lstrip().startswith("{") else str(_one_of({"latest": "latest"}, name, value))


def _word(allowed: Mapping[str, Any]) -> Callable[[str, str], Any]:
    return lambda name, value: _one_of(allowed, name, value)


_MODES = {"FAILFAST": "raise", "PERMISSIVE": "skip", "DROPMALFORMED": "skip"}
_STORAGE = "storage."  # prefix of the options for fsspec
_BOOL = {"true": True, "false": False}
_COLUMNS = (*SCHEMA.names, *DAMAGE.names)
# Option -> argument of rocketc.scan(), and the function that parses its value.
_TO_SCAN: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "subscribe": ("topics", _list),
    "subscribePattern": ("topics", lambda name, value: [_pattern(name, value)]),
    "tags": ("tags", _list),
    "keys": ("keys", _list),
    "sql": ("sql", _sql),
    "startingTimestamp": ("begin", _time),
    "endingTimestamp": ("end", _time),
    "verifyCrc": ("crc", _word({"true": "body", "false": "none", "full": "full"})),
    "decompress": ("decompress", _word(_BOOL)),
    "partial": ("partial", _word(_BOOL)),
}
# ... and of partitions.plan().
_TO_PLAN: dict[str, tuple[str, Callable[[str, str], int]]] = {
    "minPartitions": ("min_partitions", _count),
    "maxBytesPerPartition": ("max_bytes", _bytes),
}
# ... and of rocketc.open(), for writing.
_TO_STORE: dict[str, tuple[str, Callable[[str, str], int]]] = {
    "mappedFileSizeCommitLog": ("mapped_file_size_commit_log", _bytes)
}
# Options for streams only.
_OF_STREAM: dict[str, Callable[[str, str], Any]] = {
    "startingOffsets": _starting,
    "maxBytesPerTrigger": _bytes,
    "maxOffsetsPerTrigger": _count,
    "maxFilesPerTrigger": _count,
    "failOnDataLoss": _word(_BOOL),
}
_OF_ROWS = ("topic", "idColumn")  # of a write: where a message gets them
_OF_SPARK = ("checkpointlocation", "queryname")  # of a streaming write, and used by Spark itself
# Options that are not for clusters.
_OF_FILES = ("path", "paths", "partial", "maxBytesPerPartition", "maxFilesPerTrigger", *_TO_STORE)
_NAMES = {
    name.lower(): name
    for name in (
        "path",
        "paths",
        "columns",
        "includeHeaders",
        "assign",
        *_TO_SCAN,
        "endingOffsets",
        "mode",
        "droppedAccumulator",
        "filterPushdown",
        "failOnMissingTopic",
        *_TO_PLAN,
        *_TO_STORE,
        *_OF_STREAM,
        *cluster_options.TO_READ,
        *cluster_options.TO_WRITE,
        *_OF_ROWS,
    )
}
