"""A table that keeps what was used last, so that names which come only once do not fill the memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The entries that were used last: at least half of `most`, and never more than `most`.

    most  entries, at least 2

    >>> table = Recent(4)
    >>> for key in "abc":
    ...     table[key] = key.upper()
    >>> table.get("a"), sorted(table)
    ('A', ['a', 'b', 'c'])
    >>> table["d"] = "D"
    >>> sorted(table)
    ['a', 'c', 'd']
    """

    def __init__(self, most: int) -> None:
        self._half = most // 2
        self._new: dict[K, V] = {}
        self._old: dict[K, V] = {}  # used before; an entry is in one of both

    def get(self, key: K) -> V | None:
        """Return the value of a key, which counts as a use; None if there is none."""
        value = self._new.get(key)
        if value is None and key in self._old:
            value = self[key] = self._old[key]
        return value

    def __setitem__(self, key: K, value: V) -> None:
        self._old.pop(key, None)
        if key not in self._new and len(self._new) >= self._half:
            self._new, self._old = {}, self._new
        self._new[key] = value

    def discard(self, key: K) -> None:
        """Remove a key, if it is there."""
        self._new.pop(key, None)
        self._old.pop(key, None)

    def __contains__(self, key: K) -> bool:
        """Whether the key is there. It does not count as a use."""
        return key in self._new or key in self._old

    def __iter__(self) -> Iterator[K]:
        yield from self._old
        yield from self._new

    def __len__(self) -> int:
        return len(self._old) + len(self._new)

    def values(self) -> Iterator[V]:
        """Return the values. It does not count as a use."""
        yield from self._old.values()
        yield from self._new.values()
