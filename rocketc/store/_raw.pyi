"""Raw bytes of the log: the part of a store that replication uses."""

from typing import Literal, overload

from typing_extensions import Buffer

from rocketc.files._append_file import View
from rocketc.store._gets import Getting

class RawAccess(Getting):
    @overload
    def read_raw(
        self, phy_offset: int, max_bytes: int = 262144, *, upto: int | None = None, views: Literal[False] = False
    ) -> bytes: ...
    @overload
    def read_raw(
        self, phy_offset: int, max_bytes: int = 262144, *, upto: int | None = None, views: Literal[True]
    ) -> View | None: ...
    @overload
    def read_log(self, phy_offset: int, max_bytes: int = 262144, *, views: Literal[False] = False) -> bytes: ...
    @overload
    def read_log(self, phy_offset: int, max_bytes: int = 262144, *, views: Literal[True]) -> View | None: ...
    def append_raw(self, phy_offset: int, data: Buffer) -> int: ...
