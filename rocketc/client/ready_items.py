"""Work that is ready, in the order in which it came, in parts."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Collection
from typing import Generic, TypeVar

OwnerT = TypeVar("OwnerT")
ItemT = TypeVar("ItemT")


class Part(Generic[OwnerT, ItemT]):
    """Items of one owner, each of which is taken once.

    items  those that are left, in order; a list or a tuple at first

    >>> part = Part("a", [1, 2])
    >>> next(part.items), part.left
    (1, 1)
    """

    __slots__ = ("items", "owner")

    def __init__(self, owner: OwnerT, items: Collection[ItemT]) -> None:
        self.owner, self.items = owner, iter(items)

    @property
    def left(self) -> int:
        """The number of items that are left."""
        return operator.length_hint(self.items)


class ReadyItems(Generic[OwnerT, ItemT]):
    """Parts, one after the other. Use it on one thread, or with a lock.

    >>> ready = ReadyItems()
    >>> ready.add(Part("a", [1, 2]))
    >>> ready.add(Part("b", []))
    >>> ready.add(Part("c", [3]))
    >>> ready.first().owner, next(ready.first().items), list(ready.first().items), ready.first().owner
    ('a', 1, [2], 'c')
    """

    def __init__(self) -> None:
        self._parts: deque[Part[OwnerT, ItemT]] = deque()

    def __bool__(self) -> bool:
        """False: there are no items. True: there are some, or all items of the last part have just been taken."""
        return bool(self._parts)

    def add(self, part: Part[OwnerT, ItemT]) -> None:
        """Add items at the end."""
        self._parts.append(part)

    def first(self) -> Part[OwnerT, ItemT] | None:
        """Return the first part that has items left, or None. It stays here until its items are taken."""
        parts = self._parts
        while parts:
            if parts[0].left:
                return parts[0]
            parts.popleft()
        return None

    def clear(self) -> None:
        """Forget all items."""
        self._parts.clear()
