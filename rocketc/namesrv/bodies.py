"""The bodies that brokers send to a name server: their topics, and data versions.

RegisterBrokerBody is JSON. With the header field compressed=true it is one zlib stream of the parts below. Each part
begins with its length as int32, big-endian. RegisterBrokerBody.encode(true) of 4.9.7 and 5.3.3 shows them:

    the data version      JSON: {"counter":0,"stateVersion":0,"timestamp":0}; 4.9.7 lacks stateVersion
    int32                 number of topics
    each topic            text: name, read queues, write queues, perm, filter type, with one blank between them; 5.3.3
                          adds a blank and the attributes as JSON. The bits of topicSysFlag are not in it
    the filter servers    JSON: a list of texts
    int32                 number of static topics; only from clients of V5_0_0 and later
    each static topic     JSON

A broker of 5.3.3 with compressedRegister=true sends such a body with compressed=false, and RocketMQ's own name server
refuses it. Here the first byte decides as well: it is that of a zlib stream, and JSON cannot begin with it.

bodyCrc32 is the CRC-32 of the body as sent, without its highest bit; 0 or none is not checked.
Source: RocketMQ RegisterBrokerBody, TopicConfig, DataVersion, observed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rocketc.errors import BadRequestError
from rocketc.namesrv.limits import (
    FILTER_SERVERS_MOST,
    JSON_INTEGERS_MOST,
    JSON_OBJECTS_MOST,
    JSON_SEARCHED_MOST,
    PAIRS_OF_PEER_MOST,
    ROUTE_MOST,
    SMALL_MOST,
    check_name,
)
from rocketc.namesrv.routes import DataVersion
from rocketc.remoting.route_data import QueueData
from rocketc.remoting.versions import V5_0_0
from rocketc.tables.fastjson import parse
from rocketc.tables.java_values import java_number

INFLATED_MOST = 32 << 20  # bytes
_ZLIB = 0x78  # the first byte of a zlib stream
_INT = range(-(1 << 31), 1 << 31)
_LONG = range(-(1 << 63), 1 << 63)
_INT32 = struct.Struct(">i")


class RegisterBrokerBody(NamedTuple):
    """What a broker registers.

    version  None: the broker sent none
    """

    topics: dict[str, QueueData]
    version: DataVersion | None = None
    filter_servers: tuple[str, ...] = ()


def crc_of(body: bytes) -> int:
    """Return the value of bodyCrc32 for a body.

    >>> crc_of(b"rocketc") == zlib.crc32(b"rocketc") & 0x7FFFFFFF
    True
    """
    return zlib.crc32(body) & 0x7FFFFFFF


def decode_register_body(body: bytes, *, compressed: bool, client_version: int) -> RegisterBrokerBody:
    """Decode the body of REGISTER_BROKER.

    client_version  of the request: it says which parts a compressed body has
    Raises BadRequestError. The data version of an empty body is DataVersion().

    >>> body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"orders":{"perm":4}}}}'
    >>> decode_register_body(body, compressed=False, client_version=479).topics["orders"].perm
    4
    """
    if not body:
        return RegisterBrokerBody({}, DataVersion())
    if compressed or body[0] == _ZLIB:
        return _decode_parts(_inflate(body), client_version)
    data = _object(_json(body, "RegisterBrokerBody", INFLATED_MOST), "RegisterBrokerBody")
    wrapper = data.get("topicConfigSerializeWrapper")
    wrapper = wrapper if isinstance(wrapper, dict) else {}
    table = _object(wrapper.get("topicConfigTable") or {}, "topicConfigTable")
    _check_count(len(table))
    topics = dict(_topic(name, _object(config, f"topic {_short(name)}")) for name, config in table.items())
    version = wrapper.get("dataVersion")
    return RegisterBrokerBody(
        topics,
        None if version is None else _data_version(version),
        _filter_servers(data.get("filterServerList")),
    )


def decode_data_version(body: bytes) -> DataVersion | None:
    """Decode the body of QUERY_DATA_VERSION; None for an empty one. Raises BadRequestError.

    >>> decode_data_version(b'{"counter":3,"stateVersion":1,"timestamp":1700000000000}')
    DataVersion(state_version=1, timestamp=1700000000000, counter=3)
    """
    return _data_version(_json(body, "DataVersion")) if body else None


def decode_queue_datas(body: bytes) -> list[QueueData]:
    """Decode the queues in the body of REGISTER_TOPIC_IN_NAMESRV. Raises BadRequestError.

    >>> decode_queue_datas(b'{"queueDatas":[{"brokerName":"broker-a","perm":6}]}')[0].perm
    6
    """
    if not body:
        return []
    found = _object(_json(body, "TopicRouteData", ROUTE_MOST), "TopicRouteData").get("queueDatas") or []
    if not isinstance(found, list):
        raise BadRequestError("queueDatas is not a list")
    queues = []
    for entry in found:
        data = _object(entry, "queueDatas")
        if not isinstance(name := data.get("brokerName"), str):
            raise BadRequestError("queueDatas has an entry without brokerName")
        queues.append(_queue_data(name, data, "queueDatas"))
    return queues


def _data_version(data: Any) -> DataVersion:
    found = _object(data, "dataVersion")
    names = ("stateVersion", "timestamp", "counter")
    return DataVersion(*(_number(found.get(name), 0, _LONG, f"dataVersion: {name}") for name in names))


def _topic(key: str | int, config: dict[Any, Any]) -> tuple[str, QueueData]:
    """The name in the object counts, not its key (observed)."""
    name = config.get("topicName")
    if name is not None and not isinstance(name, str):
        raise BadRequestError(f"topic {_short(key)}: topicName is not a text")
    return check_name("the name of a topic", name or str(key)), _queue_data("", config, f"topic {_short(key)}")


def _queue_data(broker_name: str, data: dict[Any, Any], what: str) -> QueueData:
    default = QueueData(broker_name)
    return QueueData(
        broker_name,
        _number(data.get("readQueueNums"), default.read_queue_nums, _INT, f"{what}: readQueueNums"),
        _number(data.get("writeQueueNums"), default.write_queue_nums, _INT, f"{what}: writeQueueNums"),
        _number(data.get("perm"), default.perm, _INT, f"{what}: perm"),
        _number(data.get("topicSysFlag"), default.topic_sys_flag, _INT, f"{what}: topicSysFlag"),
    )


def _filter_servers(data: Any) -> tuple[str, ...]:
    if data is None:
        return ()
    if not isinstance(data, list) or not all(isinstance(address, str) for address in data):
        raise BadRequestError("filterServerList is not a list of texts")
    if len(data) > FILTER_SERVERS_MOST:
        raise BadRequestError(f"filterServerList has {len(data)} addresses; allowed are {FILTER_SERVERS_MOST}")
    return tuple(check_name("an address of filterServerList", address) for address in data)


def _check_count(topics: int) -> None:
    if topics > PAIRS_OF_PEER_MOST:
        raise BadRequestError(f"a registration of {topics} topics; allowed are {PAIRS_OF_PEER_MOST}")


def _number(value: Any, default: int, allowed: range, what: str) -> int:
    """A JSON value as fastjson reads it into a number."""
    try:
        found = None if value is None else java_number(value, allowed)
    except ValueError:
        raise BadRequestError(f"{what} is {_short(value)}, which is not a number of its type") from None
    return default if found is None else found


def _json(body: bytes, what: str, most: int = SMALL_MOST) -> Any:
    """Parse a body, or a part of one. The time is that of its bytes: a small request may have 32 MiB of them."""
    if len(body) > most:
        raise BadRequestError(f"{what} has {len(body)} bytes; allowed are {most}")
    if body.count(b"{") + body.count(b"[") > JSON_OBJECTS_MOST:
        raise BadRequestError(f"{what} has more than {JSON_OBJECTS_MOST} objects and lists")
    try:
        return parse(body, slow_most=JSON_SEARCHED_MOST, integers_most=JSON_INTEGERS_MOST)
    except ValueError as error:
        raise BadRequestError(f"{what} is not JSON: {error}") from None


def _object(data: Any, what: str) -> dict[Any, Any]:
    if not isinstance(data, dict):
        raise BadRequestError(f"{what} is not an object")
    return data


def _short(value: object) -> str:
    return f"{value!r:.40}"


def _inflate(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(body, INFLATED_MOST)
    except zlib.error as error:
        raise BadRequestError(f"RegisterBrokerBody is not compressed with zlib: {error}") from None
    if not inflater.eof:
        if inflater.unconsumed_tail:
            raise BadRequestError(f"RegisterBrokerBody has more than {INFLATED_MOST} bytes when decompressed")
        raise BadRequestError("RegisterBrokerBody ends too early")
    return raw


def _decode_parts(raw: bytes, client_version: int) -> RegisterBrokerBody:
    parts = _Parts(raw)
    version = _data_version(_json(parts.block(), "dataVersion"))
    topics = dict(_topic_of_text(text) for text in parts.blocks(_check_count))
    servers = _filter_servers(_json(parts.block(), "filterServerList"))
    if client_version >= V5_0_0:
        for _ in parts.blocks(_check_count):  # static topics are not supported
            pass
    return RegisterBrokerBody(topics, version, servers)


def _topic_of_text(raw: bytes) -> tuple[str, QueueData]:
    fields = raw.decode("utf-8", "replace").split(" ", 5)
    if len(fields) < 5 or "" in fields[1:4]:
        raise BadRequestError(f"topic {_short(raw)}: name, queues, perm and filter type were expected")
    name, read, write, perm = fields[:4]
    check_name("the name of a topic", name)
    numbers = {"readQueueNums": read, "writeQueueNums": write, "perm": perm}
    return name, _queue_data("", numbers, f"topic {_short(name)}")


class _Parts:
    """Reads the parts of a compressed body. Each length is compared with what is left."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._pos = 0

    def _number(self) -> int:
        if len(self._raw) - self._pos < 4:
            raise BadRequestError("RegisterBrokerBody ends too early")
        (number,) = _INT32.unpack_from(self._raw, self._pos)
        self._pos += 4
        return int(number)

    def block(self) -> bytes:
        size = self._number()
        if not 0 <= size <= len(self._raw) - self._pos:
            raise BadRequestError(f"RegisterBrokerBody: a part of {size} bytes does not fit")
        self._pos += size
        return self._raw[self._pos - size : self._pos]

    def blocks(self, check: Callable[[int], object]) -> Iterator[bytes]:
        count = self._number()
        if not 0 <= count <= (len(self._raw) - self._pos) // 4:
            raise BadRequestError(f"RegisterBrokerBody: {count} parts do not fit")
        check(count)
        for _ in range(count):
            yield self.block()
