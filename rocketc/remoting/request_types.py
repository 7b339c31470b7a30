"""The types of the table of requests: kinds of fields, fields, and one request with its encoding and decoding."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rocketc.errors import BadRequestError

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_SHORT = 9  # digits


class Kind(NamedTuple):
    """The type of a field: how Java reads its text.

    name   for people
    least, most  of a number
    """

    name: str
    least: int = 0
    most: int = 0

    def parse(self, text: str) -> Any:
        """Return the value of a text. Raises ValueError."""
        if self is TEXT:
            return text
        if self is BOOL:
            return text.lower() == "true"
        if len(text) <= _SHORT and text.isdecimal() and text.isascii():  # most numbers: in the range of each kind
            return int(text)
        if not _NUMBER.fullmatch(text) or not self.least <= int(text) <= self.most:
            raise ValueError(text)
        return int(text)


TEXT = Kind("text")
BOOL = Kind("bool")
INT = Kind("int", -(1 << 31), (1 << 31) - 1)
LONG = Kind("long", -(1 << 63), (1 << 63) - 1)


class Field(NamedTuple):
    """One field of a request or an answer.

    required  Java's peers always send it; a broker may fail without it
    short     its name in the requests with one-letter names
    """

    name: str
    kind: Kind
    required: bool = True
    short: str = ""


class Request(NamedTuple):
    """One kind of request.

    fields, answer     the fields of the request and of the answer
    short              True: the request uses the one-letter names
    body, answer_body  what they hold, if there are any
    """

    code: int
    name: str
    fields: tuple[Field, ...] = ()
    answer: tuple[Field, ...] = ()
    short: bool = False
    body: str = ""
    answer_body: str = ""

    def decode(self, fields: Mapping[str, str]) -> dict[str, Any]:
        """Return the values of a request's fields by name. Fields that the table does not have are left out.

        Raises BadRequestError, which names the request and the field.

        >>> Request(31, "GET_MIN_OFFSET", (Field("topic", TEXT), Field("queueId", INT))).decode(
        ...     {"topic": "orders", "queueId": "0", "other": "x"}
        ... )
        {'topic': 'orders', 'queueId': 0}
        """
        return _decode(self.name, self.fields, fields, short=self.short)

    def encode(self, values: Mapping[str, Any]) -> dict[str, str]:
        """Return the fields of a request, as texts. Leaves out other names, and values of None.

        >>> Request(1, "X", (Field("topic", TEXT), Field("acceptStandardJsonOnly", BOOL))).encode(
        ...     {"topic": "orders", "acceptStandardJsonOnly": True}
        ... )
        {'topic': 'orders', 'acceptStandardJsonOnly': 'true'}
        """
        return _encode(self.fields, values, short=self.short)

    def decode_answer(self, fields: Mapping[str, str]) -> dict[str, Any]:
        """Return the values of an answer's fields by name. Raises BadRequestError."""
        return _decode(f"the answer to {self.name}", self.answer, fields, short=False)

    def encode_answer(self, values: Mapping[str, Any]) -> dict[str, str]:
        """Return the fields of an answer, as texts."""
        return _encode(self.answer, values, short=False)


def _decode(what: str, known: tuple[Field, ...], fields: Mapping[str, str], *, short: bool) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in known:
        name, kind, required, letter = field  # at once: this is done for each pull
        text = fields.get(letter if short else name)
        if text is None:
            if required:
                raise BadRequestError(f"{what} lacks the field {_name(field, short)}")
            continue
        try:
            values[name] = text if kind is TEXT else kind.parse(text)
        except ValueError:
            raise BadRequestError(
                f"{what}: the field {_name(field, short)} is {text[:40]!r}, which is not of type {field.kind.name}"
            ) from None
    return values


def _encode(known: tuple[Field, ...], values: Mapping[str, Any], *, short: bool) -> dict[str, str]:
    out = {}
    for name, kind, _, letter in known:
        value = values.get(name)
        if value is not None:
            out[letter if short else name] = str(value).lower() if kind is BOOL else str(value)
    return out


def _name(field: Field, short: bool) -> str:
    return f"{field.short} ({field.name})" if short else field.name


# fields of many requests
TOPIC = Field("topic", TEXT)
QUEUE_ID = Field("queueId", INT)
GROUP = Field("group", TEXT)
CONSUMER_GROUP = Field("consumerGroup", TEXT)
BROKER_NAME = Field("brokerName", TEXT)
BROKER = (BROKER_NAME, Field("brokerAddr", TEXT), Field("clusterName", TEXT), Field("brokerId", LONG))
