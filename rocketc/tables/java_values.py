"""JSON values as fastjson reads them into the fields of a Java class.

RocketMQ's clients in other languages write numbers where Java has an enum, and texts where Java has a number.
Refused here, and read by fastjson: "1,000" and "7.00" as numbers, and lists and objects as texts.
Source: fastjson 1.2.83, observed with the bodies of RocketMQ 5.3.3.
"""

from __future__ import annotations

import enum
import math
import re
from typing import TypeVar

E = TypeVar("E", bound=enum.Enum)

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_FLAGS = {"true": True, "1": True, "y": True, "t": True, "false": False, "0": False, "n": False, "f": False}
_NOTHING = ("", "null", "NULL")  # in the place of a number or a truth value: the member counts as missing


def java_text(value: object) -> str:
    """Return a String: numbers and truth values become text. Raises ValueError for a list or an object.

    >>> java_text(7), java_text(True)
    ('7', 'true')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError("is not a text")


def java_number(value: object, allowed: range) -> int | None:
    """Return an int or a long; None for a text that means no value. Fractions are cut off.

    Raises ValueError for other values and for a number out of the range.

    >>> java_number("-7", range(-9, 10)), java_number(1.9, range(9)), java_number("", range(9))
    (-7, 1, None)
    """
    if isinstance(value, str):
        if value in _NOTHING:
            return None
        value = int(value) if _WHOLE.fullmatch(value) else None
    elif isinstance(value, float):
        value = int(value) if math.isfinite(value) else None
    if not isinstance(value, int) or value not in allowed:
        raise ValueError("is not a whole number of the allowed range")
    return int(value)


def java_flag(value: object) -> bool | None:
    """Return a boolean; None for a text that means no value. Of the numbers, only 1 is true.

    Raises ValueError for other values.

    >>> java_flag("TRUE"), java_flag(1), java_flag("N"), java_flag("")
    (True, True, False, None)
    """
    if isinstance(value, int | float):
        return value == 1
    if isinstance(value, str):
        if value in _NOTHING:
            return None
        if value.lower() in _FLAGS:
            return _FLAGS[value.lower()]
    raise ValueError("is neither true nor false")


def java_enum(kind: type[E], value: object) -> E | None:
    """Return an enum by its name, in any case, or by its ordinal; None for a name that is not known.

    kind  its members are in Java's order
    Raises ValueError for a number that is not an ordinal, and for values that are neither a text nor a number.

    >>> Color = enum.Enum("Color", ["RED", "BLUE"])
    >>> java_enum(Color, "BLUE"), java_enum(Color, 1), java_enum(Color, "GREEN")
    (<Color.BLUE: 2>, <Color.BLUE: 2>, None)
    """
    if isinstance(value, str):
        return kind.__members__.get(value.upper())
    members = list(kind)
    if type(value) is not int or not 0 <= value < len(members):
        raise ValueError(f"is neither a name nor one of the numbers 0 to {len(members) - 1}")
    return members[value]
