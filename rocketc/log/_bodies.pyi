"""The bodies of put_many as prepared records, some at a time."""

from collections.abc import Iterable
from typing import Any

from typing_extensions import Buffer, Self

class Bodies:
    def __new__(cls, bodies: Iterable[Buffer] | Any) -> Self: ...
    @property
    def count(self) -> int: ...
