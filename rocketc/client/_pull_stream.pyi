"""Pulls over plain sockets, many of them under way, and the records of their answers in order."""

from collections.abc import Callable, Iterable
from typing import final

@final
class PullStream:
    def __init__(
        self,
        fds: Iterable[int],
        queues: Iterable[tuple[int, int, int, tuple[tuple[bytes, ...], tuple[int, ...]]]],
        *,
        until: int,
        timeout: int,
        is_filtered: bool,
        stops_at_gaps: bool = False,
        check: Callable[[], object] | None = None,
        encode: Callable[[int, int, int, int], bytes] | None = None,
    ) -> None: ...
    def close(self) -> None: ...
    @property
    def why(self) -> str | None: ...
    def positions(self) -> list[int]: ...
    def next(self) -> bytes: ...
    def runs(self) -> bytes: ...
