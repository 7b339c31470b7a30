"""Read the JSON bodies of answers. A server's answer is a claim: each member is checked when it is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from rocketc.tables.fastjson import parse

_T = TypeVar("_T", int, float)


class Fields:
    """The members of a JSON object. Each method raises ValueError for a member that is missing or of another type.

    >>> fields = parse_fields(b'{"name":"a","sizes":{0:7}}')
    >>> fields.text("name"), fields.number("count", 0)
    ('a', 0)
    >>> fields.number("name")
    Traceback (most recent call last):
    ValueError: name is 'a', which is not a number
    """

    def __init__(self, members: dict[Any, Any]) -> None:
        self.members = members

    def text(self, name: str, default: str | None = None) -> str:
        value = self._member(name, default)
        if not isinstance(value, str):
            raise ValueError(f"{name} is {_short(value)}, which is not a text")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        value = self._member(name, default)
        if type(value) is not int:
            raise ValueError(f"{name} is {_short(value)}, which is not a number")
        return value

    def real(self, name: str, default: float | None = None) -> float:
        value = self._member(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{name} is {_short(value)}, which is not a number")
        return float(value)

    def truth(self, name: str, default: bool | None = None) -> bool:
        value = self._member(name, default)
        if not isinstance(value, bool):
            raise ValueError(f"{name} is {_short(value)}, which is not true or false")
        return value

    def names(self, name: str) -> list[str]:
        """A list of texts."""
        return _texts(self._member(name, ()), name)

    def objects(self, name: str) -> list[Fields]:
        """A list of objects."""
        value = self._member(name, ())
        if not isinstance(value, list | tuple):
            raise ValueError(f"{name} is {_short(value)}, which is not a list")
        return [_object(one, name) for one in value]

    def texts(self, name: str) -> dict[Any, str]:
        """An object whose members are texts."""
        return {key: _text(value, name) for key, value in self._items(name)}

    def table(self, name: str) -> Iterator[tuple[Any, Fields]]:
        """An object whose members are objects. A name that is an object is a Fields, too."""
        for key, value in self._items(name):
            yield key, _object(value, name)

    def lists(self, name: str) -> Iterator[tuple[Any, list[str]]]:
        """An object whose members are lists of texts."""
        for key, value in self._items(name):
            yield key, _texts(value, name)

    def numbers(self, name: str) -> Iterator[tuple[Any, int]]:
        """An object whose members are numbers. A name that is an object is a Fields, too."""
        for key, value in self._items(name):
            if type(value) is not int:
                raise ValueError(f"{name} contains {_short(value)}, which is not a number")
            yield key, value

    def _items(self, name: str) -> Iterator[tuple[Any, Any]]:
        for key, value in _object(self._member(name, {}), name).members.items():
            yield Fields(dict(key)) if isinstance(key, tuple) else key, value

    def _member(self, name: str, default: Any) -> Any:
        value = self.members.get(name)
        value = default if value is None else value
        if value is None:
            raise ValueError(f"{name} is missing")
        return value


def parse_fields(body: bytes) -> Fields:
    """Parse a body that is one JSON object, as fastjson writes it. Raises ValueError.

    >>> parse_fields(b"[]")
    Traceback (most recent call last):
    ValueError: the body is [], which is not an object
    """
    return _object(parse(body, object_names=True), "the body")


def _object(value: Any, name: str) -> Fields:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {_short(value)}, which is not an object")
    return Fields(value)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} contains {_short(value)}, which is not a text")
    return value


def _texts(value: Any, name: str) -> list[str]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} is {_short(value)}, which is not a list")
    return [_text(one, name) for one in value]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:40] + "..."
