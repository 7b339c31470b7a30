"""JSON bodies of requests: read leniently, as RocketMQ's peers write them, but with limits.

Unknown members are ignored. Numbers and truth values may be in quotes. Everything else is a BadRequestError.
"""

from __future__ import annotations

import json
from typing import Any

from rocketc.errors import BadRequestError

BODY_MOST = 1 << 20  # bytes of a body
INTS, LONGS = range(-(1 << 31), 1 << 31), range(-(1 << 63), 1 << 63)


def parse_body(body: bytes, most: int = BODY_MOST) -> Any:
    """Return the JSON value of a body; None if the body is empty.

    Raises BadRequestError if the body is not JSON, is nested too deep, or has more than `most` bytes.

    >>> parse_body(b'{"clientID":"c"}'), parse_body(b"")
    ({'clientID': 'c'}, None)
    """
    if len(body) > most:
        raise BadRequestError(f"the body has {len(body)} bytes; {most} at most")
    if not body:
        return None
    try:
        return json.loads(body.decode(), strict=False, parse_constant=_refuse)
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
    if not isinstance(value, str):
        raise BadRequestError(f"the member {name} is not a text")
    if len(value) > most:
        raise BadRequestError(f"the member {name} has {len(value)} characters; {most} at most")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadRequestError(f"the member {name} is not valid Unicode") from None
    return value


def number_of(data: dict[str, Any], name: str, allowed: range = INTS) -> int:
    """Return a whole number; 0 if it is missing. Raises BadRequestError.

    >>> number_of({"queueId": "7"}, "queueId"), number_of({}, "queueId")
    (7, 0)
    """
    value = data.get(name)
    return 0 if value is None else _number(name, value, allowed)


def numbers_of(data: dict[str, Any], name: str, most: int, allowed: range = INTS) -> list[int]:
    """Return a list of whole numbers; see number_of() and list_of().

    >>> numbers_of({"codeSet": [65]}, "codeSet", 100)
    [65]
    """
    return [_number(name, value, allowed) for value in list_of(data, name, most)]


def _number(name: str, value: object, allowed: range) -> int:
    if isinstance(value, str) and len(value) <= 20 and value.isascii() and value.removeprefix("-").isdigit():
        value = int(value)
    if type(value) is not int or value not in allowed:
        raise BadRequestError(f"the member {name} is not a whole number of the allowed range")
    return value


def flag_of(data: dict[str, Any], name: str) -> bool:
    """Return a truth value; False if it is missing. Raises BadRequestError.

    >>> flag_of({"unitMode": "true"}, "unitMode"), flag_of({}, "unitMode")
    (True, False)
    """
    value = data.get(name)
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.lower(), value)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise BadRequestError(f"the member {name} is neither true nor false")
    return value


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
