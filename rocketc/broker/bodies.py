"""JSON bodies of requests: read leniently, as RocketMQ's peers write them, but with limits.

Unknown members are ignored. A value may have each JSON type that fastjson turns into the member's type, see
tables.java_values. A member that is null counts as missing. Everything else is a BadRequestError.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from typing import Any, TypeVar

from rocketc.errors import BadRequestError
from rocketc.tables.fastjson import parse
from rocketc.tables.java_values import java_enum, java_flag, java_number, java_text

BODY_MOST = 1 << 20  # bytes of a body
LAX_MOST = 1 << 14  # characters of a body that is read again, a hundred times slower, because it is not strict JSON
INTS, LONGS = range(-(1 << 31), 1 << 31), range(-(1 << 63), 1 << 63)

_T = TypeVar("_T")
_E = TypeVar("_E", bound=enum.Enum)


def parse_body(body: bytes, most: int = BODY_MOST) -> Any:
    """Return the JSON value of a body; None if the body is empty.

    A comma may stand after the last entry of an object or a list. Raises BadRequestError if the body is not JSON, is
    nested too deep, or has more than `most` bytes.

    >>> parse_body(b'{"clientID":"c",}'), parse_body(b"")
    ({'clientID': 'c'}, None)
    """
    if len(body) > most:
        raise BadRequestError(f"the body has {len(body)} bytes; {most} at most")
    if not body:
        return None
    try:
        text = body.decode()
        try:
            return json.loads(text, strict=False, parse_constant=_refuse)
        except ValueError:
            return parse(text, slow_most=LAX_MOST)
    except (ValueError, RecursionError):
        raise BadRequestError("the body is not JSON, or nested too deep") from None


def _refuse(word: str) -> None:
    raise ValueError(word)


def object_of(value: object, what: str) -> dict[str, Any]:
    """Return a value that must be a JSON object. Raises BadRequestError, which names it by `what`.

    >>> object_of([], "the heartbeat")
    Traceback (most recent call last):
    rocketc.errors.BadRequestError: the heartbeat is not a JSON object
    """
    if not isinstance(value, dict):
        raise BadRequestError(f"{what} is not a JSON object")
    return value


def text_of(data: dict[str, Any], name: str, most: int) -> str:
    """Return a text of at most `most` characters; "" if it is missing. Raises BadRequestError.

    >>> text_of({"topic": "orders"}, "topic", 255)
    'orders'
    """
    value = data.get(name)
    return "" if value is None else _text(name, value, most)


def texts_of(data: dict[str, Any], name: str, longest: int, most: int) -> list[str]:
    """Return a list of texts; see text_of() and list_of().

    >>> texts_of({"tagsSet": ["new"]}, "tagsSet", 255, 100)
    ['new']
    """
    return [_text(name, value, longest) for value in list_of(data, name, most)]


def _text(name: str, value: object, most: int) -> str:
    text = _value_of(name, java_text, value)
    if len(text) > most:
        raise BadRequestError(f"the member {name} has {len(text)} characters; {most} at most")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadRequestError(f"the member {name} is not valid Unicode") from None
    return text


def enum_of(data: dict[str, Any], name: str, kind: type[_E]) -> _E | None:
    """Return an enum, which clients write as its name or its number in Java; None if it is missing or not known.

    Raises BadRequestError.

    >>> Color = enum.Enum("Color", ["RED", "BLUE"])
    >>> enum_of({"color": 1}, "color", Color), enum_of({"color": "GREEN"}, "color", Color)
    (<Color.BLUE: 2>, None)
    """
    value = data.get(name)
    return None if value is None else _value_of(name, java_enum, kind, value)


def _value_of(name: str, read: Callable[..., _T], *arguments: object) -> _T:
    try:
        return read(*arguments)
    except ValueError as error:
        raise BadRequestError(f"the member {name} {error}") from None


def number_of(data: dict[str, Any], name: str, allowed: range = INTS, *, missing: int = 0) -> int:
    """Return a whole number; `missing` if it is missing. Raises BadRequestError.

    >>> number_of({"queueId": "7"}, "queueId"), number_of({}, "queueId")
    (7, 0)
    """
    value = data.get(name)
    number = None if value is None else _value_of(name, java_number, value, allowed)
    return missing if number is None else number


def numbers_of(data: dict[str, Any], name: str, most: int, allowed: range = INTS) -> list[int]:
    """Return a list of whole numbers; see number_of() and list_of().

    >>> numbers_of({"codeSet": ["65"]}, "codeSet", 100)
    [65]
    """
    return [_value_of(name, java_number, value, allowed) or 0 for value in list_of(data, name, most)]


def flag_of(data: dict[str, Any], name: str) -> bool:
    """Return a truth value; False if it is missing. Raises BadRequestError.

    >>> flag_of({"unitMode": "true"}, "unitMode"), flag_of({}, "unitMode")
    (True, False)
    """
    value = data.get(name)
    return value is not None and bool(_value_of(name, java_flag, value))


def list_of(data: dict[str, Any], name: str, most: int) -> list[Any]:
    """Return a list of at most `most` elements; an empty one if it is missing. Raises BadRequestError.

    >>> list_of({"mqSet": [1]}, "mqSet", 100), list_of({}, "mqSet", 100)
    ([1], [])
    """
    value = data.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadRequestError(f"the member {name} is not a list")
    if len(value) > most:
        raise BadRequestError(f"the member {name} has {len(value)} elements; {most} at most")
    return value
