"""The keys of a message: one property, in which blanks separate them."""

from __future__ import annotations

from collections.abc import Iterable

from rocketc.errors import IllegalMessageError


def joined_keys(keys: object) -> str:
    """Return the value of the property. A text is one already; of several texts, each is one key.

    Raises TypeError; IllegalMessageError for one of several texts that is not one key.

    >>> joined_keys("o-1 c-7"), joined_keys(["o-1", "c-7"])
    ('o-1 c-7', 'o-1 c-7')
    >>> joined_keys(["order 1"])
    Traceback (most recent call last):
    rocketc.errors.IllegalMessageError: keys: 'order 1' contains a blank, which separates keys; use another character
    """
    if isinstance(keys, str):
        return keys
    if isinstance(keys, bytes | bytearray) or not isinstance(keys, Iterable):
        raise TypeError(f"keys: expected str, or several of them, got {type(keys).__name__}")
    found = list[str]()
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(f"keys: expected str, got {type(key).__name__}")
        if " " in key:
            raise IllegalMessageError(f"keys: {key!r} contains a blank, which separates keys; use another character")
        if not key:
            raise IllegalMessageError("keys: one of them is empty; leave it out")
        found.append(key)
    return " ".join(found)
