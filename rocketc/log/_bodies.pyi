"""The bodies of put_many, a run of them at a time as entries for append()."""

from collections.abc import Iterable
from typing import Any

from typing_extensions import Buffer, Self

class Bodies:
    def __new__(cls, bodies: Iterable[Buffer] | Any) -> Self: ...
    @property
    def count(self) -> int: ...
