"""Message trace: what clients write to RMQ_SYS_TRACE_TOPIC about messages that they send and consume.

The body of a trace message is a row of records. Each ends with U+0002, and its fields are separated by U+0001. The
first field is the type of the record:

    Pub             a message was sent
    SubBefore       a consumer gets a message
    SubAfter        it has consumed the message; the pair has the same requestId
    EndTransaction  a transaction was committed or rolled back
    Recall          a delayed message was recalled (5.3.2 and later)

Source: RocketMQ TraceDataEncoder; what the encoders of 4.9.7 and 5.3.3 wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
END, SEPARATOR = "\x02", "\x01"

_PUB = (
    *("timestamp", "regionId", "group", "topic", "msgId", "tags", "keys", "storeHost", "bodyLength", "costTime"),
    *("msgType", "offsetMsgId", "success"),
)
_BEFORE = ("timestamp", "regionId", "group", "requestId", "msgId", "retryTimes", "keys")
_AFTER = ("requestId", "msgId", "costTime", "success", "keys", "contextCode", "timestamp", "group")
_TRANSACTION = (
    *("timestamp", "regionId", "group", "topic", "msgId", "tags", "keys", "storeHost", "msgType"),
    *("transactionId", "transactionState", "fromTransactionCheck"),
)
_RECALL = ("timestamp", "regionId", "group", "topic", "msgId", "success")
_FIELDS = {
    "Pub": _PUB,
    "SubBefore": _BEFORE,
    "SubAfter": _AFTER,
    "EndTransaction": _TRANSACTION,
    "Recall": _RECALL,
}
_NUMBERS = frozenset({"timestamp", "bodyLength", "costTime", "retryTimes", "contextCode"})
_TYPES = ("Normal_Msg", "Trans_Msg_Half", "Trans_msg_Commit", "Delay_Msg", "Order_Msg")  # by their ordinal
_CODES = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")  # of ConsumeReturnType


def decode_traces(body: bytes) -> list[dict[str, Any]]:
    """Return the records of a trace message: "type", and its fields by name.

    Numbers are int, success is bool; a field with another form is left as text. Fields without a name, and those of an
    unknown type, are in a list under "more". Bytes that are not UTF-8 are escaped. An empty field is left out.

    >>> decode_traces(b"Recall\\x011700000000123\\x01\\x01shop\\x01orders\\x01M1\\x01true\\x02")[0]["timestamp"]
    1700000000123
    """
    text = body.decode("utf-8", "backslashreplace")
    return [_decode(record.split(SEPARATOR)) for record in text.split(END) if record]


def encode_trace(record: Mapping[str, Any]) -> bytes:
    """Return one record of a trace message. A field that is missing or None is written as Java's null.

    record  "type", and the fields by the names of decode_traces(); msgType and contextCode are numbers

    >>> encode_trace({"type": "Recall", "timestamp": 1700000000123, "group": "shop", "topic": "orders"})
    b'Recall\\x011700000000123\\x01null\\x01shop\\x01orders\\x01null\\x01null\\x02'
    """
    values = [record.get(name) for name in _FIELDS[record["type"]]]
    texts = ["null" if one is None else str(one).lower() if isinstance(one, bool) else str(one) for one in values]
    return (SEPARATOR.join([record["type"], *texts]) + END).encode("utf-8", "replace")


def _decode(fields: list[str]) -> dict[str, Any]:
    kind, *values = fields
    names = _FIELDS.get(kind, ())
    found: dict[str, Any] = {"type": kind}
    for name, value in zip(names, values, strict=False):
        if value:
            found[name] = _value(name, value)
    more = values[len(names) :]
    if more:
        found["more"] = more
    return found


def _value(name: str, text: str) -> Any:
    if name in ("success", "fromTransactionCheck"):
        return {"true": True, "false": False}.get(text, text)
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        return text
    number = int(text)
    if name == "msgType":
        return _TYPES[number] if number < len(_TYPES) else number
    if name == "contextCode":
        return _CODES[number] if number < len(_CODES) else number
    return number if name in _NUMBERS else text


def trace_lines(body: bytes) -> list[str]:
    """Return the records of a trace message as text, one a line: the type, and name=value of each field.

    >>> trace_lines(b"SubAfter\\x01R1\\x01M1\\x0112\\x01true\\x01\\x010\\x02")
    ['SubAfter requestId=R1 msgId=M1 costTime=12 success=true contextCode=SUCCESS']
    """
    return [" ".join(_texts(record)) for record in decode_traces(body)]


def _texts(record: dict[str, Any]) -> Iterator[str]:
    for name, value in record.items():
        if name == "type":
            yield value
        elif name == "more":
            yield from value
        else:
            yield f"{name}={str(value).lower() if isinstance(value, bool) else value}"
